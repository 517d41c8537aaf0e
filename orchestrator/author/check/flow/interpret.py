"""Statements, and functions of the runner with their arguments: the interpreter itself."""

from __future__ import annotations

import ast
import sys
from functools import cached_property

from orchestrator.author.check.flow import constants, torch_model
from orchestrator.author.check.flow.assignments import Assignments
from orchestrator.author.check.flow.expressions import iterated
from orchestrator.author.check.flow.frames import CONTEXT, DEEPEST, SELF, STREAM, Machine, merge
from orchestrator.author.check.flow.values import (
    NONE,
    UNKNOWN,
    Const,
    Frame,
    Function,
    Mapping,
    Name,
    Opaque,
    Sequence,
    Tensor,
    Value,
    either,
    options,
    tokens,
)
from orchestrator.author.check.source import dotted

_RECURSIONS = 2


class Interpreter(Assignments):
    """Runs methods of a runner; all it leaves is in its machine."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._returns: list[list[Value]] = []
        yields = (ast.Yield, ast.YieldFrom)
        # Run when their items are asked for: out of sight.
        self._generators = {
            self.source.scope(node) for kind in yields for node in self.source.walk(kind)
        }

    @cached_property
    def _seeded_by_module(self) -> bool:
        source = self.source
        return any(
            dotted(call.func) in torch_model.SEEDERS and source.scope(call) is source.tree
            for call in source.walk(ast.Call)
        )

    def method(self, name: str, args: list[Value], phase: str) -> Value | None:
        """Run the runner's method ``name``; None when it has none."""
        found = self.runner.methods.get(name)
        if found is None:
            return None
        machine = self.machine
        machine.phase, machine.streams = phase, 0
        if machine.global_seed is not None or self._seeded_by_module:
            # Seeded before: each phase draws other numbers of it, whichever those are.
            machine.global_seed = UNKNOWN
        return self.invoke(Function(found, None, bound=True), args, found)

    # Calls of the runner's own functions.

    def invoke(
        self,
        function: Function,
        args: list[Value],
        node: ast.AST,
        kwargs: dict[str, Value] | None = None,
        more: bool = False,
    ) -> Value:
        machine = self.machine
        given = [*args, *(kwargs or {}).values()]
        depth = [f.node for f in machine.running if f is not None].count(function.node)
        if (
            depth >= _RECURSIONS
            or len(machine.running) >= DEEPEST
            or function.node in self._generators
        ):
            return Opaque(tokens(given))
        frame = Frame(self._bound(function, args, kwargs or {}, more), function.frame, function)
        entering = bool(machine.running)
        if entering:
            machine.stack.append(node)
        machine.running.append(function)
        self._returns.append([])
        try:
            if isinstance(function.node, ast.Lambda):
                return self.evaluate(function.node.body, frame)
            falls = self.block(function.node.body, frame)
            returned = self._returns[-1]
            return either([*returned, NONE] if falls else returned) if returned else NONE
        finally:
            self._returns.pop()
            machine.running.pop()
            if entering:
                machine.stack.pop()

    def _bound(
        self, function: Function, args: list[Value], kwargs: dict[str, Value], more: bool
    ) -> dict[str, Value]:
        """The function's parameters with what they are given; what cannot be told is unknown."""
        taken = function.node.args
        places = [argument.arg for argument in (*taken.posonlyargs, *taken.args)]
        given = [SELF, *args] if function.bound else list(args)
        outside = function.frame or self._class_names(function.node)
        defaults = dict(zip(reversed(places), reversed(taken.defaults), strict=False))
        names: dict[str, Value] = dict(zip(places, given, strict=False))
        words = dict(kwargs)
        keyword_defaults = zip(taken.kwonlyargs, taken.kw_defaults, strict=True)
        for name, default in [
            *((place, defaults.get(place)) for place in places[len(given) :]),
            *((argument.arg, default) for argument, default in keyword_defaults),
        ]:
            if name in words:
                names[name] = words.pop(name)
            elif more or default is None:
                names[name] = UNKNOWN
            else:
                names[name] = self.evaluate(default, outside)
        if taken.vararg:
            names[taken.vararg.arg] = Sequence(given[len(places) :], more)
        if taken.kwarg:
            rest: dict[Value, Value] = {
                Const(word): value for word, value in words.items() if word not in names
            }
            names[taken.kwarg.arg] = Mapping(rest, more)
        return names

    def _class_names(self, node: ast.AST) -> Frame:
        """The constants of the class around a method, which its defaults may name."""
        owner = self.source.parent(node)
        frame = Frame({}, None)
        for statement in owner.body if isinstance(owner, ast.ClassDef) else ():
            if isinstance(statement, ast.Assign):
                self._do_assign(statement, frame)
        return frame

    # Statements.

    def block(self, body: list[ast.stmt], frame: Frame) -> bool:
        """Run statements; returns whether the end of the block may be reached."""
        return all(self.statement(statement, frame) for statement in body)

    def statement(self, node: ast.stmt, frame: Frame) -> bool:
        """Run one statement; returns whether the next one may be reached."""
        self.machine.step()
        method = getattr(self, f"_do_{type(node).__name__.lower()}", None)
        return True if method is None else bool(method(node, frame))

    def _do_expr(self, node: ast.Expr, frame: Frame) -> bool:
        self.evaluate(node.value, frame)
        return True

    def _do_assign(self, node: ast.Assign, frame: Frame) -> bool:
        value = self.evaluate(node.value, frame)
        for target in node.targets:
            self.assign(target, value, frame)
        return True

    def _do_annassign(self, node: ast.AnnAssign, frame: Frame) -> bool:
        if node.value is not None:
            self.assign(node.target, self.evaluate(node.value, frame), frame)
        return True

    def _do_augassign(self, node: ast.AugAssign, frame: Frame) -> bool:
        read = ast.copy_location(_as_load(node.target), node.target)
        before, value = self.evaluate(read, frame), self.evaluate(node.value, frame)
        self.machine.computes(node, type(node.op).__name__, before, value)
        if isinstance(before, Tensor):
            self.machine.written(before.storage, before, value)
        else:
            self.assign(node.target, self.binary(node.op, before, value, node), frame)
        return True

    def _do_return(self, node: ast.Return, frame: Frame) -> bool:
        value = self.evaluate(node.value, frame) if node.value else NONE
        if self._returns:
            self._returns[-1].append(value)
        return False

    def _do_raise(self, node: ast.Raise, frame: Frame) -> bool:
        self.evaluate(node.exc, frame)
        return False

    def _do_break(self, node: ast.Break, frame: Frame) -> bool:
        return False

    _do_continue = _do_break

    def _do_assert(self, node: ast.Assert, frame: Frame) -> bool:
        self.evaluate(node.test, frame)
        return True

    def _do_if(self, node: ast.If, frame: Frame) -> bool:
        known = constants.truth(self.evaluate(node.test, frame))
        if known is not None:
            self.machine.chosen[node] = Const(known)
            return self.block(node.body if known else node.orelse, frame)
        return self._branches([node.body, node.orelse], frame)

    def _branches(self, blocks: list[list[ast.stmt]], frame: Frame) -> bool:
        """Run each block as if it alone ran; afterwards hold what those that end left behind."""
        names, attributes = dict(frame.names), dict(self.machine.attributes)
        left: list[tuple[dict[str, Value], dict[str, Value]]] = []
        for block in blocks:
            frame.names, self.machine.attributes = dict(names), dict(attributes)
            if self.block(block, frame):
                left.append((frame.names, self.machine.attributes))
            else:
                # What an attribute was given stays, whichever way the method was left.
                attributes_left = self.machine.attributes
                attributes = merge(attributes, attributes_left)
        if not left:
            frame.names, self.machine.attributes = names, attributes
            return False
        frame.names, self.machine.attributes = left[0]
        for other_names, other_attributes in left[1:]:
            frame.names = merge(frame.names, other_names)
            self.machine.attributes = merge(self.machine.attributes, other_attributes)
        return True

    def _do_for(self, node: ast.For, frame: Frame) -> bool:
        items, more = iterated(self.evaluate(node.iter, frame), self.machine, node.iter)
        before = dict(frame.names)
        for item in items:
            self.assign(node.target, item, frame)
            self.block(node.body, frame)
        if more:
            frame.names = merge(frame.names, before)
        return self.block(node.orelse, frame)

    def _do_while(self, node: ast.While, frame: Frame) -> bool:
        self.evaluate(node.test, frame)
        before = dict(frame.names)
        self.block(node.body, frame)
        frame.names = merge(frame.names, before)
        return self.block(node.orelse, frame)

    def _do_with(self, node: ast.With, frame: Frame) -> bool:
        streamed = False
        for item in node.items:
            value = self.evaluate(item.context_expr, frame)
            streamed |= self._is_stream(item.context_expr, value)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, frame)
        with self.machine.streamed(streamed):
            return self.block(node.body, frame)

    def _is_stream(self, node: ast.expr, value: Value) -> bool:
        """Whether a context is a stream's; one that cannot be told counts as one."""
        callee = dotted(node.func) if isinstance(node, ast.Call) else None
        first = (callee or "").split(".")[0]
        module = self.source.imports.get(first, "").split(".")[0]
        if first == "open" or module in sys.stdlib_module_names:
            return STREAM in options(value)
        return any(option == STREAM or option != CONTEXT for option in options(value))

    def _do_try(self, node: ast.Try, frame: Frame) -> bool:
        before = dict(frame.names)
        falls = self.block(node.body, frame) and self.block(node.orelse, frame)
        after = frame.names
        ends = [after] if falls else []
        for handler in node.handlers:
            frame.names = merge(after, before)
            if handler.name:
                frame.names[handler.name] = UNKNOWN
            if self.block(handler.body, frame):
                ends.append(frame.names)
        if ends:
            frame.names = ends[0]
            for other in ends[1:]:
                frame.names = merge(frame.names, other)
        return self.block(node.finalbody, frame) and bool(ends)

    _do_trystar = _do_try
    _do_asyncwith = _do_with

    def _do_match(self, node: ast.Match, frame: Frame) -> bool:
        self.evaluate(node.subject, frame)
        return self._branches([*(case.body for case in node.cases), []], frame)

    def _do_functiondef(self, node: ast.FunctionDef, frame: Frame) -> bool:
        frame.names[node.name] = Function(node, frame)
        return True

    _do_asyncfunctiondef = _do_functiondef

    def _do_import(self, node: ast.Import | ast.ImportFrom, frame: Frame) -> bool:
        for name in node.names:
            word = name.asname or name.name.split(".")[0]
            frame.names[word] = Name(self.source.imports.get(word, word))
        return True

    _do_importfrom = _do_import

    def _do_delete(self, node: ast.Delete, frame: Frame) -> bool:
        return True


def _as_load(target: ast.expr) -> ast.expr:
    """The target of ``x += 1`` as it is read."""
    if isinstance(target, ast.Name):
        return ast.Name(target.id, ast.Load())
    if isinstance(target, ast.Attribute):
        return ast.Attribute(target.value, target.attr, ast.Load())
    if isinstance(target, ast.Subscript):
        return ast.Subscript(target.value, target.slice, ast.Load())
    return target
