"""The operator's call in a unit test: which expression each of the operator's arguments gets."""

from __future__ import annotations

import ast
from collections.abc import Callable

from orchestrator.author.facts import Operator, Place, Todo

Define = Callable[[str], ast.expr | None]


def given(call: ast.Call, operator: Operator) -> dict[str, ast.expr]:
    """What of ``call`` can be told at a glance: its plain arguments by the operator's names."""
    names = [a.name for a in operator.arguments if not a.keyword_only]
    found = dict(zip(names, call.args, strict=False))
    found.update({k.arg: k.value for k in call.keywords if k.arg})
    return found


def read_arguments(
    call: ast.Call, operator: Operator, define: Define, place: Place
) -> tuple[dict[str, ast.expr], list[Todo]]:
    """The call's arguments by the operator's names, in the order of the call.

    ``define``: the expression that a name was assigned, for ``*args`` and ``**kwargs``.
    """
    todos: list[Todo] = []
    positional: list[ast.expr] = []
    for value in call.args:
        opened = [value]
        if isinstance(value, ast.Starred):
            written = _defined(value.value, define)
            if not isinstance(written, (ast.Tuple, ast.List)):
                todos.append(Todo(f"what {ast.unparse(value)} passes to the operator", place))
                continue
            opened = written.elts
        positional.extend(opened)
    keywords: list[tuple[str, ast.expr]] = []
    for keyword in call.keywords:
        named = _named(keyword, define)
        if named is None:
            todos.append(Todo(f"what **{ast.unparse(keyword.value)} passes", place))
        else:
            keywords.extend(named)
    names = [a.name for a in operator.arguments if not a.keyword_only]
    if len(positional) > len(names):
        todos.append(
            Todo(
                f"the test passes {len(positional)} arguments, {operator.name} takes "
                f"{len(names)}: compare the call with the current signature",
                place,
            )
        )
    found = dict(zip(names, positional, strict=False))
    known = {a.name for a in operator.arguments}
    for name, value in keywords:
        if name in known and name not in found:
            found[name] = value
        else:
            what = "twice" if name in found else f"which {operator.name} lacks"
            todos.append(Todo(f"the test passes argument {name}, {what}", place))
    return found, todos


def _defined(value: ast.expr, define: Define) -> ast.expr | None:
    return define(value.id) if isinstance(value, ast.Name) else value


def _named(keyword: ast.keyword, define: Define) -> list[tuple[str, ast.expr]] | None:
    """Names and values that a keyword, or ``**table``, passes; None where that is not written."""
    if keyword.arg is not None:
        return [(keyword.arg, keyword.value)]
    table = _defined(keyword.value, define)
    if isinstance(table, ast.Call) and ast.unparse(table.func) == "dict":
        return [(k.arg, k.value) for k in table.keywords if k.arg is not None]
    if not isinstance(table, ast.Dict):
        return None
    found: list[tuple[str, ast.expr]] = []
    for key, value in zip(table.keys, table.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return None
        found.append((key.value, value))
    return found
