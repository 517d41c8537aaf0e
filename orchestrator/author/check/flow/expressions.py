"""Evaluation of expressions: literals, subscripts, operations, comprehensions."""

from __future__ import annotations

import ast

from orchestrator.author.check.flow import constants
from orchestrator.author.check.flow.frames import (
    CONFIG,
    UNROLLED,
    Machine,
)
from orchestrator.author.check.flow.names import Names
from orchestrator.author.check.flow.values import (
    UNKNOWN,
    Const,
    Either,
    Frame,
    Function,
    Mapping,
    Name,
    Opaque,
    Sequence,
    Setting,
    Shape,
    Symbol,
    Tensor,
    Text,
    Value,
    either,
    key,
    options,
    tensors,
    tokens,
)


class Expressions(Names):
    """Evaluates expressions that are no calls."""

    # Literals.

    def _constant(self, node: ast.Constant, frame: Frame) -> Value:
        return Const(node.value, node)

    def _tuple(self, node: ast.Tuple | ast.List | ast.Set, frame: Frame) -> Value:
        found = Sequence([])
        for element in node.elts:
            if isinstance(element, ast.Starred):
                found.add(*spread(self.evaluate(element.value, frame)))
            else:
                found.add([self.evaluate(element, frame)])
        return found

    _list = _tuple
    _set = _tuple

    def _dict(self, node: ast.Dict, frame: Frame) -> Value:
        found = Mapping({})
        for name, value in zip(node.keys, node.values, strict=True):
            given = self.evaluate(value, frame)
            if name is not None:
                found.items[self.evaluate(name, frame)] = given
            elif isinstance(given, Mapping):
                found.items.update(given.items)
                found.more |= given.more
            else:
                found.more = True
        return found

    def _joinedstr(self, node: ast.JoinedStr, frame: Frame) -> Value:
        parts = [self.evaluate(part, frame) for part in node.values]
        known = [p.value for p in parts if isinstance(p, Const) and isinstance(p.value, str)]
        if len(known) == len(parts) and sum(map(len, known)) <= constants.LONGEST:
            return Const("".join(known), node)
        return Text(any(constants.comma(part) for part in parts), node)

    def _formattedvalue(self, node: ast.FormattedValue, frame: Frame) -> Value:
        value = self.evaluate(node.value, frame)
        if node.format_spec is not None:
            # {n:,} writes thousands with commas.
            return Text(constants.comma(self.evaluate(node.format_spec, frame)), node)
        if isinstance(value, Const):
            return Const(str(value.value), node)
        return Text(constants.comma(value), node)

    # Subscripts.

    def _subscript(self, node: ast.Subscript, frame: Frame) -> Value:
        owner = self.evaluate(node.value, frame)
        if isinstance(node.slice, ast.Slice):
            index: Value = Opaque(tokens(self._bounds(node.slice, frame)))
        else:
            index = self.evaluate(node.slice, frame)
        return either(self._item(one, index, node) for one in options(owner))

    def _bounds(self, node: ast.Slice, frame: Frame) -> list[Value]:
        return [self.evaluate(b, frame) for b in (node.lower, node.upper, node.step) if b]

    def _slice(self, node: ast.Slice, frame: Frame) -> Value:
        self._bounds(node, frame)
        return Name("slice")

    def _item(self, owner: Value, index: Value, node: ast.Subscript) -> Value:
        if owner == CONFIG:
            return self.setting(index, None, node)
        if isinstance(owner, Tensor):
            if _plain_index(node.slice, index):
                return Tensor(owner.storage, ast.unparse(node.slice))
            return self.machine.computed(node, owner, index)
        if isinstance(owner, Shape):
            if isinstance(node.slice, ast.Slice):
                return Sequence([], more=True)
            found = key(index)
            sizes = frozenset({owner.storage})
            return Symbol(("dim", id(owner.storage), found), sizes) if found else UNKNOWN
        if isinstance(owner, Sequence):
            return self._of_sequence(owner, index, node)
        if isinstance(owner, Mapping):
            if index in owner.items:
                return owner.items[index]
            return Opaque(tokens(owner))
        if isinstance(owner, Function):
            return Name(f"kernel:{owner.name}")  # a Triton kernel with its grid
        if isinstance(owner, Name):
            return Name(f"{owner.path}[]")
        return Opaque(tokens((owner, index)))

    def _of_sequence(self, owner: Sequence, index: Value, node: ast.Subscript) -> Value:
        if isinstance(node.slice, ast.Slice):
            bounds = [self.source.literal(b) for b in (node.slice.lower, node.slice.upper)]
            whole = (None, None) if node.slice.step is None and not owner.more else None
            lower, upper = (
                (None if b is None else value)
                for b, value in zip((node.slice.lower, node.slice.upper), bounds, strict=True)
            )
            known = all(value is None or type(value) is int for value in (lower, upper))
            if whole is not None and known:
                return Sequence(owner.items[lower:upper])
            return Sequence(list(owner.items), more=True)
        if isinstance(index, Const) and type(index.value) is int and not owner.more:
            if -len(owner.items) <= index.value < len(owner.items):
                return owner.items[index.value]
            return UNKNOWN
        return either(owner.items) if owner.items and not owner.more else Opaque(tokens(owner))

    # Operations.

    def _binop(self, node: ast.BinOp, frame: Frame) -> Value:
        left, right = self.evaluate(node.left, frame), self.evaluate(node.right, frame)
        return self.binary(node.op, left, right, node)

    def binary(self, operator: ast.operator, left: Value, right: Value, node: ast.AST) -> Value:
        """A binary operation; with a tensor in it a tensor."""
        if any(isinstance(o, Tensor) for side in (left, right) for o in options(side)):
            if isinstance(node, ast.BinOp):
                self.machine.computes(node, type(operator).__name__, left, right)
            made = self.machine.computed(node, left, right)
            if isinstance(operator, ast.Sub):
                self.machine.compared(node, "-", left, right)
            return made
        return constants.arithmetic(operator, left, right, node)

    def _unaryop(self, node: ast.UnaryOp, frame: Frame) -> Value:
        value = self.evaluate(node.operand, frame)
        if isinstance(node.op, ast.Not):
            known = constants.truth(value)
            return Opaque(tokens(value)) if known is None else Const(not known, node)
        if tensors(value):
            return self.machine.computed(node, value)
        return constants.negative(value) if isinstance(node.op, ast.USub) else value

    def _boolop(self, node: ast.BoolOp, frame: Frame) -> Value:
        stops = isinstance(node.op, ast.Or)
        found: list[Value] = []
        for operand in node.values:
            value = self.evaluate(operand, frame)
            known = constants.truth(value)
            if known is stops:
                return either([*found, value])
            if known is None:
                found.append(value)
        return either(found) if found else value

    def _compare(self, node: ast.Compare, frame: Frame) -> Value:
        values = [self.evaluate(side, frame) for side in (node.left, *node.comparators)]
        outcomes = []
        for operator, left, right in zip(node.ops, values, values[1:], strict=False):
            self.machine.compared(node, type(operator).__name__, left, right)
            outcomes.append(constants.compare(operator, left, right))
        if False in outcomes:
            return Const(False, node)
        if None in outcomes:
            return Opaque(tokens(values))
        return Const(True, node)

    def _ifexp(self, node: ast.IfExp, frame: Frame) -> Value:
        known = constants.truth(self.evaluate(node.test, frame))
        if known is not None:
            return self.evaluate(node.body if known else node.orelse, frame)
        return either((self.evaluate(node.body, frame), self.evaluate(node.orelse, frame)))

    def _lambda(self, node: ast.Lambda, frame: Frame) -> Value:
        return Function(node, frame)

    def _namedexpr(self, node: ast.NamedExpr, frame: Frame) -> Value:
        value = self.evaluate(node.value, frame)
        self.assign(node.target, value, frame)
        return value

    def _starred(self, node: ast.Starred, frame: Frame) -> Value:
        return self.evaluate(node.value, frame)

    # Comprehensions.

    def _listcomp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, frame: Frame) -> Value:
        found = Sequence([])
        found.more = self._generate(node.generators, [node.elt], Frame({}, frame), found.items)
        return found

    _setcomp = _listcomp
    _generatorexp = _listcomp

    def _dictcomp(self, node: ast.DictComp, frame: Frame) -> Value:
        made: list[Value] = []
        more = self._generate(node.generators, [node.key, node.value], Frame({}, frame), made)
        return Mapping(dict(zip(made[::2], made[1::2], strict=True)), more)

    def _generate(
        self,
        loops: list[ast.comprehension],
        made: list[ast.expr],
        frame: Frame,
        into: list[Value],
    ) -> bool:
        """Evaluate ``made`` for each item; returns whether there may be others."""
        if not loops:
            into += [self.evaluate(one, frame) for one in made]
            return False
        loop, *inner = loops
        items, more = iterated(self.evaluate(loop.iter, frame), self.machine, loop.iter)
        for item in items:
            self.assign(loop.target, item, frame)
            known = [constants.truth(self.evaluate(test, frame)) for test in loop.ifs]
            if False in known:
                continue
            more |= None in known
            more |= self._generate(inner, made, frame, into)
        return more


def _plain_index(node: ast.expr, index: Value) -> bool:
    """Whether an index certainly cuts a view out: slices, numbers, None, an ellipsis."""
    if isinstance(node, ast.Slice):
        return True
    if isinstance(node, ast.Tuple):
        values = index.items if isinstance(index, Sequence) else []
        return len(values) == len(node.elts) and all(
            _plain_index(part, value) for part, value in zip(node.elts, values, strict=True)
        )
    if isinstance(index, Const):
        return index.value is None or index.value is ... or type(index.value) is int
    return isinstance(index, Symbol | Setting) or index == Name("slice")


def spread(value: Value) -> tuple[list[Value], bool]:
    """The items of ``*value``, and whether there may be others."""
    if isinstance(value, Sequence):
        return list(value.items), value.more
    if isinstance(value, Mapping):
        return list(value.items), value.more
    if isinstance(value, Either):
        lengths = {len(o.items) for o in value.options if isinstance(o, Sequence) and not o.more}
        if len(lengths) == 1 and all(isinstance(o, Sequence) for o in value.options):
            columns = zip(*(o.items for o in value.options if isinstance(o, Sequence)), strict=True)
            return [either(column) for column in columns], False
    return [], True


def iterated(value: Value, machine: Machine, node: ast.AST) -> tuple[list[Value], bool]:
    """What a loop over ``value`` goes through; an unknown item where it cannot be told."""
    items, more = spread(value)
    if isinstance(value, Tensor):
        return [Tensor(value.storage, "[i]")], True
    if len(items) > UNROLLED:
        return [*items[: UNROLLED - 1], either(items[UNROLLED - 1 :])], True
    if more and not items:
        return [Opaque(tokens(value))], True
    return items, more
