"""Values of expressions without running them: numbers, strings, lists of them, torch dtypes.

A value is Python's own, or ``Code`` where it can only be written: ``torch.float16``, a function's
name. All work is bounded: no list is longer than ``LONGEST``, no number larger than a machine's.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.author.trial.inline import bound_arguments
from orchestrator.author.trial.scopes import dotted

LONGEST = 4096
_DEEPEST = 16
_SPELLINGS = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "cfloat": "complex64",
}
_DTYPE = re.compile(
    r"torch\.(float(16|32|64|8_\w+)?|bfloat16|half|double|u?int(8|16|32|64)?|short|long|bool"
    r"|complex(64|128)|cfloat)"
)
Kind = Literal["int", "float", "bool", "str", "dtype", "other"]


class NotLiteral(Exception):
    """The expression's value cannot be known without running something."""


@dataclass(frozen=True)
class Code:
    """A value that is only known by the expression that makes it."""

    text: str


class Record(dict[str, Any]):
    """What a class of plain fields makes. ``made_by``: the name of the class."""

    def __init__(self, made_by: str, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self.made_by = made_by


Value = Any  # int, float, str, bool, None, list, tuple, dict, Record or Code
Lookup = Callable[[str], ast.expr | None]

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
}
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
}
_CALLS: dict[str, Callable[..., Any]] = {
    "list": list,
    "tuple": tuple,
    "sorted": sorted,
    "len": len,
    "min": min,
    "max": max,
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "abs": abs,
    "sum": sum,
    "round": round,
    "dict": dict,
    "set": lambda x: list(dict.fromkeys(x)),
    "reversed": lambda x: list(x)[::-1],
    "math.sqrt": math.sqrt,
    "math.prod": math.prod,
    "math.ceil": math.ceil,
    "math.log2": math.log2,
}
_ITERATORS: dict[str, Callable[..., Any]] = {
    "range": range,
    "zip": zip,
    "enumerate": enumerate,
    "product": itertools.product,
    "itertools.product": itertools.product,
    "chain": itertools.chain,
    "itertools.chain": itertools.chain,
    "itertools.combinations": itertools.combinations,
}


def evaluate(node: ast.expr, lookup: Lookup, *, opaque: bool = False) -> Value:
    """The value of ``node``; ``lookup`` gives the expression that a name stands for, or None.

    ``opaque``: what cannot be evaluated inside of a list becomes ``Code``, no ``NotLiteral``.
    """
    try:
        return _Evaluation(lookup, opaque).value(node)
    except NotLiteral:
        raise
    except Exception as error:  # noqa: BLE001  # a test's own arithmetic may be wrong in any way
        raise NotLiteral(str(error)) from None


class _Evaluation:
    def __init__(self, lookup: Lookup, opaque: bool) -> None:
        self._lookup = lookup
        self._opaque = opaque
        self._steps = 0
        self._names: list[dict[str, Value]] = [{}]
        self._open: set[str] = set()

    def value(self, node: ast.expr) -> Value:
        self._steps += 1
        if self._steps > 20 * LONGEST:
            raise NotLiteral("too much to evaluate")
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise NotLiteral(type(node).__name__)
        return method(node)

    def _constant(self, node: ast.Constant) -> Value:
        if node.value is ... or isinstance(node.value, (bytes, complex)):
            raise NotLiteral("constant")
        return node.value

    def _name(self, node: ast.Name) -> Value:
        for names in reversed(self._names):
            if node.id in names:
                return names[node.id]
        known = self._lookup(node.id)
        if known is None or node.id in self._open:
            raise NotLiteral(node.id)
        self._open.add(node.id)
        try:
            return self.value(known)
        finally:
            self._open.discard(node.id)

    def _attribute(self, node: ast.Attribute) -> Value:
        path = dotted(node)
        if path is not None and _DTYPE.fullmatch(path):
            return Code(canonical(path))
        if path in ("math.inf", "math.pi", "math.e", "np.inf", "torch.inf"):
            return getattr(math, path.rpartition(".")[2])
        raise NotLiteral("attribute")

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return not self._plain(value)
        if isinstance(node.op, ast.USub):
            return -value
        if isinstance(node.op, ast.UAdd):
            return +value
        return ~value

    def _binop(self, node: ast.BinOp) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        sized = isinstance(left, (list, tuple, str)) or isinstance(right, (list, tuple, str))
        if isinstance(node.op, (ast.Pow, ast.LShift)) and (abs(right) > 64 or abs(left) > 1e6):
            raise NotLiteral("too large")
        if sized and isinstance(node.op, ast.Mult):
            many, items = (left, right) if isinstance(left, int) else (right, left)
            if many * len(items) > LONGEST:
                raise NotLiteral("too long")
        return self._bounded(_BINARY[type(node.op)](left, right))

    def _boolop(self, node: ast.BoolOp) -> Value:
        """A part that decides is enough, whatever the others are."""
        decides = isinstance(node.op, ast.Or)
        unknown: NotLiteral | None = None
        last: Value = None
        for part in node.values:
            try:
                last = self._plain(self.value(part))
            except NotLiteral as error:
                unknown = error
                continue
            if bool(last) is decides:
                return last
        if unknown is not None:
            raise unknown
        return last

    def _compare(self, node: ast.Compare) -> Value:
        left = self.value(node.left)
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = self.value(part)
            for side in (left, right):
                if isinstance(side, Code) and not _DTYPE.fullmatch(side.text):
                    # Two names may stand for one thing.
                    raise NotLiteral("compares what is not known")
            if not _COMPARED[type(op)](left, right):
                return False
            left = right
        return True

    def _ifexp(self, node: ast.IfExp) -> Value:
        return self.value(node.body if self._plain(self.value(node.test)) else node.orelse)

    def _list(self, node: ast.List) -> Value:
        return self._bounded(self._elements(node.elts))

    def _tuple(self, node: ast.Tuple) -> Value:
        return tuple(self._bounded(self._elements(node.elts)))

    def _set(self, node: ast.Set) -> Value:
        return self._bounded(self._elements(node.elts))

    def _elements(self, nodes: list[ast.expr]) -> list[Value]:
        found: list[Value] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found.extend(self.value(node.value))
            else:
                found.append(self._element(node))
        return found

    def _element(self, node: ast.expr) -> Value:
        try:
            return self.value(node)
        except NotLiteral:
            if not self._opaque:
                raise
            return Code(ast.unparse(node))

    def _dict(self, node: ast.Dict) -> Value:
        found: dict[Value, Value] = {}
        for key, part in zip(node.keys, node.values, strict=True):
            if key is None:
                found.update(self.value(part))
            else:
                found[self.value(key)] = self._element(part)
        return found

    def _subscript(self, node: ast.Subscript) -> Value:
        if isinstance(node.slice, ast.Slice):
            ends = [
                None if part is None else self.value(part)
                for part in (node.slice.lower, node.slice.upper, node.slice.step)
            ]
            return self.value(node.value)[slice(*ends)]
        return self.value(node.value)[self.value(node.slice)]

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Value:
        return self._looped(node.generators, lambda: self._element(node.elt))

    _generatorexp = _listcomp
    _setcomp = _listcomp

    def _looped(self, loops: list[ast.comprehension], result: Callable[[], Value]) -> list[Value]:
        if not loops:
            return [result()]
        found: list[Value] = []
        for item in self._bounded(list(self.value(loops[0].iter))):
            names: dict[str, Value] = {}
            bind(loops[0].target, item, names)
            self._names.append(names)
            try:
                if all(self._plain(self.value(test)) for test in loops[0].ifs):
                    found.extend(self._looped(loops[1:], result))
            finally:
                self._names.pop()
            self._bounded(found)
        return found

    def _call(self, node: ast.Call) -> Value:
        path = dotted(node.func)
        if path in _ITERATORS or path in _CALLS:
            arguments = self._elements(node.args)
            named = {k.arg: self.value(k.value) for k in node.keywords if k.arg}
            if path in _CALLS:
                return self._bounded(_CALLS[path](*arguments, **named))
            made = _ITERATORS[path or ""](*arguments, **named)
            return self._bounded(list(itertools.islice(made, LONGEST + 1)))
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("keys", "values", "items"):
            return list(getattr(self.value(node.func.value), node.func.attr)())
        function = self._lookup(path) if path is not None else None
        if isinstance(function, ast.Lambda) and path is not None:
            return self._made(path, function, node)
        if path in ("os.environ.get", "os.getenv") and len(node.args) == 2:
            # The environment that a test is usually run in sets nothing for it.
            return self.value(node.args[1])
        raise NotLiteral("call")

    def _made(self, name: str, function: ast.Lambda, call: ast.Call) -> Value:
        """What a function of one expression gives back; of one that only names fields a record."""
        given = bound_arguments(function, call)
        if given is None or len(self._names) > _DEEPEST:
            raise NotLiteral("call")
        values = {key: self._element(value) for key, value in given.items()}
        self._names.append(values)
        try:
            made = self.value(function.body)
        finally:
            self._names.pop()
        return Record(name, made) if isinstance(made, dict) and made == values else made

    def _plain(self, value: Value) -> Value:
        if isinstance(value, Code):
            raise NotLiteral(value.text)
        return value

    def _bounded(self, value: Value) -> Value:
        if isinstance(value, (list, tuple, str)) and len(value) > LONGEST:
            raise NotLiteral("too long")
        if isinstance(value, int) and value.bit_length() > 128:
            raise NotLiteral("too large")
        return value


def bind(target: ast.expr, value: Value, names: dict[str, Value]) -> None:
    """Put what ``target = value`` would bind into ``names``. Raises ``NotLiteral``."""
    if isinstance(target, ast.Name):
        names[target.id] = value
    elif isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (list, tuple)):
        if len(target.elts) != len(value):
            raise NotLiteral("unpacks another number of values")
        for part, item in zip(target.elts, value, strict=True):
            bind(part, item, names)
    else:
        raise NotLiteral("target")


def canonical(path: str) -> str:
    """A torch dtype in its one spelling: ``torch.half`` is ``torch.float16``."""
    name = path.removeprefix("torch.")
    return f"torch.{_SPELLINGS.get(name, name)}"


def render(value: Value) -> str:
    """A value as Python code."""
    if isinstance(value, Code):
        return value.text
    if isinstance(value, list):
        return f"[{', '.join(map(render, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(render, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, Record):
        given = ", ".join(f"{key}={render(part)}" for key, part in value.items())
        return f"{value.made_by}({given})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{render(k)}: {render(v)}' for k, v in value.items())}}}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)


def kind(values: list[Value]) -> Kind:
    """What sort of values these are; ``None`` among others changes nothing."""
    kinds = {_kind(value) for value in values if value is not None}
    if kinds == {"int", "float"}:
        return "float"
    return kinds.pop() if len(kinds) == 1 else "other"


def _kind(value: Value) -> Kind:
    if isinstance(value, Code):
        return "dtype" if _DTYPE.fullmatch(value.text) else "other"
    names: dict[type, Kind] = {bool: "bool", int: "int", float: "float", str: "str"}
    return names.get(type(value), "other")
