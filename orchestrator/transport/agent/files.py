"""Files on the target: hashing, safe names, whole-file writes, and who owns what is written."""

import binascii
import errno
import os
import stat
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from .wire import CHUNK


class AgentError(Exception):
    """Something the controller should tell the user; ``kind`` selects how it is reported."""

    def __init__(self, kind: str, message: str, hint: Optional[str] = None) -> None:
        super(AgentError, self).__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint


class Entry(NamedTuple):
    """A file or symbolic link of a tree; ``path`` is relative with forward slashes."""

    path: str
    mode: int  # 0o644 or 0o755
    size: int
    sha256: str  # of the content; of the link's destination for a link
    link: Optional[str]

    @classmethod
    def from_json(cls, value: Any) -> "Entry":
        entry = cls(*native(value))
        check_relative(entry.path)
        return entry


def native(value: Any) -> Any:
    """Text that came over the pipe as this Python passes it to the system, also within lists.

    The pipe carries names as UTF-8 has them. A Python without UTF-8 as its file system encoding
    (3.6 in the C locale, as in many containers) would encode them otherwise, or not at all.
    """
    if isinstance(value, str):
        return os.fsdecode(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, list):
        return [native(item) for item in value]
    if isinstance(value, dict):
        return {native(key): native(item) for key, item in value.items()}
    return value


def portable(name: str) -> str:
    """A file's name as the pipe carries it: the reverse of ``native``."""
    return os.fsencode(name).decode("utf-8", "surrogateescape")


def entries_from_json(rows: Any) -> List[Entry]:
    """Read a manifest; each path once, and none below another that is a file or a link."""
    entries = [Entry.from_json(row) for row in rows]
    paths = {entry.path for entry in entries}
    if len(paths) != len(entries):
        raise AgentError("protocol", "the manifest names a path twice")
    for path in paths:
        parts = path.split("/")
        for count in range(1, len(parts)):
            if "/".join(parts[:count]) in paths:
                raise AgentError("protocol", "unsafe path %r: it lies below a file" % path)
    return entries


def check_relative(path: str) -> str:
    """Return ``path`` if it stays below the folder it is relative to, else raise."""
    parts = path.split("/")
    if not path or path.startswith("/") or "\0" in path or any(p in ("", ".", "..") for p in parts):
        raise AgentError("protocol", "unsafe path %r" % path)
    return path


def sha256_of(path: str) -> str:
    """Hash a file's content."""
    import hashlib

    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for chunk in iter(lambda: stream.read(CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


def open_regular(folder: str, name: str) -> int:
    """Open an ordinary file below ``folder`` for reading; return its descriptor.

    For folders that somebody else may have filled: no link is followed, neither ``folder`` itself
    nor on the way, and a pipe or a device is not waited for. Raises ``OSError``, with a text for
    people, also for what is no ordinary file.
    """
    parts = check_relative(name).split("/")
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for at, part in enumerate(parts):
            last = at == len(parts) - 1
            kind = os.O_NONBLOCK | os.O_NOCTTY if last else os.O_DIRECTORY
            there = os.stat(part, dir_fd=handle, follow_symlinks=False)
            if stat.S_ISLNK(there.st_mode):
                raise OSError(errno.ELOOP, "it is a symbolic link", name)
            if last and not stat.S_ISREG(there.st_mode):
                raise OSError(errno.EINVAL, "it is not an ordinary file", name)
            opened = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | kind, dir_fd=handle)
            os.close(handle)
            handle = opened
        # Again: it may have been replaced between the two calls.
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is not an ordinary file", name)
        return handle
    except BaseException:
        os.close(handle)
        raise


def explain_os_error(error: OSError, doing: str) -> AgentError:
    """Turn an operating system error into one sentence with a way out."""
    path = error.filename or ""
    if isinstance(path, bytes):
        path = path.decode("utf-8", "replace")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return AgentError(
            "disk_full",
            "no space left while %s%s" % (doing, " at " + path if path else ""),
            "free some space or set another `store` in the inventory",
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return AgentError(
            "permission",
            "%s while %s at %s" % (os.strerror(error.errno or 0), doing, path),
            "check the owner of that folder, `docker_user`, or set another `store`",
        )
    return AgentError("os", "%s failed: %s" % (doing, error))


def like_folder(path: str, folder: str) -> None:
    """Give ``path`` the owner and group of ``folder``, as far as we may.

    A container's root writes into folders that an ordinary user of the host owns; what it leaves
    there has to stay that user's. Anybody else hands on the group of a set-group-id folder, which
    a file that is moved into it does not get by itself.
    """
    there = os.lstat(folder)
    if os.geteuid() == 0:
        os.chown(path, there.st_uid, there.st_gid, follow_symlinks=False)
    elif there.st_mode & stat.S_ISGID:
        try:
            os.chown(path, -1, there.st_gid, follow_symlinks=False)
        except PermissionError:
            pass  # not a member of that group


def write_whole(path: str, data: bytes, mode: int = 0o644) -> None:
    """Write a file so that it is seen whole or not at all."""
    # A name that nobody can have taken before us.
    temporary = "%s.%s.tmp" % (path, binascii.hexlify(os.urandom(8)).decode("ascii"))
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError:
        remove_quietly(temporary)
        raise


def remove_quietly(path: str) -> None:
    """Remove a file or a folder tree, whatever is left of it."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            import shutil

            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    except OSError:
        pass


def make_folders(path: str) -> None:
    """Create a folder and its parents, 0755 whatever the umask."""
    if not os.path.isdir(path):
        make_folders(os.path.dirname(path))
        try:
            os.mkdir(path)
            os.chmod(path, 0o755)
        except OSError as error:
            if error.errno != errno.EEXIST or not os.path.isdir(path):
                raise


def private_store(path: Optional[str], in_container: bool, make: bool = True) -> str:
    """Return the folder that keeps trees and jobs, made if needed and ours alone to write.

    With ``make`` false one that is not there is left so: a question changes nothing.

    The default lies in the login's home, in a container in its /tmp. A folder that somebody else
    owns or can write to is refused: they could swap what we run. A group may write to it only if
    it is the user's private one, which has the user's name and no other member (where that is the
    custom, the umask lets it write).
    """
    if path is None:
        base = "/tmp" if in_container else os.path.expanduser("~")
        name = "mxfleet-%d" % os.geteuid() if in_container else ".mxfleet"
        path = os.path.join(base, name)
    path = os.path.expanduser(path)
    if not os.path.isabs(path):
        raise AgentError(
            "permission", "the store %s is not an absolute path" % path, "write it as /path/to/it"
        )
    if not make and not os.path.lexists(path):
        return os.path.realpath(path)
    try:
        make_folders(path)
        # Of a link both ends count: who owns the link can point it elsewhere.
        owners = {os.lstat(path).st_uid, os.stat(path).st_uid}
        mode = os.stat(path).st_mode
    except OSError as error:
        raise explain_os_error(error, "making the store %s" % path)
    if not owners <= {os.geteuid(), 0} or mode & 0o002:
        raise AgentError(
            "permission",
            "the store %s belongs to another user or is writable for everybody" % path,
            "set `store` in the inventory to a folder of your own",
        )
    if mode & stat.S_IWGRP and not _is_private_group(os.stat(path).st_gid):
        raise AgentError(
            "permission",
            "the store %s is writable for a group" % path,
            "chmod g-w it, or set `store` in the inventory to a folder of your own",
        )
    if not os.access(path, os.W_OK | os.X_OK):
        raise AgentError(
            "permission", "the store %s cannot be written" % path, "set `store` in the inventory"
        )
    return os.path.realpath(path)


def _is_private_group(gid: int) -> bool:
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return (
        gid == user.pw_gid
        and group.gr_name == user.pw_name
        and not set(group.gr_mem) - {user.pw_name}
    )


def find_program(name: str, search: str) -> Optional[str]:
    """The first program of that name in the folders of ``search``, as PATH lists them."""
    for folder in search.split(os.pathsep):
        path = os.path.join(folder, name)
        if folder and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def walk_files(root: str) -> Iterator[str]:
    """Yield the paths of all files and links below ``root``, relative, sorted."""
    for folder, folders, names in os.walk(root):
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in sorted(names + links):
            yield os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")


def disk_of(path: str) -> Dict[str, int]:
    """Free and total bytes, and free inodes, of the file system that holds ``path``."""
    found = os.statvfs(path)
    return {
        "free": found.f_bavail * found.f_frsize,
        "total": found.f_blocks * found.f_frsize,
        "free_inodes": found.f_favail,
    }
