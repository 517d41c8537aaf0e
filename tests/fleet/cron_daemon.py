"""A real cron daemon that is nobody else's: own crontabs, own processes, none of the system's jobs.

It runs in a mount and PID namespace of its own, in which `/etc` has no cron jobs and the crontabs
and `/run` are empty. What is to use its crontabs runs through `Cron.run`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from .workbench import wait_until

# In the namespace, as its process 1. The spool keeps the owner and mode that crontab expects.
_INSIDE = """
set -e
mount -t tmpfs tmpfs /run
mount -t tmpfs -o mode=1730,gid="$(stat -c %g /var/spool/cron/crontabs)" \
    tmpfs /var/spool/cron/crontabs
mount -t tmpfs tmpfs /etc/cron.d
mount --bind /dev/null /etc/crontab
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin cron -f -L 15
"""


@dataclass(frozen=True)
class Cron:
    """A daemon that runs; `pid` is its process, seen from outside."""

    pid: int

    def run(
        self, *argv: str | Path, cwd: Path, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command where the daemon is, to its end."""
        done = subprocess.run(
            ["nsenter", "-t", str(self.pid), "-m", "-p", f"--wdns={cwd}", *argv],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done
        return done


@contextmanager
def cron_daemon() -> Iterator[Cron]:
    """A daemon for the block; skips, or fails where the fleet is required, when there is none."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    missing = [
        name
        for name in ("cron", "crontab", "unshare", "nsenter")
        if shutil.which(name, path=path) is None
    ]
    if missing:
        _unfit(f"needs {', '.join(missing)}: apt-get install cron util-linux")
    process = subprocess.Popen(
        [
            *("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"),
            *("sh", "-c", _INSIDE),
        ],
        stdin=subprocess.DEVNULL,
        stdout=sys.__stderr__,
        stderr=sys.__stderr__,
    )
    try:
        found: list[int] = []

        def begun() -> bool:
            found[:] = _children(process.pid, "cron")
            return bool(found) or process.poll() is not None

        if not wait_until(begun, 20) or not found:
            _unfit("cron cannot have a namespace of its own here")
        # It tells a change of its crontabs by the second, and has just read that there are none.
        time.sleep(1.1)
        yield Cron(found[0])
    finally:
        process.kill()  # and with it all that the daemon started
        process.wait()


def _children(pid: int, name: str) -> list[int]:
    """The children of a process that run the program `name`."""
    try:
        pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        names = [Path(f"/proc/{child}/comm").read_text().strip() for child in pids]
    except OSError:
        return []
    return [int(child) for child, comm in zip(pids, names, strict=True) if comm == name]


def _unfit(reason: str) -> NoReturn:
    if os.environ.get("MXFLEET_REQUIRE_FLEET") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
