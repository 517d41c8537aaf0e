"""A command's pipe on one SSH channel."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import paramiko

from orchestrator.errors import LinkLostError
from orchestrator.transport.process import STDERR_GRACE, StderrTail

_CHUNK = 1 << 15  # what fits into one SSH packet


class SshPipe:
    """A ``Pipe`` on one session channel."""

    def __init__(self, channel: paramiko.Channel, peer: str) -> None:
        self._channel = channel
        self._peer = peer
        self._closed = False
        self._tail = StderrTail()
        self._drainer = threading.Thread(target=self._drain, name=f"stderr {peer}", daemon=True)
        self._drainer.start()

    def read(self, size: int) -> bytes:
        """Return 1 to ``size`` bytes, ``b""`` at end of file or after ``close``."""
        data = self._channel.recv(size)
        if not data and not self._closed and not self._ended():
            raise LinkLostError("the SSH connection broke", where=self._peer)
        return data

    def write(self, data: bytes) -> None:
        """Write all of ``data``; waits for the server's window."""
        for offset in range(0, len(data), _CHUNK):
            chunk = data[offset : offset + _CHUNK]
            while chunk:
                try:
                    sent = self._channel.send(chunk)
                except (OSError, EOFError, paramiko.SSHException) as error:
                    raise self._lost() from error
                if not sent:
                    raise self._lost()
                chunk = chunk[sent:]

    def close_write(self) -> None:
        """Signal end of file to the command."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.shutdown_write()

    def wait(self, timeout: float | None) -> int | None:
        """Return the exit status; None when unknown (killed by a signal) or not there in time."""
        self._channel.status_event.wait(timeout)
        status = self._channel.exit_status
        if status > 0:
            self._drainer.join(STDERR_GRACE)  # who asks for a bad status wants to know why
        return None if status < 0 else status

    def stderr_tail(self) -> bytes:
        """Return the end of what the command wrote to standard error."""
        return self._tail.value()

    def close(self) -> None:
        """Give the pipe up. The farewell may have to wait for a full or dead link: not here."""
        self._closed = True
        in_background(self._channel.close)

    def _ended(self) -> bool:
        """Return whether the command's end, not the link's, is why there is no more data."""
        return bool(self._channel.eof_received) or self._channel.exit_status >= 0

    def _lost(self) -> LinkLostError:
        if self._closed:
            message = "the pipe is closed"
        elif self._ended():
            message = "the command on the other side ended and no longer reads"
        else:
            message = "the SSH connection broke"
        return LinkLostError(message, where=self._peer)

    def _drain(self) -> None:
        while data := self._channel.recv_stderr(_CHUNK):
            self._tail.add(data)


def in_background(action: Callable[[], None]) -> threading.Thread:
    """Run the end of something whose other side may be gone, and return at once."""

    def quietly() -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            action()

    thread = threading.Thread(target=quietly, name="ssh farewell", daemon=True)
    thread.start()
    return thread
