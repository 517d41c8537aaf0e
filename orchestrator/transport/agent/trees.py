"""Immutable trees in the store: ``<store>/trees/<hash>/`` is whole or absent, and never changes.

A tree is received into a folder beside its place, every file is checked against the manifest,
and one rename makes it visible. Content that another tree in the store already has is copied from
there instead of sent. A job holds a shared lock on its tree; collecting takes it exclusively.
Files are writable as they were pushed, since what a job may do should not depend on whether it is
root; whether it changed any is seen before and after it.
"""

import errno
import fcntl
import hashlib
import json
import os
import stat
import time
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from .content import ContentReader, place
from .files import (
    AgentError,
    Entry,
    entries_from_json,
    explain_os_error,
    make_folders,
    open_regular,
    portable,
    remove_quietly,
    sha256_of,
    walk_files,
    write_whole,
)

MANIFEST = ".mxfleet-manifest.json"
STAGE = ".stage-"
YOUNG_STAGE_SECONDS = 10.0


def tree_hash(entries: Sequence[Entry]) -> str:
    """The name of a tree: a hash over its files' paths, modes and contents."""
    digest = hashlib.sha256()
    for entry in sorted(entries, key=lambda e: os.fsencode(e.path)):
        kind = "link" if entry.link is not None else "%o" % entry.mode
        # NUL ends it: a path may hold a line end.
        digest.update(os.fsencode("%s %s %s\0" % (kind, entry.sha256, entry.path)))
    return digest.hexdigest()[:32]


def _row(entry: Entry) -> List[object]:
    link = None if entry.link is None else portable(entry.link)
    return [portable(entry.path), entry.mode, entry.size, entry.sha256, link]


def read_manifest(folder: str) -> Optional[List[Entry]]:
    """The manifest of a tree in the store, None where there is none to be read."""
    try:
        with os.fdopen(open_regular(folder, MANIFEST), "rb") as stream:
            return entries_from_json(json.loads(stream.read().decode("ascii")))
    except (OSError, ValueError, TypeError, AgentError):
        return None


def verify_tree(folder: str, name: str) -> None:
    """Raise unless ``folder`` holds exactly the files that its name stands for."""
    entries = read_manifest(folder)
    if entries is None or tree_hash(entries) != name:
        raise AgentError("no_tree", "the tree %s has no valid manifest" % folder, "push again")
    changed = _first_changed(folder, entries)
    if changed is not None:
        raise AgentError(
            "no_tree", "%s differs from what was pushed" % changed, "push again to repair the tree"
        )
    extra = _extra(folder, entries)
    if extra:
        raise AgentError(
            "no_tree",
            "the tree %s holds a file that was not pushed: %s" % (folder, extra[0]),
            "push again to repair the tree",
        )


def _first_changed(folder: str, entries: Sequence[Entry]) -> Optional[str]:
    for entry in entries:
        path = os.path.join(folder, entry.path)
        if not _is_as_pushed(path, entry):
            return path
    return None


def _is_as_pushed(path: str, entry: Entry) -> bool:
    try:
        if entry.link is not None:
            return os.readlink(path) == entry.link
        there = os.lstat(path)
        return (
            stat.S_ISREG(there.st_mode)
            and stat.S_IMODE(there.st_mode) == entry.mode
            and there.st_size == entry.size
            and sha256_of(path) == entry.sha256
        )
    except OSError:
        return False


def _extra(folder: str, entries: Sequence[Entry]) -> List[str]:
    names = {entry.path for entry in entries} | {MANIFEST}
    return [path for path in walk_files(folder) if path not in names]


class TreeStore(object):
    """The trees below ``<store>/trees``."""

    def __init__(self, store: str) -> None:
        self.root = os.path.join(store, "trees")

    def folder(self, name: str) -> str:
        if len(name) != 32 or any(c not in "0123456789abcdef" for c in name):
            raise AgentError("protocol", "not a tree's name: %r" % name)
        return os.path.join(self.root, name)

    def present(self, name: str) -> bool:
        """Whether the tree lies here whole."""
        folder = self.folder(name)
        if not os.path.isdir(folder):
            return False
        try:
            verify_tree(folder, name)
        except AgentError:
            return False
        return True

    def lock(self, name: str) -> int:
        """Mark a tree as used and lock it against removal; close the handle to unlock it."""
        make_folders(self.root)
        stamp = self.folder(name) + ".lock"
        while True:
            handle = os.open(stamp, os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.flock(handle, fcntl.LOCK_SH)
            try:
                same = os.path.samestat(os.fstat(handle), os.stat(stamp))
            except OSError:
                same = False
            if same:
                os.utime(stamp, None)
                return handle
            os.close(handle)  # it was collected while we waited

    def _lock_alone(self, name: str) -> Optional[int]:
        """Lock a tree that nobody uses; None when somebody does."""
        handle = os.open(self.folder(name) + ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return None
        return handle

    def settle(self, name: str, lock: int, to: str) -> Tuple[Optional[str], List[str]]:
        """After a job: see what it did to its tree, and make the next one find it as pushed.

        ``lock`` is the caller's; the last job in the tree moves what jobs left there to the folder
        ``to``, and a tree with a changed file away altogether. Returns the first path that
        changed (None: as it should be), and what was moved.
        """
        folder = self.folder(name)
        entries = read_manifest(folder)
        if entries is None or tree_hash(entries) != name:
            entries = None
        changed = _first_changed(folder, entries) if entries else os.path.join(folder, MANIFEST)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return changed, []
        extra = _extra(folder, entries) if entries else []
        for path in extra:
            target = os.path.join(to, path)
            make_folders(os.path.dirname(target))
            os.rename(os.path.join(folder, path), target)
        if changed is not None:
            self._discard(folder)
        return changed, extra

    def missing(self, entries: Sequence[Entry]) -> List[int]:
        """Indices of the entries whose content has to be sent."""
        known = self._known_content()
        seen = set()
        result = []
        for index, entry in enumerate(entries):
            if entry.link is None and entry.sha256 not in known and entry.sha256 not in seen:
                seen.add(entry.sha256)
                result.append(index)
        return result

    def receive(
        self, name: str, entries: Sequence[Entry], sent: Sequence[int], read: Callable[[], bytes]
    ) -> str:
        """Lay a tree out from sent and known content; return its folder."""
        if tree_hash(entries) != name:
            raise AgentError("protocol", "the manifest does not belong to the tree %s" % name)
        folder = self.folder(name)
        stage = os.path.join(self.root, "%s%d-%d" % (STAGE, os.getpid(), time.time() * 1e6))
        handle: Optional[int] = None
        try:
            make_folders(self.root)
            os.mkdir(stage)
            os.chmod(stage, 0o755)
            # Held while we live: what is found unlocked was left by a push that died.
            handle = os.open(stage, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._fill(stage, entries, sent, ContentReader(read))
            listing = json.dumps([_row(entry) for entry in entries])
            write_whole(os.path.join(stage, MANIFEST), listing.encode("ascii"))
            self._publish(stage, name)
            os.close(self.lock(name))
        except OSError as error:
            raise explain_os_error(error, "receiving the tree into %s" % self.root)
        finally:
            remove_quietly(stage)
            if handle is not None:
                os.close(handle)
        return folder

    def _publish(self, stage: str, name: str) -> None:
        folder = self.folder(name)
        for _ in range(3):
            try:
                os.rename(stage, folder)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            if self.present(name):
                return  # somebody else pushed the same tree meanwhile: theirs is as good as ours
            self._remove(name, "a job runs in the damaged tree %s" % folder)
        raise AgentError("busy", "the tree %s changes all the time" % folder, "push again")

    def _remove(self, name: str, in_use: str) -> None:
        handle = self._lock_alone(name)
        if handle is None:
            raise AgentError("busy", in_use, "wait for it to end, then push again")
        try:
            self._discard(self.folder(name))
        finally:
            os.close(handle)

    def _fill(
        self, stage: str, entries: Sequence[Entry], sent: Sequence[int], content: ContentReader
    ) -> None:
        have: Dict[str, str] = {}
        for index in sent:
            entry = entries[index]
            place(stage, entry, content.take(entry.size))
            have[entry.sha256] = os.path.join(stage, entry.path)
        known = self._known_content()
        coming = set(sent)
        for index, entry in enumerate(entries):
            if index in coming:
                continue
            if entry.link is not None:
                place(stage, entry, iter(()))
                continue
            source = have.get(entry.sha256) or known.get(entry.sha256)
            if source is None:
                raise AgentError("interrupted", "%s was neither sent nor here" % entry.path)
            # A copy, not a hard link: an edit of one tree must never reach another.
            with open(source, "rb") as stream:
                place(stage, entry, iter(lambda s=stream: s.read(1 << 16), b""))  # type: ignore[misc]

    def _known_content(self) -> Dict[str, str]:
        """Content hash to a file that had it when it was pushed; ``place`` checks it again."""
        known = {}
        for name, _ in self._by_use()[:4]:
            folder = os.path.join(self.root, name)
            for entry in read_manifest(folder) or ():
                path = os.path.join(folder, entry.path)
                if entry.link is None and self._same_size(path, entry.size):
                    known[entry.sha256] = path
        return known

    @staticmethod
    def _same_size(path: str, size: int) -> bool:
        try:
            there = os.lstat(path)
            return stat.S_ISREG(there.st_mode) and there.st_size == size
        except OSError:
            return False

    def _by_use(self) -> List[Tuple[str, float]]:
        """Trees with the time of their last use, the latest first."""
        found = []
        for name in os.listdir(self.root) if os.path.isdir(self.root) else ():
            if len(name) == 32 and os.path.isdir(os.path.join(self.root, name)):
                stamp = os.path.join(self.root, name + ".lock")
                try:
                    found.append((name, os.path.getmtime(stamp)))
                except OSError:
                    found.append((name, 0.0))
        return sorted(found, key=lambda item: (-item[1], item[0]))

    def _discard(self, folder: str) -> None:
        # Renamed first, so that nobody meets a half-removed tree under its name.
        aside = os.path.join(self.root, "%sgone-%d-%d" % (STAGE, os.getpid(), time.time() * 1e6))
        try:
            os.rename(folder, aside)
        except FileNotFoundError:
            return
        remove_quietly(aside)

    def collect(self, keep: int, days: float, keep_name: Optional[str]) -> List[str]:
        """Remove trees beyond the ``keep`` last used that were not used for ``days`` days.

        A tree that a job has locked stays, and so does ``keep_name``. Returns what went.
        """
        now = time.time()
        gone = []
        for name, used in self._by_use()[keep:]:
            if name == keep_name or now - used < days * 86400.0:
                continue
            handle = self._lock_alone(name)
            if handle is None:
                continue
            try:
                self._discard(self.folder(name))
                remove_quietly(self.folder(name) + ".lock")
                gone.append(name)
            finally:
                os.close(handle)
        for name in os.listdir(self.root) if os.path.isdir(self.root) else ():
            path = os.path.join(self.root, name)
            if name.startswith(STAGE) and self._is_left_over(path):
                remove_quietly(path)
        return gone

    @staticmethod
    def _is_left_over(stage: str) -> bool:
        """Whether the push that filled ``stage`` is dead."""
        try:
            if time.time() - os.lstat(stage).st_mtime < YOUNG_STAGE_SECONDS:
                return False  # perhaps not locked yet
            handle = os.open(stage, os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(handle)
        return True
