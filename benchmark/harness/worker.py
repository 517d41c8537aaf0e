"""Do a piece of work in a child process and hear what became of it.

Each case has a process of its own: a crash, a hang or a broken CUDA context hits that case alone,
and the parent, which never touches a GPU or an operator library, still writes its record. It also
has to be so: nvbench resets the device at the end of its run, after which torch cannot go on.

``call`` forks, which costs milliseconds where torch is imported. Work given by name (``Named``)
gets a fresh Python instead when this process is not fit for forking (see ``preload``).

Messages go through a pipe, framed with a nonce of the call and their length: what foreign code in
the child writes into descriptors it does not own cannot pass for one. This guards against
accidents; code that looks for the nonce in its own process finds it.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import pickle
import resource
import secrets
import select
import signal
import struct
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from harness import markers, offspring, preload, streams

Send = Callable[[dict[str, Any]], None]
_NONCE_BYTES = 16
_LENGTH = struct.Struct(">Q")
# Room left above the result pipe in the table of descriptors.
_ABOVE = 64


@dataclass
class Ended:
    """What the child said, and how it ended."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    status: int = 0
    timed_out: bool = False
    # The pipe held something else than whole messages of this call.
    foreign: bool = False

    def how(self) -> str | None:
        """How the child ended in words, None when it ended well."""
        if os.WIFSIGNALED(self.status):
            number = os.WTERMSIG(self.status)
            return f"the process was killed by {signal.Signals(number).name}"
        code = os.WEXITSTATUS(self.status)
        if code:
            return f"the process ended early with exit code {code}"
        if self.foreign:
            return "something else than the harness wrote into the pipe for the result"
        return None


class _Frames:
    """Cuts what arrives into messages; after the first foreign byte nothing more counts."""

    def __init__(self, nonce: bytes, ended: Ended) -> None:
        self._nonce = nonce
        self._ended = ended
        self._pending = b""

    def feed(self, chunk: bytes) -> None:
        """Take ``chunk`` and put the messages that are whole now into ``Ended``."""
        if self._ended.foreign:
            return
        self._pending += chunk
        head = _NONCE_BYTES + _LENGTH.size
        while self._pending:
            if not self._nonce.startswith(self._pending[:_NONCE_BYTES]):
                self._ended.foreign = True
                return
            if len(self._pending) < head:
                return
            (length,) = _LENGTH.unpack(self._pending[_NONCE_BYTES:head])
            if len(self._pending) < head + length:
                return
            self._ended.messages.append(json.loads(self._pending[head : head + length]))
            self._pending = self._pending[head + length :]

    def end(self) -> None:
        """Nothing more arrives; a message that is not whole is none."""
        self._ended.foreign |= bool(self._pending)


@dataclass(frozen=True)
class Named:
    """Work that another Python can do too: ``function(argument, send)`` of module ``module``."""

    module: str
    function: str
    argument: Any

    def __call__(self, send: Send) -> None:
        getattr(import_module(self.module), self.function)(self.argument, send)


def call(work: Callable[[Send], None], limit: float | None = None) -> Ended:
    """Run ``work`` in a child, at most ``limit`` seconds; ``work`` reports through ``send``."""
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    nonce = secrets.token_bytes(_NONCE_BYTES)
    offspring.adopt()
    own = offspring.children()
    reason = preload.soiled() if isinstance(work, Named) else None
    if reason is not None:
        markers.warn(f"this process is not forked, for {reason}; a fresh Python takes the work")
        pid = _start_fresh(work, writer, nonce)
    else:
        pid = _fork(work, reader, writer, nonce)
    os.close(writer)
    ended = Ended()
    waited = False
    try:
        waited = _listen(ended, _Frames(nonce, ended), reader, pid, limit)
    finally:
        os.close(reader)
        if not waited:
            os.kill(pid, signal.SIGKILL)
            _, ended.status = os.waitpid(pid, 0)
        offspring.end_adopted(own)
    return ended


def _fork(work: Callable[[Send], None], reader: int, writer: int, nonce: bytes) -> int:
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python warns of threads; ``preload`` has looked, and work that is not named is our own.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os.close(reader)
        _child(work, writer, nonce, parent)
    return pid


def _start_fresh(work: Callable[[Send], None], writer: int, nonce: bytes) -> int:
    script = "from harness.worker import serve_fresh; serve_fresh()"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", script],
        stdin=subprocess.PIPE,
        pass_fds=[writer],
        cwd=Path(__file__).resolve().parents[1],
    )
    assert process.stdin is not None
    payload = pickle.dumps((work, writer, nonce, os.getpid(), str(Path.cwd()), sys.path))
    # A Python that dies before it has read all is told by its exit status.
    with suppress(BrokenPipeError):
        process.stdin.write(payload)
    with suppress(BrokenPipeError):
        process.stdin.close()
    process.returncode = 0  # the caller waits for the process itself
    return process.pid


def serve_fresh() -> None:
    """Do the work that ``call`` wrote to the standard input of this fresh Python."""
    work, writer, nonce, parent, folder, path = pickle.loads(sys.stdin.buffer.read())
    sys.path[:] = path
    os.chdir(folder)
    streams.mend()
    _child(work, writer, nonce, parent)


def _child(work: Callable[[Send], None], writer: int, nonce: bytes, parent: int) -> None:
    code = 70
    try:
        writer = _out_of_the_way(writer)
        offspring.die_with(parent)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)

        def send(message: dict[str, Any]) -> None:
            text = json.dumps(message, default=str).encode()
            data = nonce + _LENGTH.pack(len(text)) + text
            while data:
                data = data[os.write(writer, data) :]

        work(send)
        code = 0
    except KeyboardInterrupt:
        code = 130
    except BaseException:  # noqa: BLE001 - the child must not return into the parent's code
        sys.excepthook(*sys.exc_info())
    finally:
        try:
            _flush()
        finally:
            os._exit(code)


def _flush() -> None:
    """Bring out what was printed; the runner may have closed or replaced a stream."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    # nvbench prints through C stdio, which os._exit would not flush.
    ctypes.CDLL(None).fflush(None)


def _out_of_the_way(descriptor: int) -> int:
    """Move ``descriptor`` to a high number, where loops over the low ones do not meet it."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = 1024 if limit == resource.RLIM_INFINITY else min(limit, 1024)
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, max(3, highest - _ABOVE))
    os.close(descriptor)
    return moved


def _listen(ended: Ended, frames: _Frames, reader: int, pid: int, limit: float | None) -> bool:
    """Read messages until the child has ended (True) or its time is up (False)."""
    os.set_blocking(reader, False)
    deadline = None if limit is None else time.monotonic() + limit
    gone = silent = False
    while True:
        if silent:
            time.sleep(0 if gone else 0.001)
        elif select.select([reader], [], [], 0 if gone else 0.25)[0]:
            chunk = os.read(reader, 1 << 16)
            frames.feed(chunk)
            silent = not chunk
            continue
        if gone:
            # A grandchild may hold the pipe open; what the child had to say is read.
            frames.end()
            return True
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            ended.status = status
            gone = True
        elif deadline is not None and time.monotonic() >= deadline:
            ended.timed_out = True
            return False
