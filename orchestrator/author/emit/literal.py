"""What the little Python of a unit test's values and conditions comes to, without running it."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from orchestrator.author.trial.literals import Code, NotLiteral, Value, evaluate, render

__all__ = ["Code", "NotLiteral", "Value", "holds", "value_of"]


def value_of(code: str, names: Mapping[str, Value] | None = None) -> Value:
    """What ``code`` comes to where ``names`` have these values; a dtype is ``Code``.

    Raises ``NotLiteral``.
    """
    known = names or {}

    def lookup(name: str) -> ast.expr | None:
        return _expression(render(known[name])) if name in known else None

    try:
        return evaluate(_expression(code.strip()), lookup)
    except SyntaxError as error:
        raise NotLiteral(str(error)) from None


def holds(condition: str, names: Mapping[str, Value]) -> bool:
    """Whether ``condition`` is true; what cannot be told is not."""
    try:
        value = value_of(condition, names)
    except NotLiteral:
        return False
    return bool(value) and not isinstance(value, Code)


def _expression(code: str) -> ast.expr:
    return ast.parse(code, mode="eval").body
