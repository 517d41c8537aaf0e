"""Statements: names bound, branches taken or both looked at, functions gone through."""

from __future__ import annotations

import ast
from enum import Enum
from typing import Any

from orchestrator.author.halops.read.calls import Calls
from orchestrator.author.halops.read.values import (
    NOTHING,
    Class,
    Config,
    Function,
    Object,
    Outside,
    Source,
    Unknown,
    fields_of,
    joined,
    known,
    truth,
)

_ROUNDS = 4096


class Flow(Enum):
    """How a block ends before its end."""

    RETURN = "return"
    RAISE = "raise"
    BREAK = "break"
    CONTINUE = "continue"


class Statements(Calls):
    """``block`` and ``assign``."""

    def block(self, body: list[ast.stmt]) -> Flow | None:
        """Go through statements; how they end, None where they go on."""
        for statement in body:
            self.step()
            method = getattr(self, f"_do_{type(statement).__name__}", None)
            flow: Flow | None = method(statement) if method else None
            if flow is not None:
                return flow
        return None

    def _do_Expr(self, node: ast.Expr) -> None:
        self.evaluate(node.value)

    def _do_Assign(self, node: ast.Assign) -> None:
        value = self.evaluate(node.value)
        for target in node.targets:
            self.assign(target, value)

    def _do_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign(node.target, self.evaluate(node.value))

    def _do_AugAssign(self, node: ast.AugAssign) -> None:
        load = ast.parse(ast.unparse(node.target), mode="eval").body
        made = ast.copy_location(ast.BinOp(load, node.op, node.value), node)
        self.assign(node.target, self.evaluate(ast.fix_missing_locations(made)))

    def assign(self, target: ast.expr, value: Any) -> None:
        """Bind a target to a value."""
        if isinstance(target, ast.Name):
            self.frame.own[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, value)
        elif isinstance(target, ast.Subscript):
            into, key = self.evaluate(target.value), self.evaluate(target.slice)
            if isinstance(into, Config):
                self.write(into, key, value, self.place(target))
            elif isinstance(into, dict) and known(key):
                self.put(into, key, value, self._origin(value, target))
            elif isinstance(into, list) and isinstance(key, int) and -len(into) <= key < len(into):
                into[key] = value
        elif isinstance(target, ast.Attribute):
            into = self.evaluate(target.value)
            if isinstance(into, Object):
                into.attributes[target.attr] = value
            elif isinstance(into, Class):
                into.names[target.attr] = value

    def _unpack(self, target: ast.Tuple | ast.List, value: Any) -> None:
        count = len(target.elts)
        if isinstance(value, Unknown):
            names = [each.id for each in target.elts if isinstance(each, ast.Name)]
            if value.element and len(names) == count:
                self.watch.columns.setdefault(value.element, tuple(names))
            if value.direct and not self.quiet:
                # One shape, taken apart: no sweep.
                self.watch.columns.setdefault(value.direct, tuple(names))
            parts: list[Any] = [Unknown(value.fields, dtype=value.dtype)] * count
        else:
            parts = self.iterate(value, target)
        stars = [i for i, each in enumerate(target.elts) if isinstance(each, ast.Starred)]
        if stars and len(parts) >= count - 1:
            at, rest = stars[0], len(parts) - count + 1
            parts = [*parts[:at], parts[at : at + rest], *parts[at + rest :]]
        elif not isinstance(value, Unknown) and len(parts) != count and known(value):
            self.told("unpack", target, ast.unparse(target), False, repr(value)[:80])
            parts = []
        parts += [NOTHING] * (count - len(parts))
        for each, part in zip(target.elts, parts, strict=False):
            self.assign(each.value if isinstance(each, ast.Starred) else each, part)

    def _do_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.frame.own.pop(target.id, None)

    def _do_Return(self, node: ast.Return) -> Flow:
        self.frame.returns.append(None if node.value is None else self.evaluate(node.value))
        return Flow.RETURN

    def _do_Break(self, node: ast.Break) -> Flow:
        return Flow.BREAK

    def _do_Continue(self, node: ast.Continue) -> Flow:
        return Flow.CONTINUE

    def _do_Raise(self, node: ast.Raise) -> Flow:
        if node.exc is not None:
            self._told_raise(node, node.exc)
        return Flow.RAISE

    def _told_raise(self, node: ast.Raise, raised: ast.expr) -> None:
        message = ""
        if isinstance(raised, ast.Call) and raised.args:
            value = self.evaluate(raised.args[0])
            message = value if isinstance(value, str) else ast.unparse(raised.args[0])
        condition = self.branch[-1] if self.branch else ""
        test = self.tests[-1] if self.tests else None
        self.told("raise", node, condition, None, message, within=test)

    def _do_Assert(self, node: ast.Assert) -> None:
        value = self.evaluate(node.test)
        message = ""
        if node.msg is not None:
            text = self.evaluate(node.msg)
            message = text if isinstance(text, str) else ast.unparse(node.msg)
        text = ast.unparse(node.test)
        holds = truth(value)
        self.told("assert", node, text, holds, message, node.test, fields_of(value))

    def _do_If(self, node: ast.If) -> Flow | None:
        value = self.evaluate(node.test)
        decided = truth(value)
        if decided is not None:
            text = ast.unparse(node.test)
            self.branch.append(text if decided else f"not ({text})")
            self.tests.append(node.test)
            try:
                return self.block(node.body if decided else node.orelse)
            finally:
                self.branch.pop()
                self.tests.pop()
        text = ast.unparse(node.test)
        inverse = text.removeprefix("not ") if text.startswith("not ") else f"not ({text})"
        self.tests.append(node.test)
        try:
            return self._either((node.body, text), (node.orelse, inverse), fields_of(value))
        finally:
            self.tests.pop()

    def _either(
        self,
        one: tuple[list[ast.stmt], str],
        other: tuple[list[ast.stmt], str],
        fields: frozenset[str],
    ) -> Flow | None:
        """Both ways of a condition that is not known; after it, what both agree on."""
        before = dict(self.frame.own)
        ends: list[tuple[Flow | None, dict[str, Any]]] = []
        for body, condition in (one, other):
            self.frame.own.clear()
            self.frame.own.update(before)
            self.open_fields.append(fields)
            with self.maybe(condition):
                flow = self.block(body)
            self.open_fields.pop()
            ends.append((flow, dict(self.frame.own)))
        going_on = [names for flow, names in ends if flow is None]
        if not going_on:
            return ends[1][0] if ends[0][0] is Flow.RAISE else ends[0][0]
        self._agree(going_on)
        return None

    def _agree(self, ends: list[dict[str, Any]]) -> None:
        own = self.frame.own
        own.clear()
        for name in {name: None for names in ends for name in names}:
            own[name] = joined([names[name] for names in ends if name in names])

    def _do_For(self, node: ast.For | ast.AsyncFor) -> Flow | None:
        values = self.iterate(self.evaluate(node.iter), node.iter)
        for value in values:
            self.assign(node.target, value)
            flow = self.block(node.body)
            if flow in (Flow.BREAK, Flow.RETURN, Flow.RAISE):
                return None if flow is Flow.BREAK else flow
        return self.block(node.orelse)

    def _do_While(self, node: ast.While) -> Flow | None:
        for _ in range(_ROUNDS):
            decided = truth(self.evaluate(node.test))
            if decided is False:
                return self.block(node.orelse)
            if decided is None:
                with self.maybe():
                    self.block(node.body)
                return None
            flow = self.block(node.body)
            if flow in (Flow.RETURN, Flow.RAISE):
                return flow
            if flow is Flow.BREAK:
                return None
        return None

    def _do_With(self, node: ast.With | ast.AsyncWith) -> Flow | None:
        for item in node.items:
            value = self.evaluate(item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value)
        return self.block(node.body)

    def _do_Try(self, node: ast.Try) -> Flow | None:
        flow = self.block(node.body)
        if flow is None:
            flow = self.block(node.orelse)
        ends: list[dict[str, Any]] = [] if flow is Flow.RAISE else [dict(self.frame.own)]
        for handler in node.handlers:
            before = dict(self.frame.own)
            if handler.name:
                self.frame.own[handler.name] = NOTHING
            with self.maybe(), self.silent():
                if self.block(handler.body) is None:
                    ends.append(dict(self.frame.own))
                    flow = None if flow is Flow.RAISE else flow
            self.frame.own.clear()
            self.frame.own.update(before)
        if ends:
            self._agree(ends)
        return self.block(node.finalbody) or flow

    _do_TryStar = _do_Try

    def _do_Match(self, node: ast.Match) -> Flow | None:
        subject = self.evaluate(node.subject)
        flow: Flow | None = None
        for case in node.cases:
            matched = self._matches(subject, case.pattern)
            if matched is False:
                continue
            if matched and case.guard is None:
                return self.block(case.body)
            condition = f"{ast.unparse(node.subject)} is {ast.unparse(case.pattern)}"
            self._either((case.body, condition), ([], ""), fields_of(subject))
        return flow

    def _matches(self, subject: Any, pattern: ast.pattern) -> bool | None:
        if isinstance(pattern, ast.MatchAs):
            if pattern.name is not None:
                self.frame.own[pattern.name] = subject
            return True if pattern.pattern is None else self._matches(subject, pattern.pattern)
        if isinstance(pattern, ast.MatchOr):
            each = [self._matches(subject, one) for one in pattern.patterns]
            return True if True in each else (None if None in each else False)
        if isinstance(pattern, ast.MatchValue):
            value = self.evaluate(pattern.value)
            self._choices(subject, value, pattern)
            return subject == value if known(subject) and known(value) else None
        return None

    def _do_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        made: Any = Function(node, self.frame.source, list(self.frame.scope))
        made.defaults = self.defaults(node.args)
        self.frame.own[node.name] = self._decorated(made, node.decorator_list)

    _do_AsyncFunctionDef = _do_FunctionDef
    _do_AsyncFor = _do_For
    _do_AsyncWith = _do_With

    def _decorated(self, made: Any, decorators: list[ast.expr]) -> Any:
        for each in reversed(decorators):
            wrapper = self.evaluate(each)
            if isinstance(wrapper, (Function, Object)) or (
                isinstance(wrapper, Outside) and wrapper.name == "identity"
            ):
                result = self.call(wrapper, [made], {}, each)
                made = result if isinstance(result, (Function, Class, Object)) else made
        return made

    def _do_ClassDef(self, node: ast.ClassDef) -> None:
        bases = tuple(self.evaluate(each) for each in node.bases)
        made = Class(node, self.frame.source, list(self.frame.scope), {}, bases)
        self.frame.scope.append(made.names)
        try:
            self.block(node.body)
        finally:
            self.frame.scope.pop()
        for each in made.names.values():
            if isinstance(each, Function):
                each.scope = list(self.frame.scope)  # a class's names are no scope of its methods
        self.frame.own[node.name] = self._decorated(made, node.decorator_list)

    def _do_Import(self, node: ast.Import) -> None:
        for each in node.names:
            value = self.module(each.name)
            first = each.name.partition(".")[0]
            if each.asname:
                self.frame.own[each.asname] = value
            else:
                self.frame.own[first] = self.module(first)

    def _do_ImportFrom(self, node: ast.ImportFrom) -> None:
        name = node.module or ""
        if node.level:
            parts = self.frame.source.name.split(".")
            package = self.frame.source.shown.endswith("__init__.py")
            parts = parts[: len(parts) - node.level + package]
            name = ".".join([*parts, name] if name else parts)
        source = self.module(name)
        for each in node.names:
            if each.name == "*":
                if isinstance(source, Source):
                    public = {k: v for k, v in source.names.items() if not k.startswith("_")}
                    self.frame.own.update(public)
                continue
            self.frame.own[each.asname or each.name] = self.attribute(source, each.name, node)
