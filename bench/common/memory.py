"""Memory of a command and all it starts: the summed PSS, sampled while it runs."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from pathlib import Path

_PAUSE = 0.05  # seconds between two looks
_PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)


class Peak:
    """The largest sum seen of a process and its descendants, in MiB, while the block runs.

    Only what descends from the process counts: the servers of loopback connections do not.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.mib = 0.0
        self._process = process
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.is_set():
            self.mib = max(self.mib, sum(_pss(pid) for pid in _family(self._process.pid)))
            time.sleep(_PAUSE)


def _family(root: int) -> list[int]:
    """A process and everything that descends from it."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # After the name, which may hold anything: state, parent.
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(folder.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def _pss(pid: int) -> float:
    """In MiB; 0 for a process that is gone."""
    try:
        found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_bytes())
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0
