"""C++ text below its grammar: comments, strings, matching brackets, arguments.

All of it keeps the number of lines, so that places stay right, and is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

# Where a comment, a string or a character begins; an apostrophe inside a number begins nothing.
_BEGINS = re.compile(
    r"""//|/\*|(?<!\w)(?:u8|[uUL])?R"(?P<raw>[^()\\\s"]{0,16})\(|"|(?<![0-9a-fA-F])'"""
)
_STRING = re.compile(r'"(?:\\[\s\S]|[^"\\\n])*"')
_CHAR = re.compile(r"'(?:\\[\s\S]|[^'\\\n]){1,12}'")
_LINE_COMMENT = re.compile(r"(?:\\\n|[^\n])*")
_INSIDE = re.compile(r"[^\n]")
_LITERAL = re.compile(
    r'(?:u8|[uUL])?R"(?P<mark>[^()\\\s"]{0,16})\((?P<raw>[\s\S]*?)\)(?P=mark)"'
    r'|"(?P<plain>(?:\\[\s\S]|[^"\\\n])*)"'
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]+)|([0-7]{1,3})|(\n)|([\s\S]))")
_ESCAPED = dict(zip("abfnrtv0", "\a\b\f\n\r\t\v\0", strict=True))
_OPENING = {"(": ")", "[": "]", "{": "}"}
_BRACKET = re.compile(r"[()\[\]{}]")


def blank(text: str) -> str:
    """As many spaces, and the same line breaks."""
    return _INSIDE.sub(" ", text)


def _spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Comments (``comment``) and literals (``string``, ``raw``), from where to where."""
    at = 0
    while True:
        begin = _BEGINS.search(text, at)
        if begin is None:
            return
        start, mark = begin.start(), begin.group()
        if mark == "//":
            line = _LINE_COMMENT.match(text, start)
            at = line.end() if line else len(text)
            yield start, at, "comment"
        elif mark == "/*":
            end = text.find("*/", start + 2)
            at = len(text) if end < 0 else end + 2
            yield start, at, "comment"
        elif begin.group("raw") is not None:
            close = f'){begin.group("raw")}"'
            end = text.find(close, begin.end())
            at = len(text) if end < 0 else end + len(close)
            yield start, at, "raw"
        else:
            literal = (_STRING if mark == '"' else _CHAR).match(text, start)
            at = start + 1 if literal is None else literal.end()
            if literal is not None:
                yield start, at, "string"


def without_comments(text: str) -> str:
    """The text with blanks for its comments."""
    parts, at = [], 0
    for start, end, kind in _spans(text):
        if kind == "comment":
            parts += [text[at:start], blank(text[start:end])]
            at = end
    return "".join([*parts, text[at:]])


def without_strings(text: str) -> str:
    """The text with blanks inside its literals; what brackets are matched in.

    The quotes of plain literals stay. ``text`` has no comments any more.
    """
    parts, at = [], 0
    for start, end, kind in _spans(text):
        if kind == "string":
            start, end = start + 1, end - 1
        parts += [text[at:start], blank(text[start:end])]
        at = end
    return "".join([*parts, text[at:]])


def closing(bare: str, start: int, within: int = 1 << 19) -> int | None:
    """Where the bracket at ``start`` is closed again; None where it is not.

    ``bare``: text without strings. ``within``: how many characters are looked at.
    """
    open_ones: list[str] = []
    for match in _BRACKET.finditer(bare, start, start + within):
        char = match.group()
        if char in _OPENING:
            open_ones.append(_OPENING[char])
        elif char == open_ones[-1]:
            open_ones.pop()
            if not open_ones:
                return match.start()
        else:
            return None
    return None


def balanced(bare: str) -> bool:
    """Whether all brackets of the text are closed in it."""
    open_ones: list[str] = []
    for match in _BRACKET.finditer(bare):
        char = match.group()
        if char in _OPENING:
            open_ones.append(_OPENING[char])
        elif not open_ones or open_ones.pop() != char:
            return False
    return not open_ones


def arguments(text: str, bare: str, start: int, end: int) -> list[tuple[int, str]]:
    """What stands between two brackets, cut at its commas: offsets and stripped texts.

    ``start``, ``end``: the offsets of the brackets. Commas inside of angle brackets are not told
    from others: a template's arguments count as several.
    """
    cuts, depth = [start], 0
    for at in range(start + 1, end):
        char = bare[at]
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            cuts.append(at)
    cuts.append(end)
    found = []
    for before, after in pairwise(cuts):
        piece = text[before + 1 : after]
        found.append((before + 1 + len(piece) - len(piece.lstrip()), piece.strip()))
    return [] if len(found) == 1 and not found[0][1] else found


def string_value(text: str) -> str | None:
    """What adjacent literals, plain and raw, stand for together; None where there is none.

    Stops at the first that is neither a literal nor a space.
    """
    parts: list[str] = []
    at = 0
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        match = _LITERAL.match(text, at)
        if match is None:
            return "".join(parts) if parts else None
        raw = match.group("raw")
        parts.append(raw if raw is not None else _ESCAPE.sub(_unescape, match.group("plain")))
        at = match.end()


def _unescape(match: re.Match[str]) -> str:
    hexadecimal, octal, newline, char = match.groups()
    if newline is not None:
        return ""
    if char is not None:
        return _ESCAPED.get(char, char)
    code = int(hexadecimal[-4:], 16) if hexadecimal else int(octal, 8)
    return chr(code)
