"""A job's output on disk: written first, streamed from there, so that the link never holds it up.

The spool is a sequence of chunks: a header (stream 1 or 2, length) and the bytes as they came.
A reader can start at any chunk's offset, which is how a lost connection catches up.
"""

import os
import struct
import threading
from typing import Iterator, Optional, Tuple

from .wire import CHUNK

CHUNK_HEADER = struct.Struct(">BI")


class Spool(object):
    """Append-only output file with one writer thread and any number of readers."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._stream = open(path, "ab", buffering=0)
        self._changed = threading.Condition()
        self.size = os.path.getsize(path)
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

    def follow(self, offset: int) -> Iterator[bytes]:
        """Yield whole parts of the spool from ``offset`` until it is closed and read up."""
        with open(self.path, "rb") as reader:
            reader.seek(offset)
            while True:
                with self._changed:
                    while offset >= self.size and not self.closed:
                        self._changed.wait(1.0)
                    available = self.size - offset
                if available <= 0:
                    return
                data = reader.read(min(available, CHUNK))
                if not data:
                    return
                offset += len(data)
                yield data


class SpoolParser(object):
    """Cuts the spool's bytes, in pieces of any size, back into (stream, bytes)."""

    def __init__(self) -> None:
        self._buffer = b""
        self._stream = 0
        self._missing = 0

    def feed(self, data: bytes) -> Iterator[Tuple[int, bytes]]:
        self._buffer += data
        buffer, at = self._buffer, 0
        while at < len(buffer):
            if not self._missing:
                if len(buffer) - at < CHUNK_HEADER.size:
                    break
                self._stream, self._missing = CHUNK_HEADER.unpack_from(buffer, at)
                at += CHUNK_HEADER.size
                continue
            piece = buffer[at : at + self._missing]
            at += len(piece)
            self._missing -= len(piece)
            yield self._stream, piece
        self._buffer = buffer[at:]
