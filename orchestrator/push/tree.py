"""What gets pushed: the files of a working folder, their hashes, and the name that follows.

A tree is ``benchmark/`` (without results, caches and outputs) and the env scripts beside it. Its
name is a hash over paths, modes and contents, so the same files are the same tree everywhere.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from orchestrator.errors import TreeError
from orchestrator.suites import mcoplib
from orchestrator.transport.agent.files import Entry
from orchestrator.transport.agent.trees import tree_hash

Symlinks = Literal["keep", "follow", "refuse"]
_PIECE = 1 << 20
_MOST_LINKS = 40  # on the way to a file, as the kernel has it

# Neither hashed nor sent: results, caches, leavings of editors, version control and `init --force`.
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
    "*.old",
    "*.old.[0-9]*",
    "*.xlsx",
    "*.nvbench.json",
    "*.nvbench-bin",
    "*.ncu-rep",
    "*.nsys-rep",
)


@dataclass(frozen=True)
class Tree:
    """Files to push: ``entries`` in order, and where each one's content lies on this machine.

    ``exclude`` holds the patterns of what was left out: a push neither sends nor deletes that.
    """

    entries: tuple[Entry, ...]
    sources: tuple[Path, ...]
    exclude: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The hash that names the tree."""
        return tree_hash(self.entries)

    @property
    def size(self) -> int:
        """Bytes of all contents."""
        return sum(entry.size for entry in self.entries)

    def content(self, index: int) -> Iterator[bytes]:
        """The bytes of an entry in pieces; a file that changed since is an error."""
        entry, source = self.entries[index], self.sources[index]
        digest, missing = hashlib.sha256(), entry.size
        try:
            with source.open("rb") as stream:
                # One byte more than expected, to see whether it grew.
                while data := stream.read(min(_PIECE, missing + 1)):
                    digest.update(data)
                    missing -= len(data)
                    if missing < 0:
                        break
                    yield data
        except OSError as error:
            raise _unreadable(source, error) from None
        if missing or digest.hexdigest() != entry.sha256:
            raise TreeError(
                "the file changed while it was pushed", where=str(source), hint="push again"
            )


def build(folder: Path, *, exclude: Sequence[str] = (), symlinks: Symlinks = "keep") -> Tree:
    """Collect the tree of a working folder.

    ``exclude`` adds glob patterns (see ``excluded``). ``symlinks``: ``keep`` sends links that stay
    inside the tree as links and refuses others, ``follow`` sends what they point to, ``refuse``
    allows none.
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
    tree = Tree(
        tuple(entry for entry, _ in found),
        tuple(source for _, source in found),
        collector.exclude,
    )
    _check_links(tree)
    return tree


def excluded(name: str, patterns: Sequence[str]) -> bool:
    """Whether a path, or a folder on the way to it, matches one of ``patterns``.

    A pattern with a slash is matched against paths, one without against each name on the way. The
    first part (``benchmark``, ``env``) is not up for exclusion.
    """
    parts = name.split("/")
    return any(
        fnmatch.fnmatchcase(
            "/".join(parts[: last + 1]) if "/" in pattern.rstrip("/") else parts[last],
            pattern.rstrip("/"),
        )
        for last in range(1, len(parts))
        for pattern in patterns
    )


def _check_links(tree: Tree) -> None:
    """Raise unless every link leads to something that is pushed as well."""
    links = {entry.path: entry.link for entry in tree.entries if entry.link is not None}
    files = {entry.path for entry in tree.entries if entry.link is None}
    folders = {str(parent) for path in files for parent in PurePosixPath(path).parents}
    for entry, source in zip(tree.entries, tree.sources, strict=True):
        if entry.link is None:
            continue
        landing = _follow(entry.path, links)
        if landing is None:
            raise TreeError("a symbolic link to itself", where=str(source), hint="remove it")
        if landing not in files and landing not in folders:
            raise TreeError(
                f"a symbolic link leads to {entry.link}, which is not pushed",
                where=str(source),
                hint="remove it, or set `push: {symlinks: follow}` in the inventory",
            )


def _follow(path: str, links: Mapping[str, str]) -> str | None:
    """Where ``path`` ends up within the tree, links on the way resolved; None for a loop."""
    todo, hops = path.split("/")[::-1], 0
    done: list[str] = []
    while todo:
        part = todo.pop()
        if part == "..":
            if not done:
                return ".."
            done.pop()
        elif part not in ("", "."):
            done.append(part)
            link = links.get("/".join(done))
            if link is not None:
                hops += 1
                if hops > _MOST_LINKS:
                    return None
                done.pop()
                todo += link.split("/")[::-1]
    return "/".join(done)


def _unreadable(path: Path, error: OSError) -> TreeError:
    return TreeError(
        f"cannot be read: {error.strerror}", where=str(path), hint="check its permissions"
    )


def subset(tree: Tree, folders: Sequence[str], only: Sequence[str]) -> Tree:
    """The entries below ``benchmark/<folder>/``, named relative to ``benchmark/``.

    ``only`` limits them to globs (``config/x*.json``) or operators (``x``).
    """
    pairs = []
    for entry, source in zip(tree.entries, tree.sources, strict=True):
        path = entry.path.removeprefix("benchmark/")
        if path == entry.path or not any(path.startswith(f"{folder}/") for folder in folders):
            continue
        if not only or any(_selects(pattern, path) for pattern in only):
            pairs.append((entry._replace(path=path), source))
    return Tree(
        tuple(entry for entry, _ in pairs), tuple(source for _, source in pairs), tree.exclude
    )


def _selects(pattern: str, path: str) -> bool:
    return path in mcoplib.files_of(pattern) or fnmatch.fnmatchcase(path, pattern)


class _Collector:
    def __init__(self, root: Path, exclude: tuple[str, ...], symlinks: Symlinks) -> None:
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
            raise _unreadable(folder, error) from None
        identity = (status.st_dev, status.st_ino)
        if identity in self._open:
            raise TreeError("a symbolic link leads back up", where=str(folder), hint="remove it")
        self._open.add(identity)
        for child in children:
            self.add(child, f"{name}/{child.name}")
        self._open.discard(identity)

    def add(self, path: Path, name: str | None = None) -> None:
        name = name or path.relative_to(self.root).as_posix()
        if excluded(name, self.exclude):
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
            raise _unreadable(path, error) from None

    def _add_file(self, path: Path, name: str) -> None:
        mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
        digest, size = hashlib.sha256(), 0
        with path.open("rb") as stream:
            while data := stream.read(_PIECE):
                digest.update(data)
                size += len(data)
        self.found.append((Entry(name, mode, size, digest.hexdigest(), None), path))

    def _add_link(self, path: Path, name: str) -> None:
        if self.symlinks == "refuse":
            raise TreeError(
                "is a symbolic link",
                where=str(path),
                hint="push.symlinks in the inventory is refuse",
            )
        if self.symlinks == "follow":
            if path.is_dir():
                self.add_folder(path, name)
            elif path.is_file():
                self._add_file(path, name)
            else:
                raise TreeError("a dangling symbolic link", where=str(path), hint="remove it")
            return
        target = str(path.readlink())
        landing = _follow(f"{name.rpartition('/')[0]}/{target}", {})
        inside = landing is not None and landing.split("/")[0] in ("benchmark", "env")
        if target.startswith("/") or not inside:
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
            yield from tree.content(index)
