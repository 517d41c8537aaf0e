"""Do a piece of work in a forked child and hear what became of it.

Each case has a process of its own: a crash, a hang or a broken CUDA context hits that case alone,
and the parent, which never touches a GPU or an operator library, still writes its record. It also
has to be so: nvbench resets the device at the end of its run, after which torch cannot go on.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Send = Callable[[dict[str, Any]], None]


@dataclass
class Ended:
    """What the child said, and how it ended."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    status: int = 0
    timed_out: bool = False

    def how(self) -> str | None:
        """How the child ended in words, None when it ended well."""
        if os.WIFSIGNALED(self.status):
            number = os.WTERMSIG(self.status)
            return f"the process was killed by {signal.Signals(number).name}"
        code = os.WEXITSTATUS(self.status)
        return f"the process ended early with exit code {code}" if code else None


def call(work: Callable[[Send], None], limit: float | None = None) -> Ended:
    """Run ``work`` in a child, at most ``limit`` seconds; ``work`` reports through ``send``."""
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Threads that importing torch left behind are idle; they hold no lock that we need.
        warnings.simplefilter("ignore", DeprecationWarning)
        parent = os.getpid()
        pid = os.fork()
    if pid == 0:
        os.close(reader)
        _child(work, writer, parent)
    os.close(writer)
    ended = Ended()
    waited = False
    try:
        waited = _listen(ended, reader, pid, limit)
    finally:
        os.close(reader)
        if not waited:
            os.kill(pid, signal.SIGKILL)
            _, ended.status = os.waitpid(pid, 0)
    return ended


def _child(work: Callable[[Send], None], writer: int, parent: int) -> None:
    code = 70
    try:
        _die_with(parent)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

        def send(message: dict[str, Any]) -> None:
            data = json.dumps(message, default=str).encode() + b"\n"
            while data:
                data = data[os.write(writer, data) :]

        work(send)
        code = 0
    except KeyboardInterrupt:
        code = 130
    except BaseException:  # noqa: BLE001 - the child must not return into the parent's code
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # nvbench prints through C stdio, which os._exit would not flush.
        ctypes.CDLL(None).fflush(None)
        os._exit(code)


def _die_with(parent: int) -> None:
    """Ask Linux to kill this process when its parent is gone."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(70)


def _listen(ended: Ended, reader: int, pid: int, limit: float | None) -> bool:
    """Read messages until the child has ended (True) or its time is up (False)."""
    os.set_blocking(reader, False)
    deadline = None if limit is None else time.monotonic() + limit
    pending = b""
    gone = silent = False
    while True:
        if silent:
            time.sleep(0.01)
        elif select.select([reader], [], [], 0 if gone else 0.25)[0]:
            chunk = os.read(reader, 1 << 16)
            *lines, pending = (pending + chunk).split(b"\n")
            ended.messages += [json.loads(line) for line in lines]
            silent = not chunk
            continue
        if gone:
            # A grandchild may hold the pipe open; what the child had to say is read.
            return True
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            ended.status = status
            gone = True
        elif deadline is not None and time.monotonic() >= deadline:
            ended.timed_out = True
            return False
