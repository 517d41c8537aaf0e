"""The programs that a table needs, and their versions as they state them."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

from common.errors import Skip

_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def find(name: str) -> str:
    """The path of a program. Raises Skip when it is not installed."""
    found = shutil.which(name, path=_PATH)
    if found is None:
        raise Skip(f"{name} is not installed")
    return found


def need(names: Iterable[str], *, root: bool = False) -> None:
    """Raise Skip unless the programs are there (and we are root)."""
    if root and os.geteuid() != 0:
        raise Skip("it needs root for network namespaces; run it through sudo")
    for name in names:
        find(name)


def compiled(folder: Path) -> dict[str, str]:
    """An environment in which mxfleet finds its modules compiled, as after an installation.

    The compiled files are kept in ``folder``: none of root's are left in a checkout.
    """
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def version(*argv: str) -> str:
    """The first line that a program says of itself with a number in it."""
    done = subprocess.run([find(argv[0]), *argv[1:]], capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    return next((" ".join(line.split()) for line in lines if re.search(r"\d", line)), "unknown")


def machine() -> list[str]:
    """Date, CPUs, load and versions of this machine, as lines for a table's foot."""
    load = os.getloadavg()[0]
    return [
        f"date: {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        f"CPUs: {os.cpu_count()} ({_cpu()}), load before: {load:.1f}",
        f"kernel: {platform.system()} {platform.release()}",
        f"python: {platform.python_version()}",
    ]


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return "unknown"
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1) if found else platform.machine()
