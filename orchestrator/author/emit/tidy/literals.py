"""Numbers and texts as a source writes them, and in the one form that a formatter leaves alone."""

from __future__ import annotations

import ast
import re

_PREFIX = re.compile(r"([A-Za-z]*)('''|\"\"\"|'|\")")
_GAP = re.compile(r"(?:\s|\\\n|#[^\n]*\n)*")


class Source:
    """A source text by the positions that its syntax tree has."""

    def __init__(self, text: str) -> None:
        self._lines = [line.encode("utf-8") for line in text.split("\n")]

    def of(self, node: ast.expr) -> str:
        """The text of ``node``; what Python would write where it has no position."""
        first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
        start, end = getattr(node, "col_offset", None), getattr(node, "end_col_offset", None)
        if first is None or last is None or start is None or end is None:
            return ast.unparse(node)
        lines = self._lines[first - 1 : last]
        if len(lines) == 1:
            return lines[0][start:end].decode("utf-8")
        whole = [lines[0][start:], *lines[1:-1], lines[-1][:end]]
        return b"\n".join(whole).decode("utf-8")


def number(text: str) -> str:
    """A number in lower case but for the digits of a hexadecimal one, no plus in its exponent."""
    low = text.lower().replace("e+", "e")
    if low.startswith("0x"):
        return f"0x{text[2:].upper()}"
    if low.startswith(("0o", "0b")):
        return low
    if low.startswith("."):
        return f"0{low}"
    return re.sub(r"\.(?=$|[ej])", ".0", low)


def strings(text: str) -> list[str]:
    """The texts that stand side by side in ``text``, each in its usual form."""
    found, at = [], _GAP.match(text, 0).end()  # type: ignore[union-attr]
    while at < len(text):
        start = _PREFIX.match(text, at)
        if start is None:
            return [text]
        quote = start[2]
        end = start.end()
        while end < len(text) and not text.startswith(quote, end):
            end += 2 if text[end] == "\\" else 1
        end += len(quote)
        found.append(_usual(start[1], quote, text[start.end() : end - len(quote)]))
        at = _GAP.match(text, end).end()  # type: ignore[union-attr]
    return found


def together(pieces: list[str]) -> str | None:
    """Adjoining texts as one; None where their prefixes or quotes do not go together."""
    heads = [_PREFIX.match(piece) for piece in pieces]
    prefixes = {head[1] for head in heads if head is not None}
    quotes = {head[2] for head in heads if head is not None}
    if len(quotes) != 1 or len(next(iter(quotes))) > 1 or not prefixes <= {"", "f"}:
        return None if prefixes != {"b"} or len(quotes) != 1 else _one("b", quotes.pop(), pieces)
    return _one("f" if "f" in prefixes else "", quotes.pop(), pieces)


def _one(prefix: str, quote: str, pieces: list[str]) -> str:
    body = ""
    for piece in pieces:
        inner = piece[piece.index(quote) + 1 : -1]
        if prefix == "f" and not piece.startswith("f"):
            inner = inner.replace("{", "{{").replace("}", "}}")
        body += inner
    return f"{prefix}{quote}{body}{quote}"


def _usual(prefix: str, quote: str, body: str) -> str:
    prefix = "".join(c if c in "R" else c.lower() for c in prefix).replace("u", "")
    double = '"' * len(quote)
    if quote[0] == "'" and '"' not in body:
        if "r" not in prefix.lower() and len(quote) == 1:
            body = re.sub(r"\\(.)", lambda m: "'" if m[1] == "'" else m[0], body, flags=re.S)
        # What stands in a field of an f-string may hold quotes of its own.
        if "f" not in prefix or not re.search(r"[{\\]", body) or "'" not in body:
            quote = double
    return f"{prefix}{quote}{body}{quote}"
