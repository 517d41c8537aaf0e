"""Arithmetic, comparisons and texts on what is known: folded when it can be told."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from orchestrator.author.check.flow.torch_model import DTYPE_ALIASES
from orchestrator.author.check.flow.values import (
    UNKNOWN,
    Const,
    Cosine,
    Either,
    Name,
    Opaque,
    Sequence,
    Setting,
    Shape,
    Symbol,
    Text,
    Value,
    either,
    key,
    options,
    tokens,
)

_LARGEST = 1 << 80
LONGEST = 4096
_HEAVIEST = 256
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _number(value: Value) -> bool:
    return isinstance(value, Const) and type(value.value) in (int, float)


def arithmetic(node: ast.operator, left: Value, right: Value, where: ast.AST) -> Value:
    """``left`` and ``right`` in a binary operation without tensors."""
    if isinstance(left, Either) or isinstance(right, Either):
        return either(
            arithmetic(node, one, other, where) for one in options(left) for other in options(right)
        )
    if isinstance(left, Cosine | Opaque) or isinstance(right, Cosine | Opaque):
        return _uncertain(node, left, right)
    if isinstance(left, Const) and isinstance(right, Const):
        folded = _fold(node, left.value, right.value)
        if folded is not None:
            return Const(folded, where)
    if isinstance(node, ast.Add) and (_is_text(left) or _is_text(right)):
        return Text(comma(left) or comma(right), where)
    if isinstance(node, ast.Add) and isinstance(left, Sequence) and isinstance(right, Sequence):
        both = Sequence(list(left.items), left.more)
        both.add(right.items, right.more)
        return both
    if isinstance(node, ast.Mod) and _is_text(left):
        given = right.items if isinstance(right, Sequence) else [right]
        return Text(comma(left) or any(comma(item) for item in given), where)
    if isinstance(node, ast.Mult) and isinstance(left, Sequence) and isinstance(right, Const):
        times = right.value
        if type(times) is int and 0 <= times * len(left.items) <= 64:
            return Sequence(left.items * times, left.more)
    keys = key(left), key(right)
    if None in keys or isinstance(left, Sequence) or isinstance(right, Sequence):
        return Opaque(tokens((left, right)))
    weight = _weight(left) + _weight(right)
    if weight > _HEAVIEST:
        return Opaque()
    sizes = _sizes(left) | _sizes(right)
    return Symbol((type(node).__name__, *keys), sizes, _whole(node, left, right), weight)


def _weight(value: Value) -> int:
    return value.weight if isinstance(value, Symbol) else 1


def _sizes(value: Value) -> frozenset[Any]:
    return value.sizes if isinstance(value, Symbol) else frozenset()


def _whole(node: ast.operator, left: Value, right: Value) -> bool:
    """Elements times their size, or sums of such: the bytes of whole tensors."""
    if not isinstance(left, Symbol) or not isinstance(right, Symbol):
        return False
    if not left.whole or not right.whole:
        return False
    if isinstance(node, ast.Mult):
        return left.sizes == right.sizes and len(left.sizes) == 1
    return isinstance(node, ast.Add)


def _uncertain(node: ast.operator, left: Value, right: Value) -> Value:
    one = isinstance(left, Const) and left.value in (1, 1.0)
    if isinstance(node, ast.Sub) and one and isinstance(right, Cosine):
        return Cosine(not right.distance)
    return Opaque(tokens((left, right)))


def _fold(node: ast.operator, left: Any, right: Any) -> Any:
    function = _ARITHMETIC.get(type(node))
    texts = isinstance(left, str) and isinstance(right, str) and isinstance(node, ast.Add)
    if function is None or not (texts or (_plain(left) and _plain(right))):
        return None
    if isinstance(node, ast.Pow | ast.LShift | ast.RShift) and (
        abs(left) > 1 << 16 or abs(right) > 64
    ):
        return None
    try:
        result = function(left, right)
    except (ArithmeticError, ValueError, TypeError):
        return None
    if isinstance(result, str):
        return result if len(result) <= LONGEST else None
    return (
        result
        if _plain(result) and not (isinstance(result, int) and abs(result) > _LARGEST)
        else None
    )


def _plain(value: Any) -> bool:
    return type(value) in (int, float)


def negative(value: Value) -> Value:
    """``-value``."""
    if isinstance(value, Either):
        return either(negative(option) for option in value.options)
    if isinstance(value, Const) and _plain(value.value):
        return Const(-value.value, value.node)
    found = key(value)
    if found is None:
        return Opaque(tokens(value))
    return Symbol(("neg", found), _sizes(value), weight=_weight(value))


def truth(value: Value) -> bool | None:
    """Whether a condition holds; None where it cannot be told."""
    if isinstance(value, Const):
        return bool(value.value)
    if isinstance(value, Sequence) and not value.more:
        return bool(value.items)
    if isinstance(value, Either):
        found = {truth(option) for option in value.options}
        return found.pop() if len(found) == 1 else None
    return None


def canonical(value: Value) -> Any:
    """What equality is asked of: dtypes by their one name, constants as they are; None: unknown."""
    if isinstance(value, Const):
        return ("const", value.value)
    if isinstance(value, Name) and value.path.startswith("torch."):
        return ("name", DTYPE_ALIASES.get(value.path, value.path))
    return None


def compare(node: ast.cmpop, left: Value, right: Value) -> bool | None:
    """The outcome of a comparison; None where it cannot be told."""
    if isinstance(node, ast.In | ast.NotIn):
        found = _contains(right, left)
        return found if found is None or isinstance(node, ast.In) else not found
    function = _COMPARISONS.get(type(node))
    one, other = canonical(left), canonical(right)
    if function is None or one is None or other is None:
        return None
    if isinstance(node, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
        return function(one, other)
    try:
        return bool(function(one[1], other[1])) if one[0] == other[0] == "const" else None
    except TypeError:
        return None


def _contains(container: Value, item: Value) -> bool | None:
    wanted = canonical(item)
    if wanted is None:
        return None
    if isinstance(container, Const) and isinstance(container.value, str):
        return wanted[1] in container.value if isinstance(wanted[1], str) else None
    members = getattr(container, "items", None)
    if not isinstance(container, Sequence) and not isinstance(members, dict):
        return None
    known = [canonical(member) for member in members or ()]
    if wanted in known:
        return True
    return None if None in known or getattr(container, "more", False) else False


def _is_text(value: Value) -> bool:
    return isinstance(value, Text) or (isinstance(value, Const) and isinstance(value.value, str))


def comma(value: Value) -> bool:
    """Whether ``str(value)`` certainly has a comma in it, in one branch at least."""
    if isinstance(value, Const):
        return "," in str(value.value)
    if isinstance(value, Text):
        return value.comma
    if isinstance(value, Sequence):
        return len(value.items) > 1 or any(comma(item) for item in value.items)
    if isinstance(value, Either):
        return any(comma(option) for option in value.options)
    return isinstance(value, Shape) and not value.storage.tiny


def text_method(name: str, owner: Value, args: list[Value], where: ast.AST) -> Value:
    """``"...".lower()`` and the like."""
    if isinstance(owner, Either):
        return either(text_method(name, option, args, where) for option in owner.options)
    plain = [arg.value for arg in args if isinstance(arg, Const)]
    if isinstance(owner, Const) and isinstance(owner.value, str) and len(plain) == len(args):
        try:
            result = getattr(owner.value, name)(*plain)
        except (TypeError, ValueError):
            return UNKNOWN
        return (
            UNKNOWN if isinstance(result, str) and len(result) > LONGEST else Const(result, where)
        )
    if isinstance(owner, Text) and name not in ("startswith", "endswith"):
        if name == "replace" and len(plain) == 2 and "," in str(plain[0]):
            return Text("," in str(plain[1]), where)
        return Text(owner.comma or any("," in str(p) for p in plain[1:]), where)
    return UNKNOWN


def joined(separator: Value, items: Value, where: ast.AST) -> Value:
    """``separator.join(items)``."""
    if not isinstance(items, Sequence):
        # Of something unknown: two items or more, else nobody would join them.
        return Text(comma(separator), where)
    many = len(items.items) > 1 or items.more
    return Text((many and comma(separator)) or any(comma(i) for i in items.items), where)


def setting_default(value: Value) -> Value:
    """What a setting is when the config does not have it; other values as they are."""
    if isinstance(value, Setting) and value.default is not None:
        return value.default
    return value
