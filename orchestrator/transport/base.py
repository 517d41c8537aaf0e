"""What a transport has to give: a duplex byte pipe to a command on the other side.

Everything else (frames, pushes, jobs) is built on the pipe alone, so a new way to reach a machine
is a class with ``open`` and ``close``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

# How much of a command's standard error a pipe keeps to explain why it ended, in bytes.
STDERR_TAIL = 8192


class Pipe(Protocol):
    """Standard input and output of one remote command. Blocking; one reader and one writer thread.

    ``read`` returns at least one byte, or ``b""`` at end of file. Both raise
    ``LinkLostError`` when the connection breaks. Standard error is drained all the time so that it
    can never block the command; ``stderr_tail`` is its last ``STDERR_TAIL`` bytes.
    """

    def read(self, size: int) -> bytes:
        """Return 1 to ``size`` bytes, ``b""`` at end of file."""

    def write(self, data: bytes) -> None:
        """Write all of ``data``."""

    def close_write(self) -> None:
        """Signal end of file to the command's standard input."""

    def wait(self, timeout: float | None) -> int | None:
        """Return the command's exit status; None when it is unknown or not there in time."""

    def stderr_tail(self) -> bytes:
        """Return the end of what the command wrote to standard error."""

    def close(self) -> None:
        """Give the pipe up. Never raises, wakes a blocked reader; safe to call twice and from
        any thread."""


class Connection(Protocol):
    """An authenticated way to one host (or, wrapped, into one container on it)."""

    @property
    def peer(self) -> str:
        """Where this leads, for messages: ``c500-01`` or ``c500-01:vllm-dsv4``."""

    def open(self, argv: Sequence[str]) -> Pipe:
        """Start a command and return its pipe. Safe to call from several threads."""

    def close(self) -> None:
        """End the connection and with it every pipe. Never raises."""
