"""The comments of a source, which its syntax tree does not have."""

from __future__ import annotations

import io
import tokenize


def comments(source: str) -> tuple[dict[int, tuple[int, str]], dict[int, str]]:
    """Comments by line: on lines of their own (with their column), and behind code."""
    own: dict[int, tuple[int, str]] = {}
    beside: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            text = token.string.rstrip()
            if token.line[:column].strip():
                beside[line] = text
            else:
                own[line] = column, text
    return own, beside
