"""The values of expressions, as far as they can be known without running anything."""

from __future__ import annotations

import ast
from typing import Any

from orchestrator.author.halops.facts import Place
from orchestrator.author.halops.read import operators
from orchestrator.author.halops.read.reads import Reads
from orchestrator.author.halops.read.values import (
    NOTHING,
    Class,
    Config,
    Dtype,
    Function,
    Method,
    Object,
    Source,
    Unknown,
    fields_of,
    joined,
    known,
    truth,
    united,
)

_ITEMS = 4096  # items of one literal, range or loop
_CONFIGS = frozenset(("cfg", "conf", "config"))


class Expressions(Reads):
    """``evaluate`` and what belongs to it."""

    def evaluate(self, node: ast.expr) -> Any:
        """The value of an expression; ``Unknown`` for what is not known."""
        self.step()
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is None:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.evaluate(child)
            return NOTHING
        return method(node)

    def _Constant(self, node: ast.Constant) -> Any:
        plain = (int, float, str, type(None))
        return node.value if isinstance(node.value, plain) else NOTHING

    def _Name(self, node: ast.Name) -> Any:
        try:
            return self.lookup(node.id)
        except KeyError:
            return Method(None, node.id)

    def _NamedExpr(self, node: ast.NamedExpr) -> Any:
        value = self.evaluate(node.value)
        self.assign(node.target, value)
        return value

    def _items(self, nodes: list[ast.expr]) -> list[Any]:
        found: list[Any] = []
        for node in nodes[:_ITEMS]:
            if isinstance(node, ast.Starred):
                found += self.iterate(self.evaluate(node.value), node)
            else:
                found.append(self.evaluate(node))
        return found

    def _List(self, node: ast.List) -> Any:
        return self._items(node.elts)

    def _Tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._items(node.elts))

    def _Set(self, node: ast.Set) -> Any:
        try:
            return set(self._items(node.elts))
        except TypeError:
            return NOTHING

    def _Dict(self, node: ast.Dict) -> Any:
        found: dict[Any, Any] = {}
        config: Config | None = None
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                other = self.evaluate(value)
                if isinstance(other, Config):
                    config = other.copy()
                elif isinstance(other, dict):
                    self.merge(found, other, self.place(value))
                continue
            name = self.evaluate(key)
            if known(name):
                self.put(found, name, self.evaluate(value), self.place(key))
            else:
                self.evaluate(value)
        if config is not None:
            for name, each in found.items():
                self.write(config, name, each, self.place(node))
            return config
        return found

    def _JoinedStr(self, node: ast.JoinedStr) -> Any:
        parts = [
            self.evaluate(each.value if isinstance(each, ast.FormattedValue) else each)
            for each in node.values
        ]
        plain = all(
            isinstance(each, ast.Constant) or getattr(each, "format_spec", 1) is None
            for each in node.values
        )
        if plain and all(isinstance(part, (int, str)) for part in parts):
            return "".join(str(part) for part in parts)[:_ITEMS]
        return Unknown(united(parts))

    def _BoolOp(self, node: ast.BoolOp) -> Any:
        wanted = isinstance(node.op, ast.Or)
        values: list[Any] = []
        depth = 0
        try:
            for each in node.values:
                value = self.evaluate(each)
                decided = truth(value)
                if decided is wanted:
                    values.append(value)
                    break
                if decided is None or each is node.values[-1]:
                    values.append(value)
                if decided is None:
                    self.unsure += 1
                    depth += 1
        finally:
            self.unsure -= depth
        return joined(values) if values else value

    def _UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.evaluate(node.operand)
        if isinstance(node.op, ast.Not):
            decided = truth(value)
            return Unknown(fields_of(value)) if decided is None else not decided
        try:
            return operators.unary(node.op, value)
        except operators.NotKnown:
            return Unknown(fields_of(value))

    def _BinOp(self, node: ast.BinOp) -> Any:
        one, other = self.evaluate(node.left), self.evaluate(node.right)
        if isinstance(node.op, ast.BitOr) and isinstance(one, Config) and isinstance(other, dict):
            made = one.copy()
            for name, value in other.items():
                self.write(made, name, value, self.place(node))
            return made
        try:
            found = operators.binary(node.op, one, other)
        except operators.NotKnown:
            dtype = next((each.dtype for each in (one, other) if isinstance(each, Unknown)), None)
            return Unknown(united((one, other)), dtype=dtype)
        if isinstance(found, dict) and isinstance(one, dict) and isinstance(other, dict):
            for each in (one, other):
                self.merge(found, each, self.place(node))
        return found

    def _Compare(self, node: ast.Compare) -> Any:
        one = self.evaluate(node.left)
        results: list[bool | None] = []
        found: frozenset[str] = fields_of(one)
        for kind, each in zip(node.ops, node.comparators, strict=True):
            other = self.evaluate(each)
            self._choices(one, other, node)
            found |= fields_of(other)
            results.append(self._compared(kind, one, other, node))
            one = other
        if any(result is False for result in results):
            return False
        return True if all(result for result in results) else Unknown(found)

    def _compared(self, kind: ast.cmpop, one: Any, other: Any, node: ast.AST) -> bool | None:
        if isinstance(kind, (ast.In, ast.NotIn)):
            there = self._within(one, other, node)
            if there is not None:
                return there if isinstance(kind, ast.In) else not there
            return None
        if isinstance(kind, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
            solid = (Function, Class, Source, Object, Dtype, Config)
            if other is None and isinstance(one, solid):
                return isinstance(kind, (ast.IsNot, ast.NotEq))
            if isinstance(one, solid) and one is other:
                return isinstance(kind, (ast.Is, ast.Eq))
        if not (known(one) and known(other)):
            return None
        try:
            return operators.compare(kind, one, other)
        except operators.NotKnown:
            return None

    def _within(self, one: Any, other: Any, node: ast.AST) -> bool | None:
        """Whether ``one in other``."""
        if isinstance(other, Config):
            return self.contains(other, one, node) if isinstance(one, str) else None
        if not known(one):
            return None
        if isinstance(other, dict):
            try:
                return one in other
            except TypeError:
                return None
        if isinstance(other, (list, tuple, set)) and not known(other):
            return True if any(known(each) and each == one for each in other) else None
        try:
            return operators.compare(ast.In(), one, other)
        except operators.NotKnown:
            return None

    def _choices(self, one: Any, other: Any, node: ast.AST) -> None:
        """Note strings that a field of the config is compared with."""
        for value, against in ((one, other), (other, one)):
            if not isinstance(value, Unknown):
                continue
            name = value.direct or value.element
            if name is None:
                continue
            if isinstance(against, dict):
                self.watch.looked_up.setdefault(name, id(against))
                self.kept.append(against)
            many = against if isinstance(against, (list, tuple, set, dict)) else (against,)
            for each in many:
                if isinstance(each, str):
                    place = self.key_places.get((id(against), each), self.place(node))
                    self.watch.choices.setdefault(name, {}).setdefault(each, place)

    def _IfExp(self, node: ast.IfExp) -> Any:
        decided = truth(self.evaluate(node.test))
        if decided is not None:
            return self.evaluate(node.body if decided else node.orelse)
        with self.maybe():
            return joined([self.evaluate(node.body), self.evaluate(node.orelse)])

    def _Lambda(self, node: ast.Lambda) -> Any:
        made = Function(node, self.frame.source, list(self.frame.scope))
        made.defaults = self.defaults(node.args)
        return made

    def _comprehended(self, node: Any, elements: list[ast.expr]) -> list[list[Any]]:
        """The values of a comprehension's element expressions, one list for each round."""
        rounds: list[list[Any]] = []
        self.frame.scope.append({})
        try:
            self._generate(node.generators, elements, rounds)
        finally:
            self.frame.scope.pop()
        return rounds

    def _generate(
        self,
        generators: list[ast.comprehension],
        elements: list[ast.expr],
        rounds: list[list[Any]],
    ) -> None:
        if not generators:
            if len(rounds) < _ITEMS:
                rounds.append([self.evaluate(each) for each in elements])
            return
        first = generators[0]
        for value in self.iterate(self.evaluate(first.iter), first.iter):
            self.assign(first.target, value)
            if all(truth(self.evaluate(test)) is not False for test in first.ifs):
                self._generate(generators[1:], elements, rounds)

    def _ListComp(self, node: ast.ListComp | ast.GeneratorExp) -> Any:
        return [each[0] for each in self._comprehended(node, [node.elt])]

    _GeneratorExp = _ListComp

    def _SetComp(self, node: ast.SetComp) -> Any:
        try:
            return {each[0] for each in self._comprehended(node, [node.elt])}
        except TypeError:
            return NOTHING

    def _DictComp(self, node: ast.DictComp) -> Any:
        found: dict[Any, Any] = {}
        for key, value in self._comprehended(node, [node.key, node.value]):
            if known(key):
                self.put(found, key, value, self._origin(value, node.value))
        return found

    def _origin(self, value: Any, node: ast.AST) -> Place:
        """Where a function stands; for another value, the node."""
        if isinstance(value, (Function, Class)):
            return Place(value.source.shown, value.node.lineno)
        return self.place(node)

    def _Attribute(self, node: ast.Attribute) -> Any:
        return self.attribute(self.evaluate(node.value), node.attr, node)

    def _Subscript(self, node: ast.Subscript) -> Any:
        value = self.evaluate(node.value)
        if isinstance(node.slice, ast.Slice):
            return self._sliced(value, node.slice)
        return self.item(value, self.evaluate(node.slice), node)

    def _sliced(self, value: Any, node: ast.Slice) -> Any:
        bounds = [
            None if each is None else self.evaluate(each)
            for each in (node.lower, node.upper, node.step)
        ]
        if isinstance(value, (list, tuple, str)):
            plain = all(each is None or isinstance(each, int) for each in bounds)
            if plain and bounds[2] != 0:
                return value[slice(*bounds)]
        return Unknown(fields_of(value), dtype=getattr(value, "dtype", None))

    def item(self, value: Any, key: Any, node: ast.AST) -> Any:
        """``value[key]``."""
        if isinstance(value, Config):
            return self.read(value, key, "[]", node)
        self._choices(key, value, node)
        if isinstance(value, dict):
            if known(key):
                return self._key(value, key, node)
            # One of them: which, only a run shows.
            return joined(list(value.values())) if value else Unknown(fields_of(key))
        if isinstance(value, (list, tuple, str)) and isinstance(key, int):
            return value[key] if -len(value) <= key < len(value) else NOTHING
        if isinstance(value, Unknown):
            if key == "dtype" and value.dtype is not None:
                return value.dtype
            if isinstance(key, str) and key in _CONFIGS and not value.fields:
                return self.config
            return Unknown(value.fields, dtype=value.dtype)
        return Unknown(united((value, key)))

    def _key(self, value: dict[Any, Any], key: Any, node: ast.AST) -> Any:
        try:
            if key in value:
                return value[key]
        except TypeError:
            return NOTHING
        # Only what the config itself names: other keys may be ones that were not followed.
        if value and self.config.names(key) and all(isinstance(each, str) for each in value):
            self.told("key", node, repr(key), False, ", ".join(value), within=node)
        return NOTHING
