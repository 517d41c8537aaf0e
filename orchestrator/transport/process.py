"""A pipe to a local child process, shared by every transport that starts one.

The blocking calls of a pipe wait on the process *and* on a wake-up descriptor, because closing a
descriptor does not wake a thread that sleeps on it, and because grandchildren may hold the other
end open long after the process itself is gone.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
from collections.abc import Mapping, Sequence

from orchestrator.errors import LinkLostError
from orchestrator.transport.base import STDERR_TAIL

_CHUNK = 1 << 16
# Seconds for the last words on standard error, which may come after the exit status.
STDERR_GRACE = 0.5
# Linux's default ceiling for unprivileged pipes; fewer wake-ups for a big transfer.
_PIPE_SIZE = 1 << 20
_F_SETPIPE_SZ = 1031


class StderrTail:
    """The last ``STDERR_TAIL`` bytes of a stream, filled by one thread and read by any."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._lock = threading.Lock()

    def add(self, data: bytes) -> None:
        """Append ``data`` and forget what is too old."""
        with self._lock:
            self._bytes += data
            del self._bytes[:-STDERR_TAIL]

    def value(self) -> bytes:
        """Return what is kept."""
        with self._lock:
            return bytes(self._bytes)


class ProcessPipe:
    """A ``Pipe`` to a child process; ``end_on_close`` also terminates the process on close.

    Without it the process sees end of file on its standard input, as a command behind a closed
    SSH channel does, and decides itself.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        peer: str,
        env: Mapping[str, str] | None = None,
        end_on_close: bool = False,
    ) -> None:
        """Start ``argv``. Raises OSError when it cannot be started."""
        self._peer = peer
        self._end_on_close = end_on_close
        # An own session: Ctrl-C at our terminal must not reach it.
        self.process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            env=None if env is None else dict(env),
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self._stdin, self._stdout = self.process.stdin.fileno(), self.process.stdout.fileno()
        for descriptor in (self._stdin, self._stdout):
            _widen(descriptor)
        os.set_blocking(self._stdin, False)
        self._wake_read, self._wake_write = os.pipe()
        self._tail = StderrTail()
        self._lock = threading.Lock()
        self._users = 0  # threads inside a system call on our descriptors
        self._closed = False
        self._write_closed = False
        self._enter()
        self._drainer = threading.Thread(target=self._drain, name=f"stderr {peer}", daemon=True)
        self._drainer.start()

    def read(self, size: int) -> bytes:
        """Return 1 to ``size`` bytes, ``b""`` at end of file or after ``close``."""
        if not self._enter():
            return b""
        try:
            if not self._ready(self._stdout, select.POLLIN):
                return b""
            return os.read(self._stdout, size)
        finally:
            self._leave()

    def write(self, data: bytes) -> None:
        """Write all of ``data``. Raises LinkLostError when the process no longer reads."""
        if not self._enter():
            raise LinkLostError("the pipe is closed", where=self._peer)
        try:
            view = memoryview(data)
            while view:
                if self._write_closed or not self._ready(self._stdin, select.POLLOUT):
                    raise LinkLostError("the pipe is closed", where=self._peer)
                try:
                    view = view[os.write(self._stdin, view) :]
                except BlockingIOError:
                    continue
                except OSError as error:
                    message = "the command on the other side ended and no longer reads"
                    raise LinkLostError(message, where=self._peer) from error
        finally:
            self._leave()

    def close_write(self) -> None:
        """Signal end of file to the process."""
        with self._lock:
            if self._write_closed or self._closed:
                return
            self._write_closed = True
        assert self.process.stdin
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def wait(self, timeout: float | None) -> int | None:
        """Return the exit status (128 + signal when killed by one), None when not there in time."""
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        if status:
            self._drainer.join(STDERR_GRACE)  # who asks for a bad status wants to know why
        return status if status >= 0 else 128 - status

    def stderr_tail(self) -> bytes:
        """Return the end of what the process wrote to standard error."""
        return self._tail.value()

    @property
    def closed(self) -> bool:
        """Whether this side gave the pipe up."""
        return self._closed

    def close(self) -> None:
        """Give the pipe up and wake who waits on it. Safe from any thread, more than once."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            os.write(self._wake_write, b"\0")
            idle = self._users == 0
        if self._end_on_close and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
        if idle:
            self._release()

    def _enter(self) -> bool:
        with self._lock:
            if self._closed:
                return False
            self._users += 1
            return True

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._closed and self._users == 0
        if last:
            self._release()

    def _release(self) -> None:
        """Close the descriptors, once nobody can be inside a call on one of them."""
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream
            with contextlib.suppress(OSError):
                stream.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _ready(self, descriptor: int, event: int) -> bool:
        """Wait until ``descriptor`` is ready; False when the pipe was closed meanwhile."""
        poll = select.poll()
        poll.register(descriptor, event)
        poll.register(self._wake_read, select.POLLIN)
        return self._wake_read not in {ready for ready, _ in poll.poll()}

    def _drain(self) -> None:
        assert self.process.stderr
        descriptor = self.process.stderr.fileno()
        try:
            while self._ready(descriptor, select.POLLIN):
                data = os.read(descriptor, _CHUNK)
                if not data:
                    break
                self._tail.add(data)
        finally:
            self._leave()
        self.process.wait()  # leaves no zombie behind


def _widen(descriptor: int) -> None:
    try:
        import fcntl

        fcntl.fcntl(descriptor, _F_SETPIPE_SZ, _PIPE_SIZE)
    except OSError:
        pass  # macOS, or the user's limit is reached: the default size works as well
