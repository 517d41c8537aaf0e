"""Which of a test's values make it call this operator, and the test's body for those.

Tests choose operators by parameters: ``if version == "v1"``, ``getattr(torch.ops._C, name)``, a
function among the parameters. Values that lead to another operator are left out.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable

from orchestrator.author.trial.inline import renamed
from orchestrator.author.trial.literals import (
    Code,
    Lookup,
    NotLiteral,
    Value,
    evaluate,
    kind,
    render,
)
from orchestrator.author.trial.parameters import Group
from orchestrator.author.trial.scopes import last_name

_MOST_ROWS = 64


class _Fold(ast.NodeTransformer):
    """Leaves of each ``if`` whose condition is known only the arm that is run."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        try:
            return node.body if evaluate(node.test, self._lookup) else node.orelse
        except NotLiteral:
            return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        try:
            return node.body if evaluate(node.test, self._lookup) else node.orelse
        except NotLiteral:
            return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """``FUNCTIONS["silu"]`` of a literal dict is what it holds."""
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Constant):
            table = self._lookup(node.value.id)
            if isinstance(table, ast.Dict):
                for key, value in zip(table.keys, table.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == node.slice.value:
                        return copy.deepcopy(value)
        return node


def folded(body: list[ast.stmt], values: dict[str, Value], lookup: Lookup) -> list[ast.stmt]:
    """``body`` with names replaced by values, and with the arms that are then not run left out."""
    names = {n: ast.parse(render(v), mode="eval").body for n, v in values.items()}
    module = renamed(ast.Module(body, []), names)
    folded_module = _Fold(lookup).visit(module)
    assert isinstance(folded_module, ast.Module)
    return folded_module.body


def selected(
    body: list[ast.stmt],
    groups: list[Group],
    lookup: Lookup,
    reaches: Callable[[list[ast.stmt]], bool],
) -> tuple[list[ast.stmt], list[Group]]:
    """Body and groups with the values that lead to the operator's call; see the module.

    ``reaches``: whether a body calls the operator.
    """
    kept: list[Group] = []
    for group in groups:
        choosing = [n for i, n in enumerate(group.names) if _chooses(body, n, _column(group, i))]
        if choosing:
            rows = _reaching(body, group, choosing, lookup, reaches)
            group, fixed = _fixed(group, rows, choosing)
            body = [*_made(fixed), *folded(body, fixed, lookup)]
        if group.names:
            kept.append(group)
    return body, kept


def _fixed(
    group: Group, rows: list[tuple[Value, ...]], choosing: list[str]
) -> tuple[Group, dict[str, Value]]:
    """The group with ``rows`` only, without names that thereby have one value; and these values.

    Functions and classes are no configuration: of several the first stands for all. A size or a
    dtype stays a parameter even with one value.
    """
    fixed: dict[str, Value] = {}
    for name in choosing:
        index = group.names.index(name)
        first = rows[0][index]
        same = [row for row in rows if render(row[index]) == render(first)]
        if any(_is_callable(row[index]) for row in rows):
            rows = same
            fixed[name] = first
        elif len(same) == len(rows) and (
            isinstance(first, str) or (isinstance(first, bool) and len(rows) < len(group.rows))
        ):
            fixed[name] = first
    left = [i for i, name in enumerate(group.names) if name not in fixed]
    names = tuple(group.names[i] for i in left)
    return Group(names, [tuple(row[i] for i in left) for row in rows], group.place), fixed


def _made(fixed: dict[str, Value]) -> list[ast.stmt]:
    """Assignments of those values that are made by a call, taken out of ``fixed``."""
    calls = [n for n, v in fixed.items() if isinstance(v, Code) and "(" in v.text]
    return [ast.parse(f"{name} = {render(fixed.pop(name))}").body[0] for name in calls]


def _is_callable(value: Value) -> bool:
    """Whether a value is known by a name only, as functions and classes are."""
    return isinstance(value, Code) and kind([value]) == "other"


def _column(group: Group, index: int) -> list[Value]:
    return [row[index] for row in group.rows]


def _chooses(body: list[ast.stmt], name: str, values: list[Value]) -> bool:
    """Whether what the test calls may depend on a parameter."""
    if any(map(_is_callable, values)):
        return True
    for statement in body:
        for node in ast.walk(statement):
            parts: list[ast.expr] = []
            if isinstance(node, (ast.If, ast.IfExp)):
                parts = [node.test]
            elif isinstance(node, ast.Subscript):
                parts = [node.slice]
            elif isinstance(node, ast.Call) and last_name(node.func) == "getattr":
                parts = node.args[1:2]
            if any(_in(part, name) for part in parts):
                return True
    return False


def _in(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))


def _reaching(
    body: list[ast.stmt],
    group: Group,
    names: list[str],
    lookup: Lookup,
    reaches: Callable[[list[ast.stmt]], bool],
) -> list[tuple[Value, ...]]:
    """Rows of the group with which the body calls the operator; all when none does."""
    known: dict[str, bool] = {}
    kept: list[tuple[Value, ...]] = []
    for row in group.rows:
        values = {n: row[group.names.index(n)] for n in names}
        key = render(tuple(values.values()))
        if key not in known:
            # Of more variants than this a test has no operators to choose from.
            known[key] = len(known) >= _MOST_ROWS or reaches(folded(body, values, lookup))
        if known[key]:
            kept.append(row)
    return kept or list(group.rows)
