"""What a test does to two sides before it compares them: sorts them, makes lists or sets of them.

A runner compares tensors and sorts them itself, so these are taken off, and remembered.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.author.trial.scopes import dotted

Define = Callable[[str], tuple[ast.expr, int | None] | None]
_DEPTH = 12


@dataclass(frozen=True)
class Side:
    """``value``: what is left when sorting and conversions are taken off."""

    value: ast.expr
    ordered: bool = False  # the test brought it into an order of its own
    converted: bool = False  # the test made a list, a set or an array of it


def side(value: ast.expr, define: Define) -> Side:
    """Take sorting and conversions off ``value``.

    ``define``: what a name was assigned, and which element of it when it was unpacked.
    """
    ordered = converted = False
    for _ in range(_DEPTH):
        inner, sorts, converts = _unwrapped(value, define)
        if inner is None:
            break
        value, ordered, converted = inner, ordered or sorts, converted or converts
    return Side(value, ordered, converted)


def _unwrapped(value: ast.expr, define: Define) -> tuple[ast.expr | None, bool, bool]:
    """What is inside the outermost layer, whether that sorts, and whether it converts."""
    if isinstance(value, ast.Name):
        known = define(value.id)
        if known is not None:
            assigned, element = known
            inner = _sorted(assigned) if element in (None, 0) else None
            # A name for a plain sort's pair is taken apart where it is used.
            if inner is not None and (element == 0 or not _is_pair(assigned)):
                return inner, True, False
    if isinstance(value, ast.Call):
        called = dotted(value.func)
        if called in ("set", "sorted", "np.sort", "numpy.sort", "Counter", "np.unique"):
            return (value.args[0] if value.args else None), True, True
        if called in ("list", "tuple", "np.array", "np.asarray") and len(value.args) == 1:
            return value.args[0], False, True
        if isinstance(value.func, ast.Attribute) and value.func.attr in ("tolist", "numpy"):
            return value.func.value, False, True
    first = isinstance(value, ast.Subscript) and (
        isinstance(value.slice, ast.Constant) and value.slice.value == 0
    )
    values = isinstance(value, ast.Attribute) and value.attr == "values"
    if (first or values) and isinstance(value, (ast.Subscript, ast.Attribute)):
        pair = value.value
        if isinstance(pair, ast.Name):
            known = define(pair.id)
            pair = known[0] if known is not None and known[1] is None else pair
        inner = _sorted(pair)
        if inner is not None:
            return inner, True, False
    return None, False, False


def _sorted(call: ast.expr) -> ast.expr | None:
    """What ``torch.sort(x)`` or ``x.sort()`` sorts along its last dimension, else None."""
    if isinstance(call, (ast.Subscript, ast.Attribute)) and not isinstance(call.value, ast.Name):
        is_first = isinstance(call, ast.Attribute) and call.attr == "values"
        if isinstance(call, ast.Subscript):
            is_first = isinstance(call.slice, ast.Constant) and call.slice.value == 0
        return _sorted(call.value) if is_first else None
    if not isinstance(call, ast.Call):
        return None
    called = dotted(call.func)
    if called in ("torch.sort", "torch.msort"):
        sorts, rest = call.args[:1], call.args[1:]
    elif isinstance(call.func, ast.Attribute) and call.func.attr == "sort":
        sorts, rest = [call.func.value], call.args
    else:
        return None
    dims = [*rest, *(k.value for k in call.keywords if k.arg in ("dim", "axis"))]
    if not sorts or any(ast.unparse(d) not in ("-1", "1") for d in dims):
        return None
    return sorts[0]


def _is_pair(call: ast.expr) -> bool:
    return isinstance(call, ast.Call)
