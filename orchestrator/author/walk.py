"""The source files among what the user names: files and folders, walked with bounds.

Hidden folders, build folders, caches and links that lead in circles are left out, and a walk ends
at a number of files that no operator library reaches.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.author.cpp.project import SUFFIXES
from orchestrator.errors import UsageError

_SKIPPED = frozenset(
    ("build", "dist", "node_modules", "site-packages", "__pycache__", "_skbuild", "third_party")
)
_MOST = 50_000  # files
_LARGEST = 4 << 20  # bytes of a Python file
_DEEPEST = 40  # folders in one another
_ABOVE = 3  # names of folders above what was named that tell whose it is
_DEFINED = re.compile(r"^[ \t]*def ([A-Za-z]\w*)\(", re.MULTILINE)
_REGISTERED = re.compile(r"(?:custom_op|triton_op)\(\s*[\"']\w+::(\w+)|define\(\s*[\"'](\w+)\(")


@dataclass
class Files:
    """What was found; ``roots``: the folder that each file was found under."""

    cpp: list[Path] = field(default_factory=list)
    python: list[Path] = field(default_factory=list)
    roots: dict[Path, Path] = field(default_factory=dict)

    def relative(self, path: Path) -> Path:
        """The path below the folder that the user named, that folder's name in front.

        Where it is itself below an ``op``, as ``op/vllm/moe``, from there; what lies further up
        says nothing.
        """
        root = self.roots.get(path, path.parent)
        above = root.resolve().parts[1:][-_ABOVE:]
        start = above.index("op") if "op" in above else len(above) - 1
        return Path(*above[max(start, 0) :]) / path.relative_to(root)

    def python_mentioning(self, word: str) -> Iterator[tuple[Path, str]]:
        """Python files that hold the word, with their texts; unit tests are no sources."""
        pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
        needle = word.encode()
        for path in self.python:
            if path.name.startswith("test_") or path.name == "conftest.py":
                continue
            content = _content(path)
            if needle in content:
                text = content.decode("utf-8", errors="replace")
                if pattern.search(text):
                    yield path, text

    def python_names(self) -> set[str]:
        """Names of functions and of torch.library's operators in the Python files."""
        found: set[str] = set()
        for path in self.python:
            if len(found) > 5000:
                break
            text = _content(path).decode("utf-8", errors="replace")
            found.update(_DEFINED.findall(text))
            found.update(one or other for one, other in _REGISTERED.findall(text))
        return found

    def module(self, path: Path) -> str:
        """The module that Python imports the file as."""
        parts = [] if path.stem == "__init__" else [path.stem]
        folder = path.parent
        while (folder / "__init__.py").is_file() and folder.name.isidentifier():
            parts.append(folder.name)
            folder = folder.parent
        if len(parts) < 2 and path in self.roots:
            # A package without __init__.py: what lies between the root and the file.
            between = path.parent.relative_to(self.roots[path]).parts
            if all(part.isidentifier() for part in between):
                return ".".join([*between, *reversed(parts)])
        return ".".join(reversed(parts)) or path.stem


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            content = stream.read(_LARGEST + 1)
    except OSError:
        return b""
    return b"" if len(content) > _LARGEST or b"\0" in content else content


def gather(sources: Sequence[Path]) -> Files:
    """All C++ and Python files of the sources. Raises ``UsageError`` for one that is not there."""
    files = Files()
    for source in sources:
        if source.is_dir():
            for path in _below(source):
                _add(files, path, source)
        elif source.is_file():
            _add(files, source, source.parent)
        else:
            raise UsageError("there is no such file or folder", where=str(source))
    return files


def _add(files: Files, path: Path, root: Path) -> None:
    if path in files.roots:
        return
    if path.suffix in SUFFIXES:
        files.cpp.append(path)
    elif path.suffix == ".py":
        files.python.append(path)
    else:
        return
    files.roots[path] = root
    if len(files.roots) > _MOST:
        raise UsageError(
            f"more than {_MOST} source files",
            where=str(root),
            hint="name the folder of the operator's library",
        )


def _below(root: Path) -> Iterator[Path]:
    """Files below a folder, sorted, each folder once."""
    seen: set[tuple[int, int]] = set()
    waiting: list[tuple[Path, int]] = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            status = folder.stat()
            entries = sorted(os.scandir(folder), key=lambda each: each.name)
        except OSError:
            continue  # not ours to read
        identity = (status.st_dev, status.st_ino)
        if identity in seen or depth > _DEEPEST:
            continue
        seen.add(identity)
        folders: list[tuple[Path, int]] = []
        for entry in entries:
            if entry.name.startswith("."):
                continue
            try:
                if entry.is_dir():
                    if entry.name not in _SKIPPED:
                        folders.append((folder / entry.name, depth + 1))
                elif entry.is_file():
                    yield folder / entry.name
            except OSError:
                continue  # a link to itself
        waiting.extend(reversed(folders))
