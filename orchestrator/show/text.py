"""Foreign text made fit for a terminal: harmless, measured and cut.

What a job prints is data. An escape sequence, a carriage return or a bidi override in it must not
move the cursor, set the title or reorder what stands beside it, so such characters are written
out (``\\x1b``), which also leaves a text that is harmless already as it is.
"""

from __future__ import annotations

import re
import unicodedata

# C0 without the tab, DEL and C1, bidi marks, embeddings, overrides and isolates, line and
# paragraph separators, lone surrogates.
_HARMFUL = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_PUNCTUATION = frozenset("_:-,;/)=.")
_ZERO_WIDTH = frozenset({"Mn", "Me", "Cf"})


def safe(text: str) -> str:
    """``text`` as one line that cannot act on a terminal; tabs stay."""
    return text if text.isascii() and text.isprintable() else _HARMFUL.sub(_written_out, text)


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def display_width(text: str) -> int:
    """Terminal cells that ``text`` takes: two for wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.category(character) in _ZERO_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def pad(text: str, width: int) -> str:
    """``text`` filled up with blanks to ``width`` cells; a longer one stays."""
    return text + " " * (width - display_width(text))


def truncate(text: str, width: int) -> str:
    """``text``, or its beginning and ``…`` when it takes more than ``width`` cells."""
    if len(text) <= width and display_width(text) <= width:
        return text
    head = _head(text, width - 1)
    return text[:head] + "…"


def fold(text: str, width: int) -> list[str]:
    """``text`` in pieces of at most ``width`` cells, broken at blanks.

    Only a word that is longer than a whole piece is broken itself, after punctuation if it has any.
    """
    pieces: list[str] = []
    while len(text) > width or display_width(text) > width:
        end = max(_head(text, width), 1)
        blank = text.rfind(" ", 1, end + 1)
        if text[: max(blank, 0)].strip(" "):
            end = blank
        else:
            end = next((at for at in range(end, 1, -1) if text[at - 1] in _PUNCTUATION), end)
        pieces.append(text[:end].rstrip(" "))
        text = text[end:].lstrip(" ")
    return [*pieces, text] if text or not pieces else pieces


def _head(text: str, width: int) -> int:
    """How many characters of ``text`` fit in ``width`` cells, combining ones with their base."""
    used = 0
    for position, character in enumerate(text):
        used += _cells(character)
        if used > width:
            return position
    return len(text)
