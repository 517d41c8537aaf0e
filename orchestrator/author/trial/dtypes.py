"""Dtypes that a test names by strings: ``getattr(torch, dtype)``, ``DTYPES[dtype]``.

The parameter becomes the dtype itself, as a configuration has it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from orchestrator.author.trial.literals import Code, Lookup, NotLiteral, Value, evaluate, kind
from orchestrator.author.trial.parameters import Group
from orchestrator.author.trial.scopes import dotted


def named_dtypes(
    body: list[ast.stmt], groups: Sequence[Group], lookup: Lookup
) -> tuple[list[ast.stmt], list[Group]]:
    """``body`` and ``groups`` with dtypes in place of their names."""
    made: list[Group] = []
    for group in groups:
        for index, name in enumerate(group.names):
            found = _dtypes_of(body, name, [row[index] for row in group.rows], lookup)
            if found is None:
                continue
            rows = [
                (*row[:index], value, *row[index + 1 :])
                for row, value in zip(group.rows, found, strict=True)
            ]
            group = Group(group.names, rows, group.place)
            plain = _Plain(name)
            body = [ast.fix_missing_locations(plain.visit(s)) for s in body]
        made.append(group)
    return body, made


def _dtypes_of(
    body: list[ast.stmt], name: str, values: list[Value], lookup: Lookup
) -> list[Value] | None:
    """The dtypes that the values of a parameter stand for; None where it is used otherwise."""
    if not values or not all(isinstance(value, str) for value in values):
        return None
    uses = [_lookup_of(n, name) for s in body for n in ast.walk(s)]
    lookups = [use for use in uses if use is not None]
    reads = sum(isinstance(n, ast.Name) and n.id == name for s in body for n in ast.walk(s))
    if not lookups or reads != len(lookups):
        return None
    found: list[list[Value]] = []
    for table in lookups:
        try:
            found.append([_looked_up(table, value, lookup) for value in values])
        except NotLiteral:
            return None
    return found[0] if all(one == found[0] for one in found) else None


def _lookup_of(node: ast.AST, name: str) -> ast.expr | None:
    """What ``node`` looks the parameter up in: ``torch``, or a table."""
    if isinstance(node, ast.Subscript):
        key, table = node.slice, node.value
    elif isinstance(node, ast.Call) and dotted(node.func) == "getattr" and len(node.args) == 2:
        table, key = node.args
    else:
        return None
    return table if isinstance(key, ast.Name) and key.id == name else None


def _looked_up(table: ast.expr, value: str, lookup: Lookup) -> Value:
    key = ast.Constant(value)
    code: ast.expr
    if dotted(table) == "torch":
        code = ast.Attribute(table, value, ast.Load())
    else:
        code = ast.Subscript(table, key, ast.Load())
    found = evaluate(code, lookup)
    if not isinstance(found, Code) or kind([found]) != "dtype":
        raise NotLiteral("no dtype")
    return found


class _Plain(ast.NodeTransformer):
    """Writes the lookups of a parameter as the parameter."""

    def __init__(self, name: str) -> None:
        self._name = name

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """``DTYPES[dtype]`` -> ``dtype``."""
        if _lookup_of(node, self._name) is not None:
            return ast.copy_location(ast.Name(self._name, ast.Load()), node)
        return super().generic_visit(node)
