"""What a push carries: the contents of files, one after the other, as one compressed stream."""

import hashlib
import os
import zlib
from typing import Callable, Iterator

from .files import AgentError, Entry, make_folders
from .wire import CHUNK


class ContentReader(object):
    """Cuts the compressed stream of a request into the contents of the files that were asked."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        self._read = read
        self._inflate = zlib.decompressobj()
        self._buffer = b""

    def take(self, size: int) -> Iterator[bytes]:
        """Yield the next ``size`` bytes in pieces."""
        while size:
            if not self._buffer:
                self._buffer = self._next()
                continue
            piece, self._buffer = self._buffer[:size], self._buffer[size:]
            size -= len(piece)
            yield piece

    def _next(self) -> bytes:
        data = self._inflate.unconsumed_tail or self._read()
        if not data:
            raise AgentError("interrupted", "the push ended before all files had come")
        try:
            # In pieces: a small frame may inflate to very much.
            return self._inflate.decompress(data, 4 * CHUNK)
        except zlib.error as error:
            raise AgentError("protocol", "the push arrived damaged: %s" % error, "push again")


def place(root: str, entry: Entry, pieces: Iterator[bytes]) -> None:
    """Write one entry below ``root`` and check it against its hash."""
    path = os.path.join(root, entry.path)
    make_folders(os.path.dirname(path))
    digest = hashlib.sha256()
    if entry.link is not None:
        digest.update(os.fsencode(entry.link))
        os.symlink(entry.link, path)
    else:
        with open(path, "wb") as stream:
            for piece in pieces:
                digest.update(piece)
                stream.write(piece)
        os.chmod(path, entry.mode)
    if digest.hexdigest() != entry.sha256:
        raise AgentError("protocol", "%s arrived damaged" % entry.path, "push again")
