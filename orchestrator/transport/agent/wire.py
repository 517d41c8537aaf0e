"""Frames on the pipe between controller and agent, the same on both sides.

A frame is a header (kind, request id, payload length) and its payload. ``J`` carries a JSON
object, ``D`` bytes, ``E`` marks the end of a request's bytes, ``H`` is a heartbeat. Before the
first frame the agent writes a start mark with the controller's nonce; whatever a login shell
printed before it is noise.
"""

import json
import struct
import threading
import time
from typing import Any, BinaryIO, Callable, Dict, NamedTuple, Optional

HEADER = struct.Struct(">cII")
MAX_PAYLOAD = 16 * 1024 * 1024
CHUNK = 64 * 1024
HEARTBEAT_SECONDS = 2.0


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
        self.last_write = time.monotonic()

    def frame(self, kind: str, request: int, payload: bytes = b"") -> None:
        header = HEADER.pack(kind.encode("ascii"), request, len(payload))
        with self._lock:
            self._write(header + payload)
            self.last_write = time.monotonic()

    def json(self, request: int, message: Dict[str, Any]) -> None:
        # ensure_ascii keeps names that are not UTF-8 (lone surrogates) intact.
        self.frame("J", request, json.dumps(message, separators=(",", ":")).encode("ascii"))

    def data(self, request: int, data: bytes) -> None:
        for start in range(0, len(data), CHUNK):
            self.frame("D", request, data[start : start + CHUNK])

    def end(self, request: int) -> None:
        self.frame("E", request)

    def heartbeat_if_idle(self) -> None:
        # A writer that is blocked holds the lock: then the pipe is not idle either.
        if time.monotonic() - self.last_write >= HEARTBEAT_SECONDS and self._lock.acquire(False):
            try:
                self._write(HEADER.pack(b"H", 0, 0))
                self.last_write = time.monotonic()
            finally:
                self._lock.release()


def file_writer(stream: BinaryIO) -> Callable[[bytes], None]:
    """A write function that flushes, for ``FrameWriter``."""

    def write(data: bytes) -> None:
        stream.write(data)
        stream.flush()

    return write
