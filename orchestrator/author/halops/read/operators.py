"""Operators on known values, kept from growing: what is too large to compute is left to a run."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from orchestrator.author.halops.read.values import Dtype

_BITS = 1024
_LONGEST = 20_000  # characters or items

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.eq,  # of plain values: None, True, a string
    ast.IsNot: operator.ne,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
_PLAIN = (int, float, str, list, tuple, set, frozenset, dict, type(None), range)


class NotKnown(Exception):
    """The result is left to a run."""


def binary(kind: ast.operator, one: Any, other: Any) -> Any:
    """``one <kind> other``; raises ``NotKnown``."""
    if not isinstance(one, _PLAIN) or not isinstance(other, _PLAIN):
        raise NotKnown
    for value in (one, other):
        if isinstance(value, int) and value.bit_length() > _BITS:
            raise NotKnown
    if isinstance(kind, (ast.Pow, ast.LShift, ast.RShift)):
        return _powers(kind, one, other)
    if isinstance(kind, ast.Mult):
        for value, times in ((one, other), (other, one)):
            if isinstance(value, (str, list, tuple)) and (
                not isinstance(times, int) or len(value) * times > _LONGEST
            ):
                raise NotKnown
    if isinstance(kind, ast.Add) and isinstance(one, (str, list, tuple)):
        length = len(other) if isinstance(other, type(one)) else _LONGEST
        if len(one) + length > _LONGEST:
            raise NotKnown
    if isinstance(kind, ast.Mod) and isinstance(one, str):
        raise NotKnown  # formatting: "%1000000000d"
    return _try(_BINARY.get(type(kind)), one, other)


def _powers(kind: ast.operator, one: Any, other: Any) -> Any:
    if not isinstance(one, (int, float)) or not isinstance(other, (int, float)):
        raise NotKnown
    if isinstance(kind, ast.Pow):
        if abs(other) > 64:
            raise NotKnown
        return _try(operator.pow, one, other)
    if not isinstance(other, int) or not 0 <= other <= 128:
        raise NotKnown
    return _try(operator.lshift if isinstance(kind, ast.LShift) else operator.rshift, one, other)


def unary(kind: ast.unaryop, one: Any) -> Any:
    """``<kind> one``; raises ``NotKnown``."""
    if not isinstance(one, _PLAIN):
        raise NotKnown
    return _try(_UNARY[type(kind)], one)


def compare(kind: ast.cmpop, one: Any, other: Any) -> bool:
    """Whether ``one <kind> other``; raises ``NotKnown``."""
    plain = (*_PLAIN, Dtype)
    if not isinstance(one, plain) or not isinstance(other, plain):
        raise NotKnown
    return bool(_try(_COMPARE[type(kind)], one, other))


def _try(what: Callable[..., Any] | None, *values: Any) -> Any:
    if what is None:
        raise NotKnown
    try:
        return what(*values)
    except (TypeError, ValueError, ArithmeticError, RecursionError):
        raise NotKnown from None
