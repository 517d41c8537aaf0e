"""The literal ``SUPPORTED_OPERATORS`` list of a front door: read it, and add names to it.

Adding touches nothing else of the file and keeps the list's own style, so that the difference a
person sees is one line an operator.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from orchestrator.errors import TreeError

NAME = "SUPPORTED_OPERATORS"


def _literal(source: str, where: str) -> ast.List:
    try:
        module = ast.parse(source)
    except SyntaxError as error:
        raise TreeError(
            f"syntax error: {error.msg}", where=f"{where}:{error.lineno}", hint="fix the script"
        ) from None
    for node in module.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(t, ast.Name) and t.id == NAME for t in targets):
            value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
            if isinstance(value, ast.List) and all(
                isinstance(e, ast.Constant) and isinstance(e.value, str) for e in value.elts
            ):
                return value
            raise TreeError(
                f"{NAME} is not a literal list of strings",
                where=f"{where}:{node.lineno}",
                hint="write it as a plain list, one operator a line",
            )
    raise TreeError(
        f"there is no {NAME} list", where=where, hint="is this the suite's front door script?"
    )


def names(source: str, where: str) -> list[str]:
    """The operators that ``source`` lists, in its order; ``where`` is its path for errors."""
    return [e.value for e in _literal(source, where).elts if isinstance(e, ast.Constant)]  # type: ignore[misc]


def add(source: str, new: Iterable[str], where: str) -> str:
    """Return ``source`` with the operators ``new`` in its list, each where the alphabet wants it."""
    for name in sorted(set(new)):
        source = _add_one(source, name, where)
    return source


def _add_one(source: str, name: str, where: str) -> str:
    literal = _literal(source, where)
    there = names(source, where)
    if name in there:
        return source
    lines = source.splitlines(keepends=True)
    end = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    elements = literal.elts
    after = next((e for e in elements if isinstance(e, ast.Constant) and str(e.value) > name), None)
    one_a_line = len({e.lineno for e in elements}) == len(elements) and (
        not elements or elements[0].lineno != literal.lineno
    )
    quote = _quote(lines, elements)
    if not elements or not one_a_line:
        return _into_line(lines, literal, after, f"{quote}{name}{quote}")
    indent = re.match(r"\s*", lines[elements[-1].lineno - 1])
    fresh = f"{indent.group(0) if indent else '    '}{quote}{name}{quote},{end}"
    if after is not None:
        lines.insert(after.lineno - 1, fresh)
        return "".join(lines)
    last = elements[-1]
    assert last.end_lineno is not None and last.end_col_offset is not None
    row = last.end_lineno - 1
    raw = lines[row].encode("utf-8")
    tail = raw[last.end_col_offset :]
    if not tail.lstrip().startswith(b","):
        lines[row] = (raw[: last.end_col_offset] + b"," + tail).decode("utf-8")
    lines.insert(row + 1, fresh)
    return "".join(lines)


def _quote(lines: list[str], elements: list[ast.expr]) -> str:
    if not elements:
        return '"'
    raw = lines[elements[0].lineno - 1].encode("utf-8")
    return "'" if raw[elements[0].col_offset : elements[0].col_offset + 1] == b"'" else '"'


def _into_line(lines: list[str], literal: ast.List, after: ast.expr | None, word: str) -> str:
    """Insert into a list that has several operators a line, or none."""
    if after is not None:
        row, column, text = after.lineno - 1, after.col_offset, f"{word}, "
    elif literal.elts:
        last = literal.elts[-1]
        assert last.end_lineno is not None and last.end_col_offset is not None
        row, column, text = last.end_lineno - 1, last.end_col_offset, f", {word}"
    else:
        row, column, text = literal.lineno - 1, literal.col_offset + 1, word
    raw = lines[row].encode("utf-8")
    lines[row] = (raw[:column] + text.encode("utf-8") + raw[column:]).decode("utf-8")
    return "".join(lines)
