"""What a scenario's code does with the order of backends: moves one first, takes one as the base.

Told by the code's form alone: a call of a function whose name says that it moves something to the
front, or ``["halops"] + rest``, ``insert(0, "halops")``, ``sorted(key=... "halops")``; and a name
for the base that is set once, ``if base is None: base = ...``, ``base = next(...)``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from orchestrator.author.halops.facts import Place
from orchestrator.author.halops.read.values import Function

_MOVES = re.compile(r"front|first|reorder|priorit|lead", re.IGNORECASE)
_BASE = re.compile(r"base|ref|first|golden", re.IGNORECASE)
_TAKEN = re.compile(r"^_?base", re.IGNORECASE)
_HALOPS = "halops"


def _nodes(functions: Iterable[Function]) -> Iterator[tuple[Function, ast.AST]]:
    seen: set[int] = set()
    for function in functions:
        for node in ast.walk(function.node):
            if id(node) not in seen:
                seen.add(id(node))
                yield function, node


def moved(functions: Iterable[Function]) -> Place | None:
    """Where the code puts ``halops`` first whatever the config says, None where it does not."""
    for function, node in _nodes(functions):
        if _moves(node):
            return Place(function.source.shown, getattr(node, "lineno", 1))
    return None


def _says(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Constant) and each.value == _HALOPS for each in ast.walk(node))


def _moves(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return isinstance(node.left, ast.List) and len(node.left.elts) == 1 and _says(node.left)
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if name in ("sorted", "sort"):
        return any(keyword.arg == "key" and _says(keyword.value) for keyword in node.keywords)
    if name == "insert":
        first = node.args[0] if node.args else None
        return isinstance(first, ast.Constant) and first.value == 0 and _says(node)
    arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
    return bool(_MOVES.search(name)) and any(_says(each) for each in arguments)


def first_is_base(functions: Iterable[Function]) -> Place | None:
    """Where the first backend that succeeds becomes what others are compared with."""
    for function, node in _nodes(functions):
        if _takes_first(node):
            return Place(function.source.shown, getattr(node, "lineno", 1))
        if not isinstance(node, ast.If):
            continue
        for test in ast.walk(node.test):
            name = _none_or_not(test)
            if name and _BASE.search(name) and any(_sets(each, name) for each in node.body):
                return Place(function.source.shown, node.lineno)
    return None


def _takes_first(node: ast.AST) -> bool:
    """``base = next(...)``, ``base = done[0]``, or ``base=first_success`` handed on."""
    if isinstance(node, ast.Assign):
        named = any(isinstance(t, ast.Name) and _TAKEN.search(t.id) for t in node.targets)
        return named and (_is_next(node.value) or _is_first(node.value))
    if isinstance(node, ast.keyword) and node.arg and _TAKEN.search(node.arg):
        return "first" in ast.unparse(node.value)
    return False


def _is_next(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "next"


def _is_first(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and node.slice.value == 0
    )


def _none_or_not(test: ast.AST) -> str | None:
    """The name in ``name is None`` or ``not name``."""
    of: ast.expr | None = None
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is):
        right = test.comparators[0]
        of = test.left if isinstance(right, ast.Constant) and right.value is None else None
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        of = test.operand
    return ast.unparse(of) if isinstance(of, (ast.Name, ast.Attribute)) else None


def _sets(statement: ast.stmt, name: str) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    for target in targets:
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        if any(ast.unparse(each) == name for each in parts):
            return True
    return False
