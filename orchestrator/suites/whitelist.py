"""The literal ``SUPPORTED_OPERATORS`` list of a front door: read it, and add names to it.

Adding touches nothing else of the file and keeps the list's own style, so that the difference a
person sees is one line an operator.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Iterable

from orchestrator.errors import TreeError

NAME = "SUPPORTED_OPERATORS"
_PARSING = threading.Lock()  # the warnings' filter is everybody's
# Lines as Python counts them: a form feed or U+2028 ends none.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def parse(source: str, where: str) -> ast.Module:
    """Parse a Python file of the tree; ``where`` is its path for errors."""
    try:
        with _PARSING, warnings.catch_warnings():
            # What Python thinks of somebody's escapes is not our user's news.
            warnings.simplefilter("ignore")
            # A byte order mark is no part of the text.
            return ast.parse(source.removeprefix("\ufeff"))
    except SyntaxError as error:
        raise TreeError(
            f"syntax error: {error.msg}", where=f"{where}:{error.lineno or 1}", hint="fix it"
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        # NUL bytes, or nested without end.
        reason = str(error) or type(error).__name__
        raise TreeError(f"not Python: {reason}", where=f"{where}:1", hint="fix it") from None


def lines(source: str) -> list[str]:
    """The lines of a source as Python counts them, each with its end."""
    return _LINE.findall(source)


def literal(source: str, where: str) -> ast.List:
    """The list itself, each element with its place; raises ``TreeError`` when it is none."""
    module = parse(source, where)
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
    return [e.value for e in literal(source, where).elts if isinstance(e, ast.Constant)]  # type: ignore[misc]


def add(source: str, new: Iterable[str], where: str) -> str:
    """Return ``source`` with the operators ``new`` in its list, each where the alphabet wants it.

    Raises ``TreeError`` when the list is written in a way that cannot be added to safely.
    """
    for name in sorted(set(new) - set(names(source, where))):
        source = _add_one(source, name, where)
    return source


def tidy(source: str, where: str) -> str:
    """Return ``source`` with the list in alphabetical order and each operator once.

    Raises ``TreeError`` when the list is written in a way that this cannot be done to safely:
    with comments of their own between operators, or several on a line and one of them twice.
    """
    found = literal(source, where)
    there = names(source, where)
    rows = lines(source)
    wanted = sorted(set(there))
    if wanted == there:
        return source
    first, last = found.lineno - 1, found.end_lineno or found.lineno
    if _one_a_line(found):
        own = {e.lineno - 1: name for e, name in zip(found.elts, there, strict=True)}
        by_name = {name: rows[row] for row, name in sorted(own.items(), reverse=True)}
        if len(own) == max(own) - min(own) + 1:  # nothing stands between them
            ended = {name: _with_comma(text, name) for name, text in by_name.items()}
            rows[min(own) : max(own) + 1] = [ended[name] for name in wanted]
    elif len(wanted) == len(there) and not any("#" in row for row in rows[first:last]):
        for element, name in reversed(list(zip(found.elts, wanted, strict=True))):
            if element.lineno == element.end_lineno:
                raw = rows[element.lineno - 1].encode("utf-8")
                word = _quoted(name, rows, [element]).encode("utf-8")
                raw = raw[: element.col_offset] + word + raw[element.end_col_offset :]
                rows[element.lineno - 1] = raw.decode("utf-8")
    tidied = "".join(rows)
    try:
        safe = names(tidied, where) == wanted
    except TreeError:
        safe = False
    if not safe:
        raise TreeError(
            f"cannot put {NAME} in order", where=f"{where}:{found.lineno}", hint="do it by hand"
        )
    return tidied


def _with_comma(row: str, name: str) -> str:
    """The row of an operator with a comma behind it, which the last one may lack."""
    for word in (f'"{name}"', f"'{name}'"):
        head, found, tail = row.partition(word)
        if found and not tail.lstrip().startswith(","):
            return f"{head}{word},{tail}"
    return row


def _add_one(source: str, name: str, where: str) -> str:
    found = literal(source, where)
    there = names(source, where)
    index = next((i for i, known in enumerate(there) if known > name), len(there))
    rows = lines(source)
    word = _quoted(name, rows, found.elts)
    if _one_a_line(found):
        _own_line(rows, found.elts, index, word)
    else:
        _into_line(rows, found, index, word)
    grown = "".join(rows)
    # The proof of the edit: nothing but the name is new.
    expected = [*there[:index], name, *there[index:]]
    try:
        safe = names(grown, where) == expected
    except TreeError:
        safe = False
    if not safe:
        raise TreeError(
            f"cannot add {name!r} to {NAME}",
            where=f"{where}:{found.lineno}",
            hint="add it there by hand",
        )
    return grown


def _one_a_line(literal: ast.List) -> bool:
    rows = [e.lineno for e in literal.elts]
    own_rows = len(set(rows)) == len(rows) and all(e.end_lineno == e.lineno for e in literal.elts)
    return bool(rows) and own_rows and rows[0] != literal.lineno and rows[-1] != literal.end_lineno


def _quoted(name: str, lines: list[str], elements: list[ast.expr]) -> str:
    if elements:
        raw = lines[elements[0].lineno - 1].encode("utf-8")
        if raw[elements[0].col_offset : elements[0].col_offset + 1] == b"'":
            return f"'{name}'"
    return f'"{name}"'


def _own_line(lines: list[str], elements: list[ast.expr], index: int, word: str) -> None:
    near = elements[min(index, len(elements) - 1)].lineno - 1
    indent = lines[near][: len(lines[near]) - len(lines[near].lstrip())]
    end = lines[near][len(lines[near].rstrip("\r\n")) :]
    if index < len(elements):
        lines.insert(near, f"{indent}{word},{end}")
        return
    column = elements[-1].end_col_offset
    raw = lines[near].encode("utf-8")
    if not raw[column:].lstrip().startswith(b","):
        lines[near] = (raw[:column] + b"," + raw[column:]).decode("utf-8")
    lines.insert(near + 1, f"{indent}{word},{end}")


def _into_line(lines: list[str], literal: ast.List, index: int, word: str) -> None:
    """Insert into a list that has several operators a line, or none."""
    if index < len(literal.elts):
        after = literal.elts[index]
        row, column, text = after.lineno - 1, after.col_offset, f"{word}, "
    elif literal.elts:
        last = literal.elts[-1]
        assert last.end_lineno is not None and last.end_col_offset is not None
        row, column, text = last.end_lineno - 1, last.end_col_offset, f", {word}"
    else:
        row, column, text = literal.lineno - 1, literal.col_offset + 1, word
    raw = lines[row].encode("utf-8")
    lines[row] = (raw[:column] + text.encode("utf-8") + raw[column:]).decode("utf-8")
