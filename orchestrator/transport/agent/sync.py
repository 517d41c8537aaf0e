"""In-place sync of some folders into an established checkout.

All new content is staged inside the checkout first and checked; only then each file is replaced
by a rename, so that a push that breaks off changes nothing and no reader ever sees half a file.
Files keep their owner and mode, new ones take them from the folder they land in. Stale bytecode
of a replaced module is removed: an edit of the same size and time would go on running it.
"""

import fcntl
import os
import re
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

from .files import (
    AgentError,
    Entry,
    check_relative,
    explain_os_error,
    like_folder,
    portable,
    remove_quietly,
    sha256_of,
    walk_files,
)

STAGE_PREFIX = ".mxfleet-stage-"
LOCK_NAME = ".mxfleet-lock"
LOCK_WAIT_SECONDS = 10.0
_BYTECODE = re.compile(r"\.pyc$")


def lock_checkout(workdir: str, exclusive: bool) -> Optional[int]:
    """Lock a checkout: jobs share it, a push has it alone.

    Raises when the lock is not to be had within a few seconds. Returns None for a job in a
    checkout that we may not write: then nobody can push into it with our rights either.
    """
    path = os.path.join(workdir, LOCK_NAME)
    try:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
            os.fchmod(handle, 0o666)  # whatever the umask: users share a checkout
            like_folder(path, workdir)
        except FileExistsError:
            handle = os.open(path, (os.O_RDWR if exclusive else os.O_RDONLY) | os.O_NOFOLLOW)
    except OSError as error:
        if exclusive:
            raise explain_os_error(error, "locking the checkout")
        return None
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    while True:
        try:
            fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            return handle
        except OSError:
            if time.monotonic() > deadline:
                os.close(handle)
                raise AgentError(
                    "busy",
                    "a %s is using %s" % ("job" if exclusive else "push", workdir),
                    "wait for it to end, then try again",
                )
            time.sleep(0.1)


def check_checkout(workdir: str, folders: Sequence[str]) -> None:
    """Raise unless ``workdir`` is a folder that holds each of ``folders``."""
    if not os.path.isdir(workdir):
        raise AgentError(
            "workdir",
            "the workdir %s does not exist here" % workdir,
            "set `workdir` to the benchmark/ folder of the checkout as the container sees it",
        )
    for folder in folders:
        if not os.path.isdir(os.path.join(workdir, check_relative(folder))):
            raise AgentError(
                "workdir",
                "the workdir %s has no %s/" % (workdir, folder),
                "set `workdir` to the benchmark/ folder of an established checkout",
            )


def compare(
    workdir: str, folders: Sequence[str], entries: Sequence[Entry], extra: Sequence[str]
) -> Dict[str, Any]:
    """Say which entries differ from what lies in ``workdir``, and which files only it has.

    ``extra`` names single files (the front door) whose text the controller wants to see.
    """
    check_checkout(workdir, folders)
    changed = [i for i, entry in enumerate(entries) if not _same(workdir, entry)]
    names = {entry.path for entry in entries}
    only_there = []
    for folder in folders:
        for path in walk_files(os.path.join(workdir, folder)):
            full = folder + "/" + path
            if full not in names and "__pycache__" not in full and not _BYTECODE.search(full):
                only_there.append(portable(full))
    texts: Dict[str, Optional[str]] = {}
    for name in extra:
        try:
            with open(os.path.join(workdir, check_relative(name)), "rb") as stream:
                texts[name] = stream.read().decode("utf-8")
        except UnicodeDecodeError:
            raise AgentError("workdir", "%s/%s is not UTF-8 text" % (workdir, name))
        except OSError:
            texts[name] = None
    new = [i for i in changed if not os.path.lexists(os.path.join(workdir, entries[i].path))]
    return {"changed": changed, "new": new, "only_there": only_there, "texts": texts}


def _same(workdir: str, entry: Entry) -> bool:
    path = os.path.join(workdir, entry.path)
    try:
        if entry.link is not None:
            return os.readlink(path) == entry.link
        if os.path.islink(path) or os.path.getsize(path) != entry.size:
            return False
        return sha256_of(path) == entry.sha256
    except OSError:
        return False


def apply(
    workdir: str,
    entries: Sequence[Entry],
    delete: Sequence[str],
    expected: Dict[str, Optional[str]],
    read: Callable[[], bytes],
) -> Dict[str, Any]:
    """Replace ``entries`` (all sent, in order) in ``workdir`` and delete ``delete``.

    ``expected`` maps a path to the hash it must still have (the front door that the controller
    edited); when somebody changed it meanwhile, nothing is done.
    """
    from .content import ContentReader, place

    lock = lock_checkout(workdir, exclusive=True)
    stage = os.path.join(workdir, "%s%d-%d" % (STAGE_PREFIX, os.getpid(), int(time.time() * 1e6)))
    change = _Change(workdir, stage)
    try:
        _remove_stale_stages(workdir)
        content = ContentReader(read)
        new = os.path.join(stage, "new")
        os.makedirs(new)
        like_folder(stage, workdir)
        for entry in entries:
            place(new, entry, content.take(0 if entry.link is not None else entry.size))
        for path, digest in expected.items():
            full = os.path.join(workdir, check_relative(path))
            if not os.path.exists(full) or sha256_of(full) != digest:
                raise AgentError("busy", "%s was changed by somebody else" % full, "push again")
        # Whatever can be refused is refused before anything is touched.
        for entry in entries:
            _check_place(workdir, entry.path)
        for path in delete:
            _inside(workdir, os.path.dirname(os.path.join(workdir, check_relative(path))))
        for entry in entries:
            change.prepare(os.path.join(new, entry.path), entry)
        for entry in entries:
            change.replace(os.path.join(new, entry.path), entry.path)
        for path in delete:
            change.delete(path)
    except OSError as error:
        change.undo()
        raise explain_os_error(error, "syncing into %s" % workdir)
    except AgentError:
        change.undo()
        raise
    finally:
        remove_quietly(stage)
        if lock is not None:
            os.close(lock)
    return {"written": len(entries), "deleted": len(delete)}


def _check_place(workdir: str, path: str) -> None:
    target = os.path.join(workdir, path)
    _inside(workdir, os.path.dirname(target))
    if os.path.islink(target):
        _inside(workdir, target)
    elif os.path.isdir(target):
        raise AgentError("workdir", "%s is a folder here, a file in what is pushed" % target)
    above = os.path.dirname(target)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        raise AgentError("workdir", "%s is a file here, a folder in what is pushed" % above)


class _Change(object):
    """The steps of a sync, each of which can be taken back until all are done."""

    def __init__(self, workdir: str, stage: str) -> None:
        self._workdir = workdir
        self._stage = stage
        self._undo: List[Callable[[], None]] = []

    def prepare(self, source: str, entry: Entry) -> None:
        """Give the new file its owner and mode, and make the folder that it goes into."""
        target = os.path.join(self._workdir, entry.path)
        folder = os.path.dirname(target)
        self._make_folders(folder)
        if entry.link is not None:
            like_folder(source, folder)
            return
        if os.path.exists(target):
            there = os.stat(target)
            if os.geteuid() == 0:
                os.chown(source, there.st_uid, there.st_gid)
            else:
                like_folder(source, folder)
            os.chmod(source, there.st_mode & 0o7777)
        else:
            like_folder(source, folder)
            shared = os.stat(folder).st_mode & 0o020
            os.chmod(source, entry.mode | shared)
        handle = os.open(source, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _make_folders(self, folder: str) -> None:
        if os.path.isdir(folder):
            return
        parent = os.path.dirname(folder)
        self._make_folders(parent)
        os.mkdir(folder)
        self._undo.append(lambda: os.rmdir(folder))
        os.chmod(folder, os.stat(parent).st_mode & 0o7777)
        like_folder(folder, parent)

    def replace(self, source: str, path: str) -> None:
        """Put the new file in its place; nobody ever sees that place empty."""
        target = os.path.join(self._workdir, path)
        if os.path.lexists(target):
            kept = self._kept()
            _second_name(target, kept)
            os.replace(source, target)
            self._undo.append(lambda: os.replace(kept, target))
        else:
            os.rename(source, target)
            self._undo.append(lambda: os.unlink(target))
        _remove_bytecode(target)

    def delete(self, path: str) -> None:
        """Take a file away; one that is gone already is fine."""
        target, kept = os.path.join(self._workdir, path), self._kept()
        try:
            os.rename(target, kept)
        except FileNotFoundError:
            return
        self._undo.append(lambda: os.rename(kept, target))
        _remove_bytecode(target)

    def _kept(self) -> str:
        return os.path.join(self._stage, "kept-%d" % len(self._undo))

    def undo(self) -> None:
        """Take all steps back, the last one first."""
        for step in reversed(self._undo):
            try:
                step()
            except OSError:
                pass  # the error that brought us here says more


def _second_name(path: str, name: str) -> None:
    try:
        os.link(path, name, follow_symlinks=False)
    except OSError:
        # No hard links here, or not to files of others.
        import shutil

        shutil.copy2(path, name, follow_symlinks=False)


def _inside(workdir: str, folder: str) -> None:
    """Raise when ``folder``, or what there is of it, lies outside of ``workdir`` through a link."""
    root = os.path.realpath(workdir)
    if os.path.commonprefix([os.path.realpath(folder) + "/", root + "/"]) != root + "/":
        raise AgentError("workdir", "%s leads out of the workdir %s" % (folder, workdir))


def _remove_bytecode(target: str) -> None:
    folder, name = os.path.split(target)
    if not name.endswith(".py"):
        return
    cache = os.path.join(folder, "__pycache__")
    try:
        names = os.listdir(cache)
    except OSError:
        return
    for stale in names:
        if stale.startswith(name[:-3] + ".") and _BYTECODE.search(stale):
            remove_quietly(os.path.join(cache, stale))


def _remove_stale_stages(workdir: str) -> None:
    stages: List[str] = [name for name in os.listdir(workdir) if name.startswith(STAGE_PREFIX)]
    for name in stages:
        # Under the exclusive lock no other push is at work: what lies here was left by a dead one.
        remove_quietly(os.path.join(workdir, name))
