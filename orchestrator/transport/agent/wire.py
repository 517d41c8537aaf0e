"""Frames on the pipe between controller and agent, the same on both sides.

A frame is a header (kind, request id, payload length) and its payload. ``J`` carries a JSON
object, ``D`` bytes, ``E`` marks the end of a request's bytes, ``H`` is a heartbeat. Before the
first frame the agent writes a start mark with the controller's nonce; whatever a login shell
printed before it is noise.
"""

import collections
import json
import struct
import threading
import time
from typing import Any, BinaryIO, Callable, Deque, Dict, NamedTuple, Optional

HEADER = struct.Struct(">cII")
MAX_PAYLOAD = 16 * 1024 * 1024
CHUNK = 64 * 1024
HEARTBEAT_SECONDS = 2.0
INBOX_FRAMES = 256  # 16 MiB of bytes at most


class WireError(Exception):
    """The bytes on the pipe are not frames."""


class Frame(NamedTuple):
    """One frame: ``kind`` is ``J``, ``D``, ``E`` or ``H``."""

    kind: str
    request: int
    payload: bytes

    def json(self) -> Dict[str, Any]:
        try:
            value = json.loads(self.payload.decode("utf-8"))
        except ValueError:
            raise WireError("a control frame is not JSON")
        if not isinstance(value, dict):
            raise WireError("a control frame is not a JSON object")
        return value


def start_mark(nonce: str) -> bytes:
    """The bytes that separate a login shell's noise from the first frame."""
    return b"\x00mxfleet-agent:" + nonce.encode("ascii") + b"\x00\n"


def read_exactly(read: Callable[[int], bytes], size: int) -> Optional[bytes]:
    """Read ``size`` bytes; None at a clean end of file, ``WireError`` in the middle."""
    parts = []
    missing = size
    while missing:
        part = read(min(missing, 1 << 20))
        if not part:
            if missing == size:
                return None
            raise WireError("the pipe ended in the middle of a frame")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def read_frame(read: Callable[[int], bytes]) -> Optional[Frame]:
    """Read the next frame; None at the end of the pipe."""
    header = read_exactly(read, HEADER.size)
    if header is None:
        return None
    kind, request, length = HEADER.unpack(header)
    if kind not in (b"J", b"D", b"E", b"H") or length > MAX_PAYLOAD:
        raise WireError("the pipe carries something that is not a frame")
    payload = read_exactly(read, length) if length else b""
    if payload is None:
        raise WireError("the pipe ended in the middle of a frame")
    return Frame(kind.decode("ascii"), request, payload)


class FrameWriter(object):
    """Writes whole frames from any thread, and heartbeats when nothing else was written."""

    def __init__(self, write: Callable[[bytes], Any]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._last_write = time.monotonic()

    def raw(self, data: bytes) -> None:
        """Write bytes that are no frame: the start mark, before the first one."""
        with self._lock:
            self._write(data)

    def frame(self, kind: str, request: int, payload: bytes = b"") -> None:
        """Write one frame. Raises ``WireError`` when the other side would refuse its size."""
        if len(payload) > MAX_PAYLOAD:
            raise WireError("a message of %d bytes is too large to send" % len(payload))
        header = HEADER.pack(kind.encode("ascii"), request, len(payload))
        with self._lock:
            self._write(header + payload)
            self._last_write = time.monotonic()

    def json(self, request: int, message: Dict[str, Any]) -> None:
        # ensure_ascii keeps names that are not UTF-8 (lone surrogates) intact.
        self.frame("J", request, json.dumps(message, separators=(",", ":")).encode("ascii"))

    def data(self, request: int, data: bytes) -> None:
        for start in range(0, len(data), CHUNK):
            self.frame("D", request, data[start : start + CHUNK])

    def end(self, request: int) -> None:
        self.frame("E", request)

    def heartbeat_if_idle(self, interval: float) -> None:
        """Write a heartbeat unless something was written within ``interval`` seconds.

        A writer that is blocked holds the lock: then the pipe is not idle either.
        """
        if time.monotonic() - self._last_write >= interval and self._lock.acquire(False):
            try:
                self._write(HEADER.pack(b"H", 0, 0))
                self._last_write = time.monotonic()
            finally:
                self._lock.release()


class Inbox(object):
    """What came for one request, bounded: a reader that is too slow slows the sender down.

    Without the bound a fast sender would fill the memory. Whoever fills it is the pipe's only
    reader, so it gets to run ``meanwhile`` every moment that it has to wait (heartbeats).
    """

    def __init__(self, limit: int = INBOX_FRAMES) -> None:
        self._items: Deque[Frame] = collections.deque()
        self._changed = threading.Condition()
        self._limit = limit
        self._closed = False

    def put(self, frame: Frame, meanwhile: Callable[[], None]) -> None:
        """Append, waiting while the inbox is full; dropped once it is closed."""
        while True:
            with self._changed:
                if len(self._items) >= self._limit and not self._closed:
                    self._changed.wait(0.2)
                if self._closed:
                    return
                if len(self._items) < self._limit:
                    self._items.append(frame)
                    self._changed.notify_all()
                    return
            meanwhile()

    def close(self) -> None:
        """Nothing more comes, or nobody reads any more; what is there can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def get(self, timeout: Optional[float] = None) -> Optional[Frame]:
        """The next frame. None when it is closed and empty; ``TimeoutError`` after ``timeout``."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._items or self._closed, timeout):
                raise TimeoutError("no frame came")
            if not self._items:
                return None
            self._changed.notify_all()
            return self._items.popleft()


def beat(lease: float) -> float:
    """Seconds between heartbeats for a link that is dead after ``lease`` seconds of silence."""
    return min(HEARTBEAT_SECONDS, lease / 5.0)


def file_writer(stream: BinaryIO) -> Callable[[bytes], None]:
    """A write function that flushes, for ``FrameWriter``."""

    def write(data: bytes) -> None:
        stream.write(data)
        stream.flush()

    return write
