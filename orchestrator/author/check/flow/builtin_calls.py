"""Python's own functions, as far as runners use them on sizes, texts and lists of tensors."""

from __future__ import annotations

import ast

from orchestrator.author.check.flow import constants, torch_model
from orchestrator.author.check.flow.expressions import Expressions, iterated, spread
from orchestrator.author.check.flow.frames import SELF_DTYPE
from orchestrator.author.check.flow.values import (
    UNKNOWN,
    Const,
    Cosine,
    Mapping,
    Name,
    Opaque,
    Sequence,
    Setting,
    Shape,
    Symbol,
    Text,
    Value,
    tokens,
)


class Builtins(Expressions):
    """``_builtin_x`` is Python's ``x``; None: called in a way that is not worked out."""

    def _builtin_getattr(
        self, args: list[Value], kwargs: dict[str, Value], node: ast.AST
    ) -> Value | None:
        if len(args) < 2:
            return None
        name = args[1]
        if args[0] == Name("torch") and isinstance(name, Setting):
            return SELF_DTYPE if name.key == "dtype" else Name(f"torch.[{name.key}]")
        if isinstance(name, Const) and isinstance(name.value, str):
            return self.attribute(args[0], name.value, node)
        return UNKNOWN

    def _builtin_str(
        self, args: list[Value], kwargs: dict[str, Value], node: ast.AST
    ) -> Value | None:
        value = args[0] if len(args) == 1 else UNKNOWN
        if isinstance(value, Name) and value.path.startswith("torch."):
            return Const(torch_model.DTYPE_ALIASES.get(value.path, value.path), node)
        if isinstance(value, Const):
            return Const(str(value.value), node)
        return value if isinstance(value, Setting) else Text(constants.comma(value), node)

    _builtin_repr = _builtin_str

    def _builtin_list(
        self, args: list[Value], kwargs: dict[str, Value], node: ast.AST
    ) -> Value | None:
        if not args:
            return Sequence([])
        if isinstance(args[0], Shape):
            return args[0]
        items, more = spread(args[0])
        return Sequence(items, more) if items or not more else Opaque(tokens(args[0]))

    _builtin_tuple = _builtin_list

    def _builtin_dict(
        self, args: list[Value], kwargs: dict[str, Value], node: ast.AST
    ) -> Value | None:
        found = Mapping({Const(name): value for name, value in kwargs.items()})
        if args and isinstance(args[0], Mapping):
            found.items = {**args[0].items, **found.items}
            found.more = args[0].more
        else:
            found.more = bool(args)
        return found

    def _builtin_zip(
        self, args: list[Value], kwargs: dict[str, Value], node: ast.AST
    ) -> Value | None:
        columns = [iterated(value, self.machine, node) for value in args]
        rows = zip(*(items for items, _ in columns), strict=False)
        return Sequence([Sequence(list(row)) for row in rows], any(more for _, more in columns))

    def _builtin_enumerate(
        self, args: list[Value], kwargs: dict[str, Value], node: ast.AST
    ) -> Value | None:
        if not args:
            return None
        items, more = iterated(args[0], self.machine, node)
        return Sequence([Sequence([Const(i), item]) for i, item in enumerate(items)], more)

    def _builtin_int(
        self, args: list[Value], kwargs: dict[str, Value], node: ast.AST
    ) -> Value | None:
        value = args[0] if len(args) == 1 else UNKNOWN
        if isinstance(value, Const) and isinstance(value.value, int | float | str):
            try:
                return Const(int(value.value), value.node or node)
            except (ValueError, OverflowError):
                return UNKNOWN
        return value if isinstance(value, Symbol | Setting | Cosine) else Opaque()

    def _builtin_float(
        self, args: list[Value], kwargs: dict[str, Value], node: ast.AST
    ) -> Value | None:
        value = args[0] if len(args) == 1 else UNKNOWN
        if isinstance(value, Const) and isinstance(value.value, int | float | str):
            try:
                return Const(float(value.value), value.node or node)
            except (ValueError, OverflowError):
                return UNKNOWN
        return value if isinstance(value, Symbol | Setting | Cosine) else Opaque()

    def _builtin_len(
        self, args: list[Value], kwargs: dict[str, Value], node: ast.AST
    ) -> Value | None:
        value = args[0] if len(args) == 1 else UNKNOWN
        if isinstance(value, Sequence | Mapping) and not value.more:
            return Const(len(value.items), node)
        return Opaque()

    def _builtin_range(
        self, args: list[Value], kwargs: dict[str, Value], node: ast.AST
    ) -> Value | None:
        ends = [a.value for a in args if isinstance(a, Const) and type(a.value) is int]
        if len(ends) == len(args) and 1 <= len(ends) <= 3 and 0 not in ends[2:]:
            numbers = range(*ends)
            if len(numbers) <= 8:
                return Sequence([Const(n, node) for n in numbers])
        return Sequence([Symbol(("range", id(node)))], more=True)

    def _builtin_sum(
        self, args: list[Value], kwargs: dict[str, Value], node: ast.AST
    ) -> Value | None:
        return Opaque(tokens(args))

    _builtin_max = _builtin_min = _builtin_sorted = _builtin_all = _builtin_any = _builtin_sum
