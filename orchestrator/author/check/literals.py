"""Literals, also through names and arithmetic: what an expression is without running it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

ValueOf = Callable[[ast.Name], "ast.expr | None"]


class _Unknown:
    """Stands for what cannot be told; a plain None is a value."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        return False


UNKNOWN = _Unknown()
_DEEPEST = 40
_MOST_STEPS = 2000
_LARGEST_INT = 1 << 80


def fold(node: ast.AST | None, value_of: ValueOf) -> Any:
    """The value of a literal, also through names (``value_of``) and arithmetic, else UNKNOWN."""
    return _Folder(value_of).fold(node, 0)


class _Folder:
    """One fold; ``steps`` are left of it, for names of names double their number each time."""

    def __init__(self, value_of: ValueOf) -> None:
        self._value_of = value_of
        self._steps = _MOST_STEPS

    def fold(self, node: ast.AST | None, depth: int) -> Any:
        self._steps -= 1
        if node is None or depth > _DEEPEST or self._steps < 0:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.fold(self._value_of(node), depth + 1)
        if isinstance(node, ast.UnaryOp):
            return _unary(node.op, self.fold(node.operand, depth + 1))
        if isinstance(node, ast.BinOp):
            left = self.fold(node.left, depth + 1)
            return _binary(node.op, left, self.fold(node.right, depth + 1))
        if isinstance(node, ast.Tuple | ast.List):
            values = [self.fold(item, depth + 1) for item in node.elts]
            if any(value is UNKNOWN for value in values):
                return UNKNOWN
            return tuple(values) if isinstance(node, ast.Tuple) else values
        return UNKNOWN


def _unary(operator: ast.unaryop, value: Any) -> Any:
    number = isinstance(value, int | float)
    if isinstance(operator, ast.Not) and value is not UNKNOWN:
        return not value
    if isinstance(operator, ast.USub) and number:
        return -value
    if isinstance(operator, ast.UAdd) and number:
        return +value
    return UNKNOWN


def _binary(operator: ast.operator, left: Any, right: Any) -> Any:
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return UNKNOWN
    try:
        if isinstance(operator, ast.Add):
            value: Any = left + right
        elif isinstance(operator, ast.Sub):
            value = left - right
        elif isinstance(operator, ast.Mult):
            value = left * right
        elif isinstance(operator, ast.Div):
            value = left / right
        elif isinstance(operator, ast.FloorDiv):
            value = left // right
        elif isinstance(operator, ast.Pow) and abs(left) <= 1 << 16 and 0 <= right <= 64:
            value = left**right
        else:
            return UNKNOWN
    except (ArithmeticError, ValueError):
        return UNKNOWN
    return UNKNOWN if isinstance(value, int) and abs(value) > _LARGEST_INT else value
