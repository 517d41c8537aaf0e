"""The C++ files among the sources: read once each, searched by words, with what they include.

Files are hostile until proven otherwise: large ones, binary ones and those that cannot be read are
left out, and whatever their encoding is, they become text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from orchestrator.author.cpp.lexical import without_comments, without_strings
from orchestrator.author.cpp.preprocess import Macro, preprocess
from orchestrator.author.facts import Place

SUFFIXES = frozenset(
    (
        ".cpp",
        ".cc",
        ".cxx",
        ".c",
        ".cu",
        ".cuh",
        ".h",
        ".hpp",
        ".hh",
        ".hxx",
        ".inl",
        ".maca",
        ".mu",
    )
)
_LARGEST = 4 << 20  # bytes of one file
_DEEPEST = 8  # includes within includes, whose macros decide on what is included
_MOST_INCLUDED = 64  # files that one file's includes may lead to


@dataclass(frozen=True)
class Source:
    """A file as it is looked at: no comments, no directives, the lines of the original."""

    path: Path
    code: str
    macros: dict[str, Macro]
    includes: tuple[str, ...]
    settled: dict[str, Macro] = field(default_factory=dict)
    doubtful: frozenset[int] = frozenset()

    def is_doubtful(self, offset: int) -> bool:
        """Whether only some builds have what stands at an offset into the code."""
        return bisect_left(self._breaks, offset) in self.doubtful

    @cached_property
    def bare(self) -> str:
        """The code with blanks in its strings: what brackets are matched in."""
        return without_strings(self.code)

    @cached_property
    def _breaks(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self.code)]

    def place(self, offset: int) -> Place:
        """The place of an offset into the code."""
        return Place(str(self.path), bisect_left(self._breaks, offset) + 1)


class Project:
    """All C++ files of the sources."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = sorted({f for f in files if f.suffix in SUFFIXES})
        self._raw: dict[Path, bytes] = {}
        self._sources: dict[Path, Source] = {}
        self._macros: dict[Path, dict[str, Macro]] = {}
        self._inherited: dict[Path, dict[str, Macro]] = {}
        self._depth = 0
        self._named: dict[str, list[Path]] = {}
        for file in self._files:
            self._named.setdefault(file.name, []).append(file)

    @property
    def files(self) -> Sequence[Path]:
        """The files, sorted by path."""
        return self._files

    def _bytes(self, path: Path) -> bytes:
        if path not in self._raw:
            content = b""
            try:
                # One byte more than allowed tells that there are too many.
                with path.open("rb") as stream:
                    content = stream.read(_LARGEST + 1)
            except OSError:
                pass  # gone, or not ours to read: as if it were not there
            if len(content) > _LARGEST or b"\0" in content[:4096]:
                content = b""
            self._raw[path] = content
        return self._raw[path]

    def source(self, path: Path) -> Source:
        """The file as it is looked at; empty where it cannot be read."""
        if path not in self._sources:
            text = self._bytes(path).decode("utf-8", errors="replace")
            text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", " ")
            text = without_comments(text)
            self._sources[path] = Source(path, "", {}, ())  # for files that include each other

            def included(name: str, includes: Sequence[str]) -> Macro | None:
                for file in filter(None, (self._included(path, each) for each in includes)):
                    macro = self._reached(file).get(name)
                    if macro is not None:
                        return macro
                return None

            read = preprocess(text, included)
            self._sources[path] = Source(
                *(path, read.code, read.macros, tuple(read.includes)),
                *(read.settled, frozenset(read.doubtful)),
            )
        return self._sources[path]

    def _reached(self, path: Path) -> dict[str, Macro]:
        """Macros that a file and what it includes define for certain."""
        if path not in self._inherited:
            merged: dict[str, Macro] = {}
            self._inherited[path] = merged  # for files that include each other
            if self._depth >= _DEEPEST:
                return {}
            self._depth += 1
            for file in self.around(self.source(path)):
                merged.update(self.source(file).settled)
            self._depth -= 1
        return self._inherited[path]

    def mentioning(self, word: str, files: Iterable[Path] | None = None) -> list[Source]:
        """The files in whose text the word stands, as a word of its own."""
        needle = word.encode()
        pattern = re.compile(rb"(?<!\w)" + re.escape(needle) + rb"(?!\w)")
        found = []
        for path in self._files if files is None else files:
            content = self._bytes(path)
            if needle in content and pattern.search(content):
                found.append(self.source(path))
        return found

    def around(self, source: Source) -> list[Path]:
        """The file and what it includes by quotes, directly or not, nearest first."""
        paths = [source.path]
        for path in paths:
            for name in self.source(path).includes:
                included = self._included(path, name)
                if included is not None and included not in paths:
                    paths.append(included)
            if len(paths) >= _MOST_INCLUDED:
                break
        return paths[:_MOST_INCLUDED]

    def _included(self, path: Path, name: str) -> Path | None:
        wanted = Path(name)
        candidates = self._named.get(wanted.name, [])
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        parts = tuple(part for part in wanted.parts if part not in ("..", "."))

        def nearness(candidate: Path) -> tuple[bool, int]:
            fits = candidate.parts[-len(parts) :] == parts
            common = 0
            for mine, theirs in zip(path.parts, candidate.parts, strict=False):
                if mine != theirs:
                    break
                common += 1
            return fits, common

        return max(candidates, key=nearness)

    def macros(self, source: Source) -> dict[str, Macro]:
        """All macros that the file sees: its own and those of what it includes."""
        if source.path not in self._macros:
            merged: dict[str, Macro] = {}
            for path in self.around(source):
                for name, macro in self.source(path).macros.items():
                    merged.setdefault(name, macro)
            self._macros[source.path] = merged
        return self._macros[source.path]
