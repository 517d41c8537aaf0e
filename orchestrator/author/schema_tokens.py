"""Tokens of torch's function schemas.

The words are those of TorchScript's lexer, of which schemas use a part: identifiers, numbers,
string literals and punctuation. Newlines end nothing inside parentheses and are not allowed
outside, as there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Longest first: an operator that schemas do not use must not be read as two that they do.
_OPERATORS = (
    *("<<=", ">>=", "**=", "<=>", "..."),
    *("->", "==", "!=", "<=", ">=", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^="),
    *("//", "**", "<<", ">>"),
    *"+-*/%@()[]:,={}><.?!&^|~",
)
KEYWORDS = frozenset(
    [
        *("False", "True", "None", "NoneType", "and", "as", "assert", "break", "class"),
        *("continue", "def", "del", "elif", "else", "for", "global", "if", "import", "in"),
        *("is", "not", "or", "pass", "raise", "return", "while", "with"),
    ]
)
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\f\v]+|\\\n|\#[^\n]*)
    |(?P<newline>\n)
    |(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?j?)
    |(?P<string>'''(?:\\[\s\S]|(?!''')[^\\])*'''|\"\"\"(?:\\[\s\S]|(?!\"\"\")[^\\])*\"\"\"
        |'(?:\\[\s\S]|[^'\\\n])*'|"(?:\\[\s\S]|[^"\\\n])*")
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<operator>"""
    + "|".join(re.escape(operator) for operator in _OPERATORS)
    + ")",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:([0-7]{3})|(\n)|([\s\S]))")
_ESCAPED = dict(zip("\\'\"abfnrtv", "\\'\"\a\b\f\n\r\t\v", strict=True))


class TokenError(ValueError):
    """Text that is no token; ``offset`` is where it begins."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


@dataclass(frozen=True)
class Token:
    """``kind``: ``word``, ``number``, ``string``, ``newline``, ``end``, or the mark or keyword."""

    kind: str
    text: str
    offset: int


def tokens(text: str) -> list[Token]:
    """Split a schema into its tokens, the last one of the kind ``end``.

    Raises ``TokenError`` at what is no token.
    """
    found: list[Token] = []
    depth = offset = 0
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            raise TokenError(f"{text[offset]!r} begins no token", offset)
        kind, word = str(match.lastgroup), match.group()
        if kind == "operator" or (kind == "word" and word in KEYWORDS):
            kind = word
        depth += (word in "([{") - (word in ")]}") if kind == word else 0
        # Lines may break inside brackets, before the first token and after the last.
        breaks = kind == "newline" and depth == 0 and bool(found)
        if breaks or kind not in ("space", "newline"):
            found.append(Token(kind, word, offset))
        offset = match.end()
    while found and found[-1].kind == "newline":
        found.pop()
    found.append(Token("end", "the end", len(text)))
    return found


def string_value(token: Token) -> str:
    """Return what a string literal stands for; raises ``TokenError`` at an escape torch refuses."""
    quote = 3 if token.text[:3] in ("'''", '"""') else 1

    def value(match: re.Match[str]) -> str:
        octal, newline, char = match.groups()
        if octal is not None and int(octal, 8) < 256:
            return chr(int(octal, 8))
        if newline is not None:
            return "\n"
        if char in _ESCAPED:
            return _ESCAPED[char]
        raise TokenError(f"unsupported escape {match.group()!r}", token.offset)

    return _ESCAPE.sub(value, token.text[quote:-quote])
