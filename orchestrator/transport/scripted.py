"""Transport ``scripted``, for tests: real pipes to local commands or functions, with faults.

What can happen to a link happens here on purpose: it is slow, cut in the middle of a message,
silent for ever without being cut, chatty before the command speaks, or refused.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BufferedReader
from typing import BinaryIO, cast

from orchestrator.errors import LinkLostError, UnreachableError
from orchestrator.transport.base import Pipe
from orchestrator.transport.local import LocalConnection

# Plays the other side: gets the command line, its standard input and output; returns the status.
Script = Callable[[Sequence[str], BinaryIO, BinaryIO], int]


@dataclass(frozen=True)
class Faults:
    """What goes wrong on every pipe. Byte counts are of one pipe; None never happens."""

    delay: float = 0.0  # seconds before each read
    noise: bytes = b""  # comes before the command's own first byte, as a MOTD does
    cut_read_after: int | None = None  # bytes from the other side, then the link breaks
    cut_write_after: int | None = None  # bytes to the other side, then the link breaks
    silent_after: int | None = None  # bytes from the other side, then a black hole
    refuse: str | None = None  # open fails with this message


class ScriptedConnection:
    """A connection whose commands run here: as subprocesses, or in ``script``.

    ``opened`` lists the command lines so far; ``cut`` and ``silence`` break the open pipes.
    """

    def __init__(
        self, name: str = "scripted", script: Script | None = None, faults: Faults | None = None
    ) -> None:
        self.faults = faults or Faults()
        self.opened: list[list[str]] = []
        self._name = name
        self._script = script
        self._local = LocalConnection(name)
        self._lock = threading.Lock()
        self._pipes: list[ScriptedPipe] = []

    @property
    def peer(self) -> str:
        """The name given."""
        return self._name

    def open(self, argv: Sequence[str]) -> Pipe:
        """Start ``argv``. Raises UnreachableError when the faults say so."""
        with self._lock:
            self.opened.append(list(argv))
        if self.faults.refuse is not None:
            raise UnreachableError(self.faults.refuse, where=self._name)
        inner: Pipe = _FunctionPipe(self._script, argv) if self._script else self._local.open(argv)
        pipe = ScriptedPipe(inner, self.faults, self._name)
        with self._lock:
            self._pipes.append(pipe)
        return pipe

    def cut(self) -> None:
        """Break every pipe, as a pulled cable with a reset does."""
        for pipe in self._snapshot():
            pipe.cut()

    def silence(self) -> None:
        """Let nothing more through on any pipe, without an error, as a dead network does."""
        for pipe in self._snapshot():
            pipe.silence()

    def close(self) -> None:
        """Close every pipe."""
        for pipe in self._snapshot():
            pipe.close()

    def _snapshot(self) -> list[ScriptedPipe]:
        with self._lock:
            return list(self._pipes)


class ScriptedPipe:
    """A pipe with faults around another one."""

    def __init__(self, inner: Pipe, faults: Faults, peer: str) -> None:
        self._inner = inner
        self._faults = faults
        self._peer = peer
        self._noise = faults.noise
        self._read = self._written = 0
        self._closed = threading.Event()
        self._cut = False
        self._silent = False

    def read(self, size: int) -> bytes:
        """Read as the faults allow."""
        if self._faults.delay:
            self._closed.wait(self._faults.delay)
        if self._noise:
            data, self._noise = self._noise[:size], self._noise[size:]
            return data
        self._check()
        size = _allowed(size, self._read, self._faults.cut_read_after, self._faults.silent_after)
        if size == 0:
            if self._faults.cut_read_after == self._read:
                self.cut()
                self._check()
            self._silent = True
        data = b"" if self._silent else self._inner.read(size)
        if self._silent:  # maybe only since the read began
            self._closed.wait()
            self._check()
            return b""
        self._check()
        self._read += len(data)
        return data

    def write(self, data: bytes) -> None:
        """Write as the faults allow; a black hole swallows everything."""
        self._check()
        if self._silent:
            return
        size = _allowed(len(data), self._written, self._faults.cut_write_after)
        self._inner.write(data[:size])
        self._written += size
        if size < len(data):
            self.cut()
            self._check()

    def close_write(self) -> None:
        """Signal end of file, unless nothing gets through."""
        if not self._silent and not self._cut:
            self._inner.close_write()

    def wait(self, timeout: float | None) -> int | None:
        """Return the exit status; unknown once the link is broken."""
        if self._cut or self._silent:
            self._closed.wait(0 if self._cut else timeout)
            return None
        return self._inner.wait(timeout)

    def stderr_tail(self) -> bytes:
        """Return the end of standard error."""
        return self._inner.stderr_tail()

    def close(self) -> None:
        """Close both."""
        self._closed.set()
        self._inner.close()

    def cut(self) -> None:
        """Break the link: the other side sees end of file, this side an error."""
        self._cut = True
        self._closed.set()
        self._inner.close()

    def silence(self) -> None:
        """Turn the link into a black hole; who reads stays waiting until ``close``."""
        self._silent = True

    def _check(self) -> None:
        if self._cut:
            raise LinkLostError("the scripted link broke", where=self._peer)


def _allowed(size: int, done: int, *limits: int | None) -> int:
    return min(size, *(max(limit - done, 0) for limit in limits if limit is not None), size)


class _FunctionPipe:
    """A pipe to a function in a thread."""

    def __init__(self, script: Script, argv: Sequence[str]) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._script = script
        self._argv = list(argv)
        self._status: int | None = None
        self._thread = threading.Thread(target=self._play, name="script", daemon=True)
        self._thread.start()

    def read(self, size: int) -> bytes:
        """Return what the function wrote."""
        with contextlib.suppress(OSError):
            return self._ours.recv(size)
        return b""

    def write(self, data: bytes) -> None:
        """Hand ``data`` to the function."""
        try:
            self._ours.sendall(data)
        except OSError as error:
            raise LinkLostError("the script ended and no longer reads") from error

    def close_write(self) -> None:
        """End the function's standard input."""
        with contextlib.suppress(OSError):
            self._ours.shutdown(socket.SHUT_WR)

    def wait(self, timeout: float | None) -> int | None:
        """Return what the function returned."""
        self._thread.join(timeout)
        return self._status

    def stderr_tail(self) -> bytes:
        """Return nothing: a function has no standard error."""
        return b""

    def close(self) -> None:
        """End both directions."""
        with contextlib.suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)

    def _play(self) -> None:
        with self._theirs, self._theirs.makefile("rwb", buffering=0) as both:
            stream = cast(BinaryIO, both)
            with contextlib.suppress(OSError):
                reader = cast(BinaryIO, BufferedReader(both))
                self._status = self._script(self._argv, reader, stream)
            with contextlib.suppress(OSError):
                self._theirs.shutdown(socket.SHUT_RDWR)
