"""Immutable trees in the store: ``<store>/trees/<hash>/`` is whole or absent, and never changes.

A tree is received into a folder beside its place, every file is checked against the manifest,
and one rename makes it visible. Content that another tree in the store already has is copied from
there instead of sent. A job holds a shared lock on its tree; collecting takes it exclusively.
"""

import fcntl
import hashlib
import json
import os
import time
import zlib
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from .files import (
    AgentError,
    Entry,
    explain_os_error,
    make_folders,
    remove_quietly,
    sha256_of,
    walk_files,
    write_whole,
)

MANIFEST = ".mxfleet-manifest.json"
STALE_STAGING_SECONDS = 3600.0


def tree_hash(entries: Sequence[Entry]) -> str:
    """The name of a tree: a hash over its files' paths, modes and contents."""
    digest = hashlib.sha256()
    for entry in sorted(entries, key=lambda e: e.path.encode("utf-8", "surrogateescape")):
        kind = "link" if entry.link is not None else "%o" % entry.mode
        line = "%s %s %s\n" % (kind, entry.sha256, entry.path)
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:32]


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
                data = self._read()
                if not data:
                    raise AgentError("interrupted", "the push ended before all files had come")
                self._buffer = self._inflate.decompress(data)
                continue
            piece, self._buffer = self._buffer[:size], self._buffer[size:]
            size -= len(piece)
            yield piece


def place(root: str, entry: Entry, pieces: Iterator[bytes]) -> None:
    """Write one entry below ``root`` and check it against its hash."""
    path = os.path.join(root, entry.path)
    make_folders(os.path.dirname(path))
    digest = hashlib.sha256()
    if entry.link is not None:
        digest.update(entry.link.encode("utf-8", "surrogateescape"))
        os.symlink(entry.link, path)
    else:
        with open(path, "wb") as stream:
            for piece in pieces:
                digest.update(piece)
                stream.write(piece)
        os.chmod(path, entry.mode)
    if digest.hexdigest() != entry.sha256:
        raise AgentError("protocol", "%s arrived damaged" % entry.path, "push again")


def read_manifest(folder: str) -> Optional[List[Entry]]:
    """The manifest of a tree in the store, None where there is none to be read."""
    try:
        with open(os.path.join(folder, MANIFEST), "rb") as stream:
            return [Entry.from_json(item) for item in json.loads(stream.read().decode("utf-8"))]
    except (OSError, ValueError, TypeError, AgentError):
        return None


def verify_tree(folder: str, name: str) -> None:
    """Raise unless ``folder`` holds exactly the files that its name stands for."""
    entries = read_manifest(folder)
    if entries is None or tree_hash(entries) != name:
        raise AgentError("damaged", "the tree %s has no valid manifest" % folder, "push again")
    for entry in entries:
        path = os.path.join(folder, entry.path)
        try:
            if entry.link is not None:
                same = os.readlink(path) == entry.link
            else:
                same = os.path.getsize(path) == entry.size and sha256_of(path) == entry.sha256
        except OSError:
            same = False
        if not same:
            raise AgentError(
                "damaged", "%s differs from what was pushed" % path, "push again to repair the tree"
            )
    names = {entry.path for entry in entries} | {MANIFEST}
    extra = [path for path in walk_files(folder) if path not in names]
    if extra:
        raise AgentError(
            "damaged",
            "the tree %s holds a file that was not pushed: %s" % (folder, extra[0]),
            "push again to repair the tree",
        )


class TreeStore(object):
    """The trees below ``<store>/trees``."""

    def __init__(self, store: str) -> None:
        self.root = os.path.join(store, "trees")

    def folder(self, name: str) -> str:
        if len(name) != 32 or any(c not in "0123456789abcdef" for c in name):
            raise AgentError("protocol", "not a tree's name: %r" % name)
        return os.path.join(self.root, name)

    def present(self, name: str) -> bool:
        """Whether the tree lies here whole; a damaged one is set aside."""
        folder = self.folder(name)
        if not os.path.isdir(folder):
            return False
        try:
            verify_tree(folder, name)
        except AgentError:
            self._discard(folder)
            return False
        return True

    def lock(self, name: str, exclusive: bool = False) -> Optional[int]:
        """Lock a tree and return the handle; None when an exclusive lock is not to be had."""
        make_folders(self.root)
        handle = os.open(self.folder(name) + ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
        except OSError:
            os.close(handle)
            return None
        os.utime(self.folder(name) + ".lock", None)
        return handle

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
        make_folders(self.root)
        stage = os.path.join(self.root, ".stage-%s-%d-%d" % (name, os.getpid(), time.time() * 1e6))
        try:
            os.mkdir(stage)
            os.chmod(stage, 0o755)
            self._fill(stage, entries, sent, ContentReader(read))
            listing = json.dumps([list(entry) for entry in entries]).encode("ascii")
            write_whole(os.path.join(stage, MANIFEST), listing)
            try:
                os.rename(stage, folder)
            except OSError:
                # Somebody else pushed the same tree meanwhile: theirs is as good as ours.
                if not self.present(name):
                    raise
        except OSError as error:
            raise explain_os_error(error, "receiving the tree")
        finally:
            remove_quietly(stage)
        return folder

    def _fill(
        self, stage: str, entries: Sequence[Entry], sent: Sequence[int], content: ContentReader
    ) -> None:
        have = {}  # type: Dict[str, str]
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
            return os.path.getsize(path) == size
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
        aside = "%s/.stage-gone-%d-%d" % (self.root, os.getpid(), time.time() * 1e6)
        try:
            os.rename(folder, aside)
        except OSError:
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
            stamp = os.path.join(self.root, name + ".lock")
            handle = self._lock_for_removal(stamp)
            if handle is None:
                continue
            self._discard(os.path.join(self.root, name))
            remove_quietly(stamp)
            os.close(handle)
            gone.append(name)
        for name in os.listdir(self.root) if os.path.isdir(self.root) else ():
            path = os.path.join(self.root, name)
            if name.startswith(".stage-") and self._older(path, now - STALE_STAGING_SECONDS):
                remove_quietly(path)
        return gone

    @staticmethod
    def _lock_for_removal(stamp: str) -> Optional[int]:
        handle = os.open(stamp, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return None
        return handle

    @staticmethod
    def _older(path: str, than: float) -> bool:
        try:
            return os.lstat(path).st_mtime < than
        except OSError:
            return False


