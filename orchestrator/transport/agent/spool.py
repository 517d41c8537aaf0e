"""A job's output on disk: written first, streamed from there, so that the link never holds it up.

The spool is a sequence of chunks: a header (stream 1 or 2, length) and the bytes as they came.
"""

import os
import struct
import threading
from typing import Iterator, Optional, Tuple

from .files import remove_quietly
from .wire import CHUNK

CHUNK_HEADER = struct.Struct(">BI")
DAMAGED = b"\nmxfleet: something wrote into this output; it is shown as it is from here on\n"


class Spool(object):
    """Append-only output file with one writer thread and any number of readers."""

    def __init__(self, path: str) -> None:
        # Read through the same descriptor: the name is in a folder that the job can write to.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL
        self._stream = os.fdopen(os.open(path, flags, 0o644), "a+b", buffering=0)
        self._changed = threading.Condition()
        self.size = 0
        self.closed = False
        self.failed: Optional[OSError] = None

    def append(self, stream: int, data: bytes) -> None:
        """Write one chunk; after the first failure (a full disk) output is dropped, and said so."""
        chunk = CHUNK_HEADER.pack(stream, len(data)) + data
        with self._changed:
            if self.failed is None:
                try:
                    view = memoryview(chunk)
                    while view:
                        view = view[self._stream.write(view) :]
                    self.size += len(chunk)
                except OSError as error:
                    self.failed = error
                    # Half a chunk would make the rest unreadable.
                    os.ftruncate(self._stream.fileno(), self.size)
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._stream.close()
            self._changed.notify_all()

    def keep_as(self, path: str) -> Optional[str]:
        """Make sure that ``path`` is this spool: the job may have removed or replaced it.

        Returns what the job took from it in another way, None for nothing.
        """
        ours = self._stream.fileno()
        there = os.fstat(ours).st_size
        cut = "its output was cut by %d bytes" % (self.size - there) if there < self.size else None
        try:
            if os.path.samestat(os.lstat(path), os.fstat(ours)):
                return cut
        except OSError:
            pass
        remove_quietly(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(os.open(path, flags, 0o644), "wb") as stream:
            for offset in range(0, there, CHUNK):
                stream.write(os.pread(ours, CHUNK, offset))
        return cut

    def follow(self) -> Iterator[bytes]:
        """All parts of the spool until it is closed and read up. Call it before ``close``."""
        return self._read(os.dup(self._stream.fileno()))

    def _read(self, handle: int) -> Iterator[bytes]:
        offset = 0
        try:
            while True:
                with self._changed:
                    while offset >= self.size and not self.closed:
                        self._changed.wait(1.0)
                    available = self.size - offset
                if available <= 0:
                    return
                data = os.pread(handle, min(available, CHUNK), offset)
                if not data:
                    return  # the job cut it
                offset += len(data)
                yield data
        finally:
            os.close(handle)


class SpoolParser(object):
    """Cuts the spool's bytes, in pieces of any size, back into (stream, bytes).

    A job can reach its spool and write into it: from what is no chunk on, everything is passed on
    as it is, as standard error.
    """

    def __init__(self) -> None:
        self._buffer = b""
        self._stream = 0
        self._missing = 0
        self._damaged = False

    def feed(self, data: bytes) -> Iterator[Tuple[int, bytes]]:
        self._buffer += data
        buffer, at = self._buffer, 0
        while at < len(buffer) and not self._damaged:
            if not self._missing:
                if len(buffer) - at < CHUNK_HEADER.size:
                    break
                self._stream, self._missing = CHUNK_HEADER.unpack_from(buffer, at)
                if self._stream not in (1, 2) or self._missing > CHUNK:
                    self._damaged = True
                    yield 2, DAMAGED
                    break
                at += CHUNK_HEADER.size
                continue
            piece = buffer[at : at + self._missing]
            at += len(piece)
            self._missing -= len(piece)
            yield self._stream, piece
        if self._damaged and buffer[at:]:
            yield 2, buffer[at:]
            at = len(buffer)
        self._buffer = buffer[at:]
