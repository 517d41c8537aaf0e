"""Start, recognise and end the fleet's processes.

A process is remembered as pid, start time and boot: a pid alone may belong to somebody else after
a reboot or a kill. What outlives its parent is found by marks that only the fleet's own carry.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from host import FleetError, Host, read_json, write_file

SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
Check = Callable[[], bool]
GRACE = 20.0  # seconds between TERM and KILL: an engine ends its containers within


class Process(NamedTuple):
    pid: int
    start: int  # clock ticks since boot


def which(name: str) -> str | None:
    """Where a command is; the system's folders are searched whatever PATH says."""
    return shutil.which(name, path=SEARCH)


def tool(name: str) -> str:
    path = which(name)
    if path is None:
        raise FleetError(f"{name} is not installed")
    return path


def run(argv: Sequence[str], what: str, timeout: float = 300) -> str:
    """Run a command to its end, give its stdout; FleetError with its last words if it fails."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=clean_environment(),
            timeout=timeout,
            check=False,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise FleetError(f"{what}: {argv[0]} did not end within {timeout:.0f} s") from None
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise FleetError(f"{what}: {Path(argv[0]).name} said: {words}")
    return done.stdout


def clean_environment() -> dict[str, str]:
    """An environment free of what would redirect Docker or OpenSSH."""
    kept = {key: value for key, value in os.environ.items() if key.lower().endswith("_proxy")}
    return {**kept, "PATH": SEARCH, "HOME": "/root", "LC_ALL": "C.UTF-8"}


def start(host: Host, name: str, argv: Sequence[str]) -> None:
    """Start a daemon of the host, its output in <host>/<name>.log, and remember it."""
    with (host.root / f"{name}.log").open("ab") as log:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=clean_environment(),
            start_new_session=True,
        )
    known = read_json(host.processes)
    known[name] = {"pid": child.pid, "start": _start_time(child.pid), "boot": _boot()}
    write_file(host.processes, json.dumps(known))


def remembered(host: Host, name: str) -> Process | None:
    """The daemon of that name when it is alive, the same one, of this boot."""
    entry = read_json(host.processes).get(name, {})
    if entry.get("boot") != _boot():
        return None
    process = Process(int(entry["pid"]), int(entry["start"]))
    return process if alive(process) else None


def last_words(host: Host, name: str) -> str:
    """Where the daemon's log is and how it ends, for an error message."""
    path = host.root / f"{name}.log"
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return f"{path}: {lines[-1][-300:] if lines else 'empty'}"


def wait_until(ready: Check, seconds: float) -> bool:
    limit = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > limit:
            return False
        time.sleep(0.1)
    return True


def alive(process: Process) -> bool:
    return _start_time(process.pid) == process.start


def matching(match: Callable[[Path], bool]) -> list[Process]:
    """All processes but this one for whose /proc/<pid> folder `match` says yes."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        started = _start_time(int(folder.name))
        try:
            if started and match(folder):
                found.append(Process(int(folder.name), started))
        except OSError:  # it ended meanwhile
            continue
    return found


def with_descendants(process: Process) -> list[Process]:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            fields = _stat(int(folder.name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(folder.name))
    tree, found = [process.pid], []
    while tree:
        pid = tree.pop()
        tree += children.get(pid, [])
        started = _start_time(pid)
        if started and pid != os.getpid():
            found.append(Process(pid, started))
    return found


def end(targets: Iterable[Process], grace: float = GRACE) -> None:
    """TERM, wait, KILL what is left, wait. FleetError when even that did not help."""
    left = [process for process in targets if alive(process)]

    def gone() -> bool:
        left[:] = filter(alive, left)
        return not left

    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)
        if wait_until(gone, seconds):
            return
    raise FleetError(f"process {left[0].pid} cannot be killed: look at /proc/{left[0].pid}/stack")


def unmount_below(folder: Path) -> None:
    """Unmount everything mounted below `folder`, innermost first; lazily what is still in use."""
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split()[4].encode("latin-1", "replace").decode("unicode_escape")
        if Path(point) != folder and folder in Path(point).parents:
            points.append(point)
    for point in sorted(points, key=len, reverse=True):
        if subprocess.run(
            ["umount", point], check=False, stderr=subprocess.DEVNULL, env=clean_environment()
        ).returncode:
            run([tool("umount"), "-l", point], f"unmounting {point}")


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat after the command's name; empty for no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _start_time(pid: int) -> int:
    """Start time in ticks, 0 for a process that is gone (or dead and only not yet reaped)."""
    fields = _stat(pid)
    return 0 if not fields or fields[0] in "ZX" else int(fields[19])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
