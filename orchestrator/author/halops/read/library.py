"""What is known of Python's own functions and methods, on plain values."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

from orchestrator.author.halops.read.values import Dtype, Unknown, known, united

_MOST = 4096  # items of what a call makes


def _range(*bounds: Any) -> Any:
    made = range(*bounds)
    return list(made) if len(made) <= _MOST else Unknown()


def _product(*lists: Any, repeat: int = 1) -> Any:
    count = math.prod(len(each) for each in lists) ** min(repeat, 8)
    return list(itertools.product(*lists, repeat=repeat)) if count <= _MOST else Unknown()


def _text(value: Any) -> str:
    return f"torch.{value.name}" if isinstance(value, Dtype) else str(value)


# On values that may hold unknown ones: what is inside is only moved about.
MOVING: dict[str, Callable[..., Any]] = {
    "list": lambda value=(): list(value),
    "tuple": lambda value=(): tuple(value),
    "reversed": lambda value: list(value)[::-1],
    "enumerate": lambda value, start=0: list(enumerate(value, start)),
    "zip": lambda *values, strict=False: list(zip(*values, strict=False)),
    "iter": lambda value: list(value),
    "len": len,
    "itertools.product": _product,
    "product": _product,
    "itertools.chain": lambda *values: list(itertools.chain(*values)),
    "itertools.chain.from_iterable": lambda values: list(itertools.chain.from_iterable(values)),
    "copy.copy": lambda value: value.copy() if isinstance(value, (dict, list, set)) else value,
    "copy.deepcopy": lambda value: value.copy() if isinstance(value, (dict, list, set)) else value,
}
# On values that are known throughout.
COMPUTING: dict[str, Callable[..., Any]] = {
    "int": int,
    "float": float,
    "str": lambda value="": _text(value)[:_MOST],
    "bool": bool,
    "abs": abs,
    "round": round,
    "min": min,
    "max": max,
    "sum": sum,
    "any": any,
    "all": all,
    "sorted": lambda value, reverse=False: sorted(value, reverse=reverse),
    "set": lambda value=(): set(value),
    "frozenset": lambda value=(): set(value),
    "range": _range,
    "divmod": divmod,
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "math.prod": math.prod,
    "math.sqrt": math.sqrt,
    "math.log2": math.log2,
    "math.gcd": math.gcd,
    "math.lcm": math.lcm,
    "math.isclose": math.isclose,
    "math.isfinite": math.isfinite,
}
# Of a value that is not known: what comes out is still the field's value, or its values.
KEEPING = frozenset(
    ("list", "tuple", "sorted", "set", "str", "int", "reversed", "copy.copy", "copy.deepcopy")
)
KEEPING_METHODS = frozenset(("lower", "upper", "strip", "replace", "casefold", "copy"))
_STRING = frozenset(
    re.findall(
        r"\w+",
        "lower upper strip lstrip rstrip startswith endswith split replace removeprefix"
        " removesuffix isdigit casefold partition rpartition count find",
    )
)
_LIST = frozenset(("index", "count", "copy"))
_LIST_CHANGING = frozenset(("append", "extend", "insert", "remove", "pop", "sort", "reverse"))
_SET = frozenset(("union", "intersection", "difference", "issubset", "issuperset", "copy"))
_NUMBER = frozenset(("bit_length", "bit_count", "is_integer"))


def function(name: str, args: list[Any], named: dict[str, Any]) -> Any:
    """What a call of Python's own function gives; ``Unknown`` where it cannot be known."""
    moving = MOVING.get(name)
    whole = not any(isinstance(each, Unknown) for each in args)
    what = moving if moving and whole else COMPUTING.get(name)
    if what is not None and (what is moving or all(known(each) for each in args)):
        try:
            return what(*args, **named)
        except (TypeError, ValueError, ArithmeticError, RecursionError, AttributeError):
            return Unknown(united(args))
    if name in KEEPING and args and isinstance(args[0], Unknown):
        return args[0]
    return Unknown(united([*args, *named.values()]))


def method(of: Any, name: str, args: list[Any]) -> Any:
    """What a method of a plain value gives; ``NotImplemented`` for one that is not known of."""
    allowed: frozenset[str]
    if isinstance(of, str):
        allowed = _STRING
        if name == "join" and args and isinstance(args[0], list) and known(args[0]):
            return of.join(str(each) for each in args[0])[:_MOST]
        if name in ("replace", "removeprefix") and len(of) > _MOST:
            return NotImplemented
    elif isinstance(of, (list, tuple)):
        allowed = _LIST if isinstance(of, tuple) else _LIST | _LIST_CHANGING
        if name == "extend" and not (args and isinstance(args[0], (list, tuple, set, dict))):
            return NotImplemented
        if len(of) > _MOST:
            return NotImplemented
    elif isinstance(of, set):
        allowed = _SET | {"add", "update", "discard"}
    elif isinstance(of, (int, float)):
        allowed = _NUMBER
    else:
        return NotImplemented
    if name not in allowed:
        return NotImplemented
    try:
        return getattr(of, name)(*args)
    except (TypeError, ValueError, IndexError, RecursionError):
        return NotImplemented
