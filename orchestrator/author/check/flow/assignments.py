"""Assignments: names, attributes of the runner, tuples that are taken apart, parts of tensors."""

from __future__ import annotations

import ast

from orchestrator.author.check.flow.calls import Calls
from orchestrator.author.check.flow.expressions import spread
from orchestrator.author.check.flow.frames import SELF
from orchestrator.author.check.flow.values import (
    Frame,
    Mapping,
    Opaque,
    Sequence,
    Shape,
    Storage,
    Symbol,
    Tensor,
    Value,
    options,
    tokens,
)


class Assignments(Calls):
    """Binds what stands on the left of an equals sign."""

    def assign(self, target: ast.expr, value: Value, frame: Frame) -> None:
        """Bind what stands on the left of ``=`` to ``value``."""
        if isinstance(target, ast.Name):
            _named(value, target.id)
            frame.names[target.id] = value
        elif isinstance(target, ast.Attribute):
            if self.evaluate(target.value, frame) == SELF:
                _named(value, target.attr)
                self.machine.attributes[target.attr] = value
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target.elts, value, frame)
        elif isinstance(target, ast.Subscript):
            self._store(target, value, frame)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value, frame)

    def _unpack(self, targets: list[ast.expr], value: Value, frame: Frame) -> None:
        starred = [i for i, target in enumerate(targets) if isinstance(target, ast.Starred)]
        items, more = spread(value)
        if isinstance(value, Tensor):
            for target in targets:
                self.assign(target, self._piece(value), frame)
        elif isinstance(value, Shape):
            of = frozenset({value.storage})
            for i, target in enumerate(targets):
                place = ("const", "int", i)
                self.assign(target, Symbol(("dim", id(value.storage), place), of), frame)
        elif not more and not starred and len(items) == len(targets):
            for target, item in zip(targets, items, strict=True):
                self.assign(target, item, frame)
        elif not more and len(starred) == 1 and len(items) >= len(targets) - 1:
            first, after = starred[0], len(targets) - starred[0] - 1
            middle = Sequence(items[first : len(items) - after])
            parts = [*items[:first], middle, *items[len(items) - after :]]
            for target, item in zip(targets, parts, strict=True):
                self.assign(target, item, frame)
        else:
            for target in targets:
                self.assign(target, Opaque(tokens(value)), frame)

    def _piece(self, value: Tensor) -> Tensor:
        """One of several tensors that a call returned, or of the slices of one."""
        storage = value.storage
        if storage.kind == "result":
            return Tensor(Storage("result", storage.node, storage.place))
        if storage.kind == "computed" and not storage.version:
            return self.machine.computed(storage.node, value)
        return Tensor(storage, "[i]")

    def _store(self, target: ast.Subscript, value: Value, frame: Frame) -> None:
        owner = self.evaluate(target.value, frame)
        index = self.evaluate(target.slice, frame)
        for one in options(owner):
            if isinstance(one, Tensor):
                self.machine.computes(target, "store", one, value)
                whole = isinstance(target.slice, ast.Slice) and not (
                    target.slice.lower or target.slice.upper or target.slice.step
                )
                self.machine.written(one.storage, value, whole=whole and one.part is None)
            elif isinstance(one, Mapping):
                one.items[index] = value
            elif isinstance(one, Sequence):
                one.more = True


def _named(value: Value, name: str) -> None:
    """Remember under which name a tensor was first kept."""
    if isinstance(value, Tensor) and value.storage.name is None:
        value.storage.name = name
