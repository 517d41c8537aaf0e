"""What gets pushed: the files of a working folder, their hashes, and the name that follows.

A tree is ``benchmark/`` (without results, caches and outputs) and the env scripts beside it. Its
name is a hash over paths, modes and contents, so the same files are the same tree everywhere.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orchestrator.errors import TreeError
from orchestrator.transport.agent.files import Entry
from orchestrator.transport.agent.trees import tree_hash

Symlinks = Literal["keep", "follow", "refuse"]

# Neither hashed nor sent: results, caches, editors' and version control's leavings.
ALWAYS_EXCLUDED = (
    "benchmark/statistics",
    "__pycache__",
    "*.pyc",
    ".git",
    ".hg",
    ".svn",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".ipynb_checkpoints",
    ".DS_Store",
    ".mxfleet*",
    "*.swp",
    "*~",
    "*.nvbench.json",
    "*.nvbench-bin",
    "*.ncu-rep",
    "*.nsys-rep",
)


@dataclass(frozen=True)
class Tree:
    """Files to push: ``entries`` in order, and where each one's content lies on this machine."""

    entries: tuple[Entry, ...]
    sources: tuple[Path, ...]

    @property
    def name(self) -> str:
        """The hash that names the tree."""
        return tree_hash(self.entries)

    @property
    def size(self) -> int:
        """Bytes of all contents."""
        return sum(entry.size for entry in self.entries)

    def content(self, index: int) -> bytes:
        """The bytes of an entry, checked against its hash: a file that changed since is an error."""
        entry, source = self.entries[index], self.sources[index]
        data = source.read_bytes()
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise TreeError(
                "the file changed while it was pushed", where=str(source), hint="push again"
            )
        return data


def build(
    folder: Path, *, exclude: Sequence[str] = (), symlinks: Symlinks = "keep"
) -> Tree:
    """Collect the tree of a working folder.

    ``exclude`` adds glob patterns, matched against each name and against the path relative to the
    folder. ``symlinks``: ``keep`` sends links that stay inside the tree as links and refuses
    others, ``follow`` sends what they point to, ``refuse`` allows none.
    """
    benchmark = folder / "benchmark"
    if not benchmark.is_dir():
        raise TreeError(
            "the working folder has no benchmark/ folder",
            where=str(folder),
            hint="run `mxfleet init` there, or name another inventory",
        )
    collector = _Collector(folder, (*ALWAYS_EXCLUDED, *exclude), symlinks)
    collector.add_folder(benchmark)
    env = folder / "env"
    if env.is_dir():
        for path in sorted(env.glob("*.sh")):
            collector.add(path)
    found = sorted(collector.found, key=lambda pair: os.fsencode(pair[0].path))
    return Tree(tuple(entry for entry, _ in found), tuple(source for _, source in found))


def subset(tree: Tree, folders: Sequence[str], only: Sequence[str]) -> Tree:
    """The entries below ``benchmark/<folder>/``, named relative to ``benchmark/``.

    ``only`` limits them to globs (``config/x*.json``) or operators (``x``).
    """
    pairs = []
    for entry, source in zip(tree.entries, tree.sources, strict=True):
        path = entry.path.removeprefix("benchmark/")
        if path == entry.path or path.split("/")[0] not in folders:
            continue
        if not only or any(_selects(pattern, path) for pattern in only):
            pairs.append((entry._replace(path=path), source))
    return Tree(tuple(entry for entry, _ in pairs), tuple(source for _, source in pairs))


def _selects(pattern: str, path: str) -> bool:
    operator_files = (f"config/{pattern}.json", f"runners/mcoplib_mxbenchmark_{pattern}_runners.py")
    return path in operator_files or fnmatch.fnmatchcase(path, pattern)


class _Collector:
    def __init__(self, root: Path, exclude: Sequence[str], symlinks: Symlinks) -> None:
        self.root = root
        self.exclude = exclude
        self.symlinks = symlinks
        self.found: list[tuple[Entry, Path]] = []
        self._open: set[tuple[int, int]] = set()  # folders on the way down, against link loops

    def add_folder(self, folder: Path, name: str | None = None) -> None:
        name = name or folder.relative_to(self.root).as_posix()
        try:
            status = folder.stat()
            children = sorted(folder.iterdir())
        except OSError as error:
            raise TreeError(
                f"cannot be read: {error.strerror}", where=str(folder), hint="check permissions"
            ) from None
        identity = (status.st_dev, status.st_ino)
        if identity in self._open:
            raise TreeError("a symbolic link leads back up", where=str(folder), hint="remove it")
        self._open.add(identity)
        for child in children:
            self.add(child, f"{name}/{child.name}")
        self._open.discard(identity)

    def add(self, path: Path, name: str | None = None) -> None:
        name = name or path.relative_to(self.root).as_posix()
        if self._excluded(name):
            return
        try:
            status = path.lstat()
            if stat.S_ISLNK(status.st_mode):
                self._add_link(path, name)
            elif stat.S_ISDIR(status.st_mode):
                self.add_folder(path, name)
            elif stat.S_ISREG(status.st_mode):
                self._add_file(path, name)
            else:
                raise TreeError(
                    "neither a file, a folder nor a link", where=str(path), hint="remove it"
                )
        except OSError as error:
            raise TreeError(
                f"cannot be read: {error.strerror}", where=str(path), hint="check its permissions"
            ) from None

    def _excluded(self, name: str) -> bool:
        last = name.rsplit("/", 1)[-1]
        return any(
            fnmatch.fnmatchcase(last, pattern) or fnmatch.fnmatchcase(name, pattern.rstrip("/"))
            for pattern in self.exclude
        )

    def _add_file(self, path: Path, name: str) -> None:
        data = path.read_bytes()
        mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
        digest = hashlib.sha256(data).hexdigest()
        self.found.append((Entry(name, mode, len(data), digest, None), path))

    def _add_link(self, path: Path, name: str) -> None:
        if self.symlinks == "refuse":
            raise TreeError(
                "is a symbolic link", where=str(path), hint="push.symlinks in the inventory is refuse"
            )
        if self.symlinks == "follow":
            if path.is_dir():
                self.add_folder(path, name)
            elif path.is_file():
                self._add_file(path, name)
            else:
                raise TreeError("a dangling symbolic link", where=str(path), hint="remove it")
            return
        target = os.readlink(path)
        landing = os.path.normpath(os.path.join(os.path.dirname(name), target))
        inside = not os.path.isabs(target) and landing.split("/")[0] in ("benchmark", "env")
        if not inside:
            raise TreeError(
                f"a symbolic link leads out of the tree to {target}",
                where=str(path),
                hint="copy the file, or set `push: {symlinks: follow}` in the inventory",
            )
        digest = hashlib.sha256(os.fsencode(target)).hexdigest()
        self.found.append((Entry(name, 0o755, 0, digest, target), path))


def entry_rows(entries: Sequence[Entry]) -> list[list[object]]:
    """Entries as they go over the pipe."""
    return [list(entry) for entry in entries]


def contents(tree: Tree, indices: Sequence[int]) -> Iterator[bytes]:
    """The contents of some entries one after the other; links have none."""
    for index in indices:
        if tree.entries[index].link is None:
            yield tree.content(index)
