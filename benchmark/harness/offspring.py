"""Processes that a case leaves behind: on a shared GPU none may outlive it.

A runner may start processes and detach them, by accident or through a library. Linux gives the
orphans of its descendants to a process that asks for them; ``worker`` and ``warm`` do, and end what
they are given when the case or the operator is over. Elsewhere nothing is adopted.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_SET_PARENT_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
_LIMIT = 5.0


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Ask Linux for the signal ``number`` when this process's parent, ``parent``, is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(number))
        if os.getppid() != parent:
            os._exit(70)


def adopt() -> None:
    """Become the parent of what descendants of this process leave behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> set[int]:
    """The children of this process; empty where that cannot be seen."""
    found: set[int] = set()
    with suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            with suppress(FileNotFoundError):  # a thread that has just ended
                found.update(map(int, (task / "children").read_text().split()))
    return found


def living() -> set[int]:
    """The children of this process that have not ended."""
    found: set[int] = set()
    for pid in children():
        with suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
            found.update({pid} if state != b"Z" else ())
    return found


def end_adopted(own: Collection[int]) -> None:
    """Kill every child that is not in ``own``, and what falls to this process thereby."""
    deadline = time.monotonic() + _LIMIT
    while (left := children().difference(own)) and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.001)
