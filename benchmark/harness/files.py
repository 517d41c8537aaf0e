"""Open files of results such that nothing put in their place is written to or waited for.

A runner is foreign code with the rights of the user: it can leave a link to a system file, or a
FIFO without a reader, where the next record or row goes.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

from harness.errors import ForeignFileError

# What O_NOFOLLOW says of a link, and O_NONBLOCK of a FIFO without a reader or of a socket.
_NO_FILE = {errno.ELOOP: "a link", errno.ENXIO: "a FIFO, a socket or a device"}


def open_regular(path: Path, flags: int, mode: int = 0o644) -> int:
    """Open ``path`` like ``os.open``; the descriptor is of a regular file and close-on-exec.

    Never follows a link at the end of ``path`` and never blocks. Raises ``ForeignFileError`` when
    something else than a regular file lies there, ``OSError`` as ``os.open`` does.
    """
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise _foreign(path, _NO_FILE[error.errno]) from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _foreign(path, "no regular file")
    return handle


def read_regular(path: Path) -> bytes:
    """The content of ``path``; raises as ``open_regular``."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        return file.read()


def real(path: Path) -> Path:
    """``path`` absolute and without links; a loop of links stays one and is refused on opening."""
    return Path(os.path.realpath(path))


def replace(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path`` in one step, its mode kept; ``OSError`` leaves the old file."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, path.stat().st_mode & 0o7777 if path.exists() else 0o644)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _foreign(path: Path, what: str) -> ForeignFileError:
    return ForeignFileError(
        f"{path}: is {what}, so nothing is read or written there; remove it or name another file"
    )
