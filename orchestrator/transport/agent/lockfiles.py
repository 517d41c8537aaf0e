"""The folder of the device locks: one file a device, shared by all users of a host.

Whoever holds ``flock`` on a device's file has the device. In the file stands a note of the holder:
who, which run and job, in which container. It is taken out only when the job is proven dead, so a
note in a file that nobody holds tells of a job whose agent died. The folder is like /tmp: everybody
may make files in it, so nothing in it is trusted. No link is followed, and a note is read as a hint
at what to look for; no command is ever taken from it.
"""

import errno
import fcntl
import json
import os
import re
import stat
import threading
import time
from typing import Any, Dict, List, Optional

from .files import AgentError
from .jobfolder import JOB_NAME

DEFAULT_FOLDER = "/tmp/mxfleet-locks"
DEVICE_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,120}$")
CONTAINER_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,200}$")
LARGEST_NOTE = 64 * 1024
FRESH_SECONDS = 2.0  # a file that was just made gets its mode a moment later

Note = Dict[str, Any]


class LockFolder(object):
    """The folder, looked at and opened; ``make`` makes it where it is not there.

    All goes through its descriptor: its owner may put a link in its place at any time.
    """

    def __init__(self, path: Optional[str], make: bool = True) -> None:
        self.path = path or DEFAULT_FOLDER
        self._handle: Optional[int] = None
        if not os.path.isabs(self.path):
            raise AgentError("permission", "the lock folder %s is not absolute" % self.path)
        try:
            made = make and self._make()
            self._handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            if made:
                os.fchmod(self._handle, 0o1777)
        except OSError as error:
            raise self._refused(error)
        mode = os.fstat(self._handle).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise AgentError(
                "permission",
                "in the lock folder %s everybody may delete the others' locks" % self.path,
                "chmod 1777 it",
            )

    def __del__(self) -> None:
        if self._handle is not None:
            os.close(self._handle)

    def _refused(self, error: OSError) -> AgentError:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and os.path.lexists(self.path):
            return AgentError(
                "permission",
                "the lock folder %s is a link or no folder" % self.path,
                "remove it, or set `lock_folder` to another one",
            )
        return AgentError(
            "permission",
            "the lock folder %s cannot be used: %s" % (self.path, os.strerror(error.errno or 0)),
            "chmod 1777 it, or set `lock_folder` to a folder that all users of the host may "
            "write to, and that its containers have if the host has no Python",
        )

    def _make(self) -> bool:
        try:
            os.mkdir(self.path, 0o755)
        except FileExistsError:
            return False
        return True

    def shared_with_host(self) -> bool:
        """In a container: whether the folder is of another file system than the container's own."""
        assert self._handle is not None
        return os.fstat(self._handle).st_dev != os.stat("/").st_dev

    def open(self, device: str) -> int:
        """Open a device's file for reading and writing, made for everybody when there is none."""
        if not DEVICE_NAME.match(device):
            raise AgentError("protocol", "not a device's name: %r" % device)
        path = os.path.join(self.path, device)
        began = time.monotonic()
        while True:
            try:
                return self._open(device)
            except OSError as error:
                young = time.monotonic() - began < FRESH_SECONDS
                if error.errno in (errno.ENOENT, errno.EEXIST, errno.EACCES) and young:
                    time.sleep(0.02)  # made or removed by somebody else at this very moment
                    continue
                if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.EMLINK):
                    raise AgentError(
                        "permission",
                        "the lock %s is no ordinary file of its own" % path,
                        "remove it after a look at who put it there",
                    )
                why = os.strerror(error.errno or 0)
                raise AgentError(
                    "permission", "the lock %s cannot be opened: %s" % (path, why), "chmod 666 it"
                )

    def _open(self, device: str) -> int:
        safe = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            # Without O_CREAT: fs.protected_regular refuses it for files of other users.
            handle = os.open(device, safe, dir_fd=self._handle)
        except FileNotFoundError:
            handle = os.open(device, safe | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=self._handle)
            os.fchmod(handle, 0o666)  # whatever the umask
        there = os.fstat(handle)
        if not stat.S_ISREG(there.st_mode) or there.st_nlink > 1:
            os.close(handle)
            # A second name for somebody's file: writing a note would destroy that.
            raise OSError(errno.EMLINK, "not an ordinary file of its own", device)
        return handle

    def is_current(self, device: str, handle: int) -> bool:
        """Whether the file is still the one of that name: cleaners of /tmp remove old ones."""
        try:
            there = os.stat(device, dir_fd=self._handle, follow_symlinks=False)
        except OSError:
            return False
        return os.path.samestat(there, os.fstat(handle))

    def devices(self) -> List[str]:
        """The devices that were ever locked."""
        return sorted(name for name in os.listdir(self._handle) if DEVICE_NAME.match(name))

    def peek(self, device: str) -> Optional[Note]:
        """The note in a device's file, without its lock; None when there is none."""
        try:
            handle = self.open(device)
        except AgentError:
            return None
        try:
            return read_note(handle)
        finally:
            os.close(handle)

    def is_held(self, device: str) -> bool:
        """Whether somebody has the device just now."""
        handle = self.open(device)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(handle)
        return False


class Take(object):
    """One device, waited for in a thread: the kernel lets the longest waiting one go first."""

    def __init__(self, folder: LockFolder, device: str) -> None:
        self.handle: Optional[int] = None
        self.error: Optional[Exception] = None
        self.done = threading.Event()
        self._folder = folder
        self._device = device
        self._given_up = False
        self._lock = threading.Lock()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            while True:
                handle = self._folder.open(self._device)
                fcntl.flock(handle, fcntl.LOCK_EX)
                if self._folder.is_current(self._device, handle):
                    break
                os.close(handle)
            with self._lock:
                if self._given_up:
                    os.close(handle)
                else:
                    self.handle = handle
        except (AgentError, OSError) as error:
            self.error = error
        self.done.set()

    def close(self) -> None:
        """Free the device, or no longer wait for it."""
        with self._lock:
            self._given_up = True
            if self.handle is not None:
                os.close(self.handle)
                self.handle = None


def read_note(handle: int) -> Optional[Note]:
    """The note in a lock file; None when it has none, or what is in it is no note of ours.

    A note is written whole before its job starts, so one that is cut off has no job.
    """
    try:
        note = json.loads(os.pread(handle, LARGEST_NOTE, 0).decode("utf-8"))
    except (ValueError, OSError):
        return None
    if not isinstance(note, dict) or not JOB_NAME.match(str(note.get("job"))):
        return None
    container = note.get("container")
    if container is not None and not CONTAINER_NAME.match(str(container)):
        return None
    return note


def write_note(handle: int, note: Note) -> None:
    """Put a note into a lock file, over one that may be there: at no moment is there none."""
    data = json.dumps(note).encode("ascii")
    whole = data.ljust(min(os.fstat(handle).st_size, LARGEST_NOTE))
    if os.pwrite(handle, whole, 0) != len(whole):
        os.ftruncate(handle, 0)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.ftruncate(handle, len(data))


def clear_note(handle: int) -> None:
    """Take the note out: the job that it tells of is proven dead."""
    os.ftruncate(handle, 0)
