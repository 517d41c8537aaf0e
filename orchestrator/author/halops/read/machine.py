"""The reader's interpreter: goes through a checkout's code on the config's values, or without any.

It computes what can be computed from literals and the config, and looks at both ways where a
condition cannot be known. Nothing of the checkout is imported, compiled or run: names of torch and
other packages stand for unknown values, and every run ends after a number of steps.
"""

from __future__ import annotations

import ast
from typing import Any

from orchestrator.author.halops.read.base import Frame, Spent
from orchestrator.author.halops.read.statements import Statements
from orchestrator.author.halops.read.values import (
    NOTHING,
    Function,
    Outside,
    Source,
    Unknown,
    joined,
    united,
)

_AGAIN = 6  # times that a function may be in itself


class Machine(Statements):
    """One run. ``enter`` starts it; ``watch`` holds what it told."""

    def module(self, name: str) -> Any:
        """A module with its top level run once; ``Outside`` for one that is not the checkout's."""
        if name in self.modules:
            return self.modules[name] or Outside(name)
        source = self.sources.load(name)
        if source is None and self.sources.is_package(name):
            source = Source(name, name.replace(".", "/"), ast.Module([], []))
        self.modules[name] = source
        if source is None:
            return Outside(name)
        source.names["__name__"] = name
        source.names["__file__"] = NOTHING
        self.frames.append(Frame(source, [source.names]))
        branch, self.branch = self.branch, []
        unsure, self.unsure = self.unsure, 0
        try:
            self.block(source.tree.body)
        finally:
            self.frames.pop()
            self.branch = branch
            self.unsure = unsure
        return source

    def enter(self, target: Function, args: list[Any], named: dict[str, Any]) -> Any:
        """Go through a function; what it returns, as far as that is known."""
        node = target.node
        if id(node) in self.skipped:
            return Unknown(united([*args, *named.values()]))
        again = sum(
            each.function is not None and each.function.node is node for each in self.frames
        )
        if self.too_deep or again >= _AGAIN:
            return Unknown(united([*args, *named.values()]))
        self.watch.called.setdefault(id(node), target)
        args = [*target.preset[0], *args]
        named = {**dict(target.preset[1]), **named}
        if target.bound is not None:
            args = [target.bound, *args]
        own = self._bound(target, args, named)
        frame = Frame(target.source, [*target.scope, own], target, call=self.calling)
        self.calling = None
        told = len(self.watch.broken)
        self.frames.append(frame)
        try:
            if isinstance(node, ast.Lambda):
                found = self.evaluate(node.body)
            else:
                self.block(node.body)
                found = joined(frame.returns) if frame.returns else None
                found = frame.yields if frame.generates else found
        finally:
            self.frames.pop()
            if len(self.frames) == 1:
                self.last.update(own)
        bears = any(each.fields or each.in_kernel for each in self.watch.broken[told:])
        if bears or found is None or not isinstance(found, Unknown) or found.fields or found.dtype:
            self.watch.needed.add(id(node))
        return found

    def _bound(self, target: Function, args: list[Any], named: dict[str, Any]) -> dict[str, Any]:
        """The names of a call's parameters."""
        spec = target.node.args
        places = [each.arg for each in (*spec.posonlyargs, *spec.args)]
        own: dict[str, Any] = dict.fromkeys(places, NOTHING)
        own.update({each.arg: NOTHING for each in spec.kwonlyargs})
        own.update(target.defaults)
        own.update(zip(places, args, strict=False))
        if spec.vararg is not None:
            own[spec.vararg.arg] = tuple(args[len(places) :])
        rest: dict[str, Any] = {}
        for name, value in named.items():
            into = own if name in own else rest
            into[name] = value
        if spec.kwarg is not None:
            own[spec.kwarg.arg] = rest
        return own

    def _Yield(self, node: ast.Yield) -> Any:
        self.frame.generates = True
        self.frame.yields.append(None if node.value is None else self.evaluate(node.value))
        return NOTHING

    def _YieldFrom(self, node: ast.YieldFrom) -> Any:
        self.frame.generates = True
        self.frame.yields += self.iterate(self.evaluate(node.value), node)
        return NOTHING

    def outer(self, target: Function, args: list[Any]) -> Any:
        """Go through a function from outside; a run that ends early is noted as ``spent``."""
        frame = Frame(target.source, [target.source.names])
        self.frames.append(frame)
        try:
            return self.enter(target, args, {})
        except (Spent, RecursionError):
            self.watch.spent = True
            return NOTHING
        finally:
            del self.frames[:]

    def load(self, name: str) -> Source | None:
        """A module of the checkout from outside, None where there is none."""
        try:
            found = self.module(name)
        except (Spent, RecursionError):
            self.watch.spent = True
            found = self.modules.get(name)
        return found if isinstance(found, Source) else None
