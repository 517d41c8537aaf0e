"""Documents that know where they may be broken, and how they are set in a given width.

After Wadler's "A prettier printer": a group is set on one line where that fits, else its lines are
broken. What may follow on the same line counts as far as the next place that can be broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True)
class Line:
    """A place to break; ``flat`` stands there where it is not broken."""

    flat: str = " "


@dataclass(frozen=True)
class Group:
    """Broken at all of its own lines, or at none."""

    parts: tuple[Doc, ...]


@dataclass(frozen=True)
class Indent:
    """Lines within begin four columns further to the right."""

    parts: tuple[Doc, ...]


@dataclass(frozen=True)
class Broken:
    """One text where the group around it is broken, another where it is not."""

    broken: str
    flat: str = ""


@dataclass(frozen=True)
class Parts:
    """One after the other."""

    parts: tuple[Doc, ...]


Doc = Union[str, Line, Group, Indent, Broken, Parts]  # noqa: UP007 - names that follow
STEP = 4
_Item = tuple[int, bool, Doc]  # indentation, whether broken, what


def parts(*docs: Doc) -> Doc:
    """The documents one after the other."""
    return Parts(docs)


def joined(docs: Iterable[Doc], separator: Sequence[Doc]) -> Doc:
    """The documents with ``separator`` between them."""
    found: list[Doc] = []
    for doc in docs:
        found += [*separator, doc] if found else [doc]
    return Parts(tuple(found))


def enclosed(opening: str, doc: Doc, closing: str) -> Doc:
    """``doc`` in brackets; where it does not fit it stands on lines of its own between them."""
    return Group((opening, Indent((Line(""), doc)), Line(""), closing))


def render(doc: Doc, width: int, indent: int, used: int = 0) -> list[str]:
    """``doc`` as lines, all but the first with their indentation.

    ``indent``: columns that the statement is indented by; ``used``: of the first line, those too.
    """
    lines, text, column = [], "", indent + used
    todo: list[_Item] = [(indent, True, doc)]
    while todo:
        at, broken, one = todo.pop()
        if isinstance(one, Group):
            flat = _fits([(at, False, Parts(one.parts))], todo, width - column)
            todo.append((at, not flat, Parts(one.parts)))
        elif isinstance(one, (Parts, Indent)):
            deeper = at + STEP if isinstance(one, Indent) else at
            todo += [(deeper, broken, part) for part in reversed(one.parts)]
        elif isinstance(one, Line) and broken:
            lines.append(text.rstrip())
            text, column = " " * at, at
        else:
            said = _text(one, broken)
            text += said
            _, newline, tail = said.rpartition("\n")
            column = len(tail) if newline else column + len(said)
    return [*lines, text]


def flat(doc: Doc) -> str:
    """``doc`` without a single break."""
    if isinstance(doc, (Group, Indent, Parts)):
        return "".join(flat(part) for part in doc.parts)
    return doc.flat if isinstance(doc, Line) else _text(doc, False)


def _text(doc: str | Broken | Line, broken: bool) -> str:
    if isinstance(doc, Line):
        return doc.flat
    if isinstance(doc, Broken):
        return doc.broken if broken else doc.flat
    return doc


def _fits(first: list[_Item], rest: list[_Item], room: int) -> bool:
    """Whether ``first`` fits flat into ``room`` columns, with ``rest`` up to where it can break."""
    todo, after = list(first), len(rest)
    while room >= 0:
        if not todo:
            if not after:
                return True
            after -= 1
            todo.append(rest[after])
        at, broken, one = todo.pop()
        if isinstance(one, (Group, Parts, Indent)):
            todo += [(at, broken, part) for part in reversed(one.parts)]
        elif isinstance(one, Line) and broken:
            return True
        else:
            said, newline, _ = _text(one, broken).partition("\n")
            room -= len(said)
            if newline:
                return room >= 0
    return False
