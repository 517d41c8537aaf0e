"""Files that several processes change: one lock beside each, and replacement as a whole or not.

A reader needs no lock: it sees the file as it was or as it is. The lock file stays for good, since
removing it would let two processes hold "the" lock on two different files of one name.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.errors import TreeError


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of ``path`` (``.NAME.lock`` beside it), waiting for other holders.

    The folder is made when it is missing. Raises ``TreeError`` when the lock cannot be made.
    """
    path = path.resolve()
    lock = path.with_name(f".{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Read-only and open to the umask: another user of the folder has to be able to lock too;
        # a FIFO in its place is not waited for.
        handle = os.open(lock, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except OSError as error:
        raise _unwritable(lock, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def read_bytes(path: Path) -> bytes | None:
    """The content of ``path``, None when there is no such file; ``TreeError`` when unreadable."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TreeError(f"cannot read it: {error.strerror}", where=str(path)) from error


def replace(path: Path, data: bytes) -> None:
    """Make ``data`` the content of ``path``, on disk, in one step; call it under ``locked``.

    Permission bits and, where allowed, the owner stay; a symlink keeps pointing at the changed
    file. Raises ``TreeError`` when it cannot be written (disk full); the old content then stays.
    """
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "wb") as stream:
            _like(path, handle)
            stream.write(data)
            stream.flush()
            os.fsync(handle)
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _like(path: Path, handle: int) -> None:
    try:
        old = path.stat()
    except FileNotFoundError:
        return
    with suppress(PermissionError):  # only root gives files away
        os.fchown(handle, old.st_uid, old.st_gid)
    os.fchmod(handle, old.st_mode & 0o7777)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritable(path: Path, error: OSError) -> TreeError:
    return TreeError(
        f"cannot write it, its old content is as it was: {error.strerror or error}",
        where=str(path),
        hint="make room or give write permission there, then do it again",
    )
