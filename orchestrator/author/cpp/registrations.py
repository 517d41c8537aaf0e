"""Where operators are registered: ``TORCH_LIBRARY`` blocks and pybind modules.

Read from the text, not from a parse of it: a block's macro may be anybody's, and one entry that is
no C++ must not hide the next.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.author.cpp.lexical import arguments, closing, string_value
from orchestrator.author.cpp.project import Project, Source
from orchestrator.author.facts import Place

_BLOCK = re.compile(r"\b((?:\w*TORCH_LIBRARY|PYBIND11_MODULE|\w*PYBIND11_MODULE)\w*)\s*\(")
_ENTRY = re.compile(r"(?:\b(\w+)|\))\s*(?:\.|->)\s*(def|impl)\s*\(")
_LONGEST_HEAD = 1000  # characters of a block's arguments
_LONGEST_ENTRY = 1 << 16
_MOST_UNCLOSED = 20  # entries without an end, after which a file is given up
_EXTENSION = "TORCH_EXTENSION_NAME"
_PARAMETER = re.compile(
    r"(?:torch::|c10::|py::|pybind11::)?(?:Library|module_?)\s*&\s*(\w+)\s*[,)]"
)
_FUNCTION = re.compile(r"&\s*((?:\w+\s*::\s*)*\w+)(?:\s*<[^()]*>)?\s*\)*\s*$")
_WRAPPED = re.compile(
    r"\b(?:TORCH_FN|TORCH_BOX|CPPFunction|CppFunction)\s*\(\s*&?\s*((?:\w+\s*::\s*)*\w+)"
)
_PATH = re.compile(r"(?:\w+\s*::\s*)*(\w+)(?:\s*<[^()]*>)?")
_TEMPLATED = re.compile(r"\w+\s*<\s*&?\s*((?:\w+\s*::\s*)*\w+)\s*>")
_ARG = re.compile(r'(?:\w+\s*::\s*)*arg(?:_v)?\s*\(\s*"(\w+)"')
_LITERAL_ARG = re.compile(r'"(\w+)"_a\b')
_OTHER_KEY = re.compile(r"(?:\bk|DispatchKey\s*::\s*)(?:CPU|XPU|HIP|Meta|QuantizedCPU|HPU|MPS)\b")
_OTHER_FOLDERS = frozenset(("cpu", "xpu", "rocm", "hip", "hpu", "npu", "tpu", "mps"))
_OVERLOAD_CAST = re.compile(r"\boverload_cast\s*<")
_POINTER_CAST = re.compile(r"\(\s*\*\s*\)\s*\(")
_KEYWORD_ONLY = re.compile(r"(?:\w+\s*::\s*)*kw_only\s*\(")


def is_elsewhere(path: Path) -> bool:
    """Whether the file lies among those for CPUs or another kind of GPU."""
    return not _OTHER_FOLDERS.isdisjoint(path.parts[-4:-1])


@dataclass(frozen=True)
class Named:
    """An argument that pybind is told the name of: ``py::arg("x") = 1``."""

    name: str
    default: str | None = None  # C++
    keyword_only: bool = False


@dataclass(frozen=True)
class Registration:
    """One ``m.def`` or ``m.impl``.

    ``text``: the schema or the name in it, of ``def`` or ``impl``. ``namespace``: as the block
    says; with ``assumed`` it is not known what the build calls it, and this is what the file's
    place suggests. ``function``: the C++ function that implements it, unqualified; ``lambda_``:
    all of a lambda from its parameters on, with ``offset`` where that is.
    """

    text: str
    namespace: str
    assumed: bool
    kind: str  # def or impl
    pybind: bool
    place: Place
    source: Source
    function: str | None = None
    lambda_: str | None = None
    offset: int = 0
    named: tuple[Named, ...] = ()
    elsewhere: bool = False  # for CPUs or for another kind of GPU
    doubtful: bool = False  # only some builds have it
    types: tuple[str, ...] | None = None  # of the overload that a cast chooses

    @property
    def overload(self) -> str:
        """The overload's name; empty where it has none."""
        return self.text.partition("(")[0].rpartition("::")[2].partition(".")[2].strip()

    @property
    def name(self) -> str:
        """The operator's name without namespace and overload."""
        return self.text.partition("(")[0].rpartition("::")[2].partition(".")[0].strip()

    @property
    def schema(self) -> str | None:
        """The schema's text where it has one."""
        return self.text if "(" in self.text and not self.pybind else None


@dataclass(frozen=True)
class _Block:
    """What a registration macro spans: its variable, and the body from where to where."""

    macro: str
    namespace: str
    assumed: bool
    variable: str
    start: int
    end: int


def registrations(project: Project, word: str | None = None) -> list[Registration]:
    """All registrations in files that mention ``word``, or in all, in the files' order."""
    if word is None:
        sources = [project.source(path) for path in project.files]
    else:
        sources = project.mentioning(word)
    found: list[Registration] = []
    for source in sources:
        found += _of(source, project)
    return found


def _of(source: Source, project: Project) -> list[Registration]:
    if not _ENTRY.search(source.bare):
        return []
    blocks = list(_blocks(source, project))
    return [entry for entry in _entries(source, blocks, project) if entry is not None]


def _blocks(source: Source, project: Project) -> Iterator[_Block]:
    bare = source.bare
    for match in _BLOCK.finditer(bare):
        end = closing(bare, match.end() - 1, _LONGEST_HEAD)
        if end is None:
            continue
        opened = end + 1
        while opened < len(bare) and bare[opened].isspace():
            opened += 1
        if opened >= len(bare) or bare[opened] != "{":
            continue  # a macro that is defined by another, or a mere mention
        stop = closing(bare, opened)
        given = [piece for _, piece in arguments(source.code, bare, match.end() - 1, end)]
        if not given:
            continue
        namespace, assumed = _namespace(given[0], source, project, "PYBIND" in match[1])
        yield _Block(
            match[1], namespace, assumed, given[-1], opened, len(bare) if stop is None else stop
        )


def _namespace(text: str, source: Source, project: Project, pybind: bool) -> tuple[str, bool]:
    """The namespace a block's first argument stands for, and whether that is an assumption."""
    macro = project.macros(source).get(text)
    if macro is not None and macro.parameters is None and macro.body:
        text = macro.body
    text = text.strip().strip('"')
    if _EXTENSION not in text:
        return text, False
    # CONCAT(TORCH_EXTENSION_NAME, _cache_ops)
    suffix = "".join(re.findall(r"\w+", text.partition(_EXTENSION)[2]))
    return extension_name(source, pybind) + suffix, True


def extension_name(source: Source, pybind: bool) -> str:
    """What builds call the extension that the file is part of, by where it lies."""
    folders = source.path.parts[:-1]
    if "moe" in folders:
        return "_moe_C"
    if "rocm" in folders:
        return "_rocm_C"
    return "op" if pybind else "_C"


def _entries(
    source: Source, blocks: list[_Block], project: Project
) -> Iterator[Registration | None]:
    bare = source.bare
    unclosed = 0
    starts = [block.start for block in blocks]
    for match in _ENTRY.finditer(bare):
        opened = match.end() - 1
        end = closing(bare, opened, _LONGEST_ENTRY)
        if end is None:
            unclosed += 1
            if unclosed > _MOST_UNCLOSED:
                return
            continue
        index = bisect_left(starts, match.start()) - 1
        inside = index >= 0 and match.start() < blocks[index].end
        block = blocks[index] if inside else None
        block = block or _helper(source, match.start(), match[1], blocks, project)
        if block is None:
            continue
        given = arguments(source.code, bare, opened, end)
        yield _entry(source, block, match[2], given)


def _helper(
    source: Source, at: int, variable: str | None, blocks: list[_Block], project: Project
) -> _Block | None:
    """The block for entries in a function of its own: ``void add(torch::Library& m)``."""
    front = source.bare[max(0, at - 20_000) : at]
    taken = list(_PARAMETER.finditer(front))
    if not taken or taken[-1][1] != variable:
        return None
    name = re.search(r"(\w+)\s*\([^(]*$", front[: taken[-1].end()])
    if name is None:
        return None
    calls = re.compile(rf"(?<!\w){re.escape(name[1])}\s*\(")
    for other in [source, *project.mentioning(name[1])]:
        there = blocks if other is source else list(_blocks(other, project))
        for block in there:
            if calls.search(other.bare[block.start : block.end]):
                return block
    return None


def _entry(
    source: Source, block: _Block, kind: str, given: list[tuple[int, str]]
) -> Registration | None:
    if not given:
        return None
    text = string_value(given[0][1])
    if text is None:
        inner = re.match(r"[\w:]+\s*\(", given[0][1])  # TORCH_SELECTIVE_SCHEMA("...")
        text = string_value(given[0][1][inner.end() :]) if inner else None
    if text is None or not text.strip():
        return None
    pybind = "PYBIND" in block.macro
    function, lambda_, offset = None, None, 0
    for at, piece in given[1:]:
        if piece.startswith("["):
            opened = piece.find("(", max(piece.find("]"), 0))
            if opened >= 0:
                lambda_, offset = piece[opened:], at + opened
                break
        function = _function(piece)
        if function is not None:
            break
    space, _, _ = text.partition("(")[0].rpartition("::")
    return Registration(
        text=text.strip(),
        namespace=space.strip() or block.namespace,
        assumed=block.assumed and not space,
        kind=kind,
        pybind=pybind,
        place=source.place(given[0][0]),
        source=source,
        function=function,
        lambda_=lambda_,
        offset=offset,
        named=tuple(_named(given[1:])) if pybind else (),
        elsewhere=is_elsewhere(source.path)
        or any(_OTHER_KEY.search(piece) for _, piece in given[1:]),
        doubtful=source.is_doubtful(given[0][0]),
        types=None if lambda_ is not None else _cast_to(", ".join(p for _, p in given[1:])),
    )


def _cast_to(text: str) -> tuple[str, ...] | None:
    """The parameter types that ``overload_cast`` or a cast to a pointer chooses by."""
    match = _OVERLOAD_CAST.search(text)
    if match is not None:
        return tuple(_types(text, match.end(), "<", ">"))
    match = _POINTER_CAST.search(text)
    return tuple(_types(text, match.end(), "(", ")")) if match is not None else None


def _types(text: str, at: int, opening: str, closing_: str) -> Iterator[str]:
    """The types from ``at`` to the bracket that closes the one before it."""
    depth, piece = 1, ""
    for char in text[at : at + _LONGEST_HEAD]:
        depth += (char in (opening, "<")) - (char in (closing_, ">"))
        if depth == 0 or (char == "," and depth == 1):
            if piece.strip():
                yield piece.strip()
            piece = ""
        else:
            piece += char
        if depth == 0:
            return


def _function(piece: str) -> str | None:
    """The function that an argument of ``def`` or ``impl`` names, if it names one."""
    if piece.startswith(('"', "{")) or _ARG.match(piece) or _LITERAL_ARG.match(piece):
        return None
    for pattern in (_WRAPPED, _FUNCTION):
        found = pattern.search(piece)
        if found is not None:
            return re.split(r"\s*::\s*", found[1])[-1]
    templated = _TEMPLATED.fullmatch(piece)
    if templated is not None and not re.search(r"\b(?:int|float|double|bool|char)\b", templated[1]):
        return re.split(r"\s*::\s*", templated[1])[-1]
    path = _PATH.fullmatch(piece)
    # A dispatch key stands where a function may: torch::kCUDA.
    if path is None or re.fullmatch(r"k[A-Z]\w*|[A-Z]\w*|\d\w*", path[1]):
        return None
    return path[1]


def _named(given: list[tuple[int, str]]) -> Iterator[Named]:
    keyword_only = False
    for _, piece in given:
        if _KEYWORD_ONLY.match(piece):
            keyword_only = True
        match = _ARG.match(piece) or _LITERAL_ARG.match(piece)
        if match is not None:
            before, equals, default = piece.partition("=")
            yield Named(match[1], default.strip() if equals and before else None, keyword_only)
