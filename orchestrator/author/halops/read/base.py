"""The state of the reader's interpreter, and what each of its parts asks of the others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from orchestrator.author.halops.facts import Place
from orchestrator.author.halops.read.source import Sources
from orchestrator.author.halops.read.values import NOTHING, Config, Function, Source, fields_of
from orchestrator.author.halops.read.watch import Broken, Watch

STEPS = 600_000  # nodes that one run may look at: some seconds
_DEEPEST = 40  # calls in one another


class Spent(Exception):
    """A run has used up its steps."""


@dataclass
class Frame:
    """One call that is under way; ``scope``: names around it, its own last."""

    source: Source
    scope: list[dict[str, Any]]
    function: Function | None = None
    returns: list[Any] = field(default_factory=list)
    yields: list[Any] = field(default_factory=list)
    generates: bool = False
    call: ast.Call | None = None  # the call that this is, in the frame before it

    @property
    def own(self) -> dict[str, Any]:
        """The names of this call."""
        return self.scope[-1]


class Base:
    """State and bookkeeping; the parts build on it in turn: values, calls, statements."""

    def __init__(self, sources: Sources, config: Config, steps: int = STEPS) -> None:
        self.sources = sources
        self.config = config
        self.watch = Watch()
        self.modules: dict[str, Source | None] = {}
        self.frames: list[Frame] = []
        self.branch: list[str] = []
        self.tests: list[ast.expr] = []  # the conditions of ``branch`` that are an if's
        self.calling: ast.Call | None = None
        self.open_fields: list[frozenset[str]] = []  # what the conditions under way come from
        self.unsure = 0
        self.quiet = 0
        self.steps = steps
        self.skipped: frozenset[int] = frozenset()  # nodes of functions not to go into
        self.last: dict[str, Any] = {}  # names of the scenario's function at its end
        # Where each key of a dict was written; the dicts are kept, so that no id is used twice.
        self.key_places: dict[tuple[int, Any], Place] = {}
        self.kept: list[Any] = []

    # What the parts give.
    def evaluate(self, node: ast.expr) -> Any:
        """The value of an expression."""
        raise NotImplementedError

    def call(self, target: Any, args: list[Any], named: dict[str, Any], node: ast.AST) -> Any:
        """What calling a value gives."""
        raise NotImplementedError

    def iterate(self, value: Any, node: ast.AST) -> list[Any]:
        """The values that a loop goes through; one unknown one where that is not known."""
        raise NotImplementedError

    def module(self, name: str) -> Any:
        """A module of the checkout with its top level run, or what stands for another's."""
        raise NotImplementedError

    def attribute(self, value: Any, name: str, node: ast.AST) -> Any:
        """An attribute of a value."""
        raise NotImplementedError

    def assign(self, target: ast.expr, value: Any) -> None:
        """Bind a target's names to a value or its parts."""
        raise NotImplementedError

    # What all of them use.
    @property
    def frame(self) -> Frame:
        """The call under way."""
        return self.frames[-1]

    def place(self, node: ast.AST) -> Place:
        """Where a node stands."""
        return Place(self.frame.source.shown, getattr(node, "lineno", 1))

    def step(self) -> None:
        """Count one node; raises ``Spent``."""
        self.steps -= 1
        if self.steps < 0:
            raise Spent

    @property
    def too_deep(self) -> bool:
        """Whether no further call should be gone into."""
        return len(self.frames) > _DEEPEST

    @contextmanager
    def maybe(self, condition: str | None = None) -> Iterator[None]:
        """What happens within is only known to happen under a condition."""
        self.unsure += 1
        if condition is not None:
            self.branch.append(condition)
        try:
            yield
        finally:
            self.unsure -= 1
            if condition is not None:
                self.branch.pop()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """What fails within is not told."""
        self.quiet += 1
        try:
            yield
        finally:
            self.quiet -= 1

    def lookup(self, name: str) -> Any:
        """The value of a name; raises ``KeyError`` for one that is not known."""
        for names in reversed(self.frame.scope):
            if name in names:
                return names[name]
        return self.frame.source.names[name]

    def defaults(self, spec: ast.arguments) -> dict[str, Any]:
        """The values of parameters' defaults, as they are where the function is made."""
        names = [each.arg for each in (*spec.posonlyargs, *spec.args)]
        found = dict(
            zip(reversed(names), (self.evaluate(e) for e in reversed(spec.defaults)), strict=False)
        )
        for each, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            if value is not None:
                found[each.arg] = self.evaluate(value)
        return found

    def put(self, into: dict[Any, Any], key: Any, value: Any, place: Place) -> None:
        """Set a key of a dict and remember where."""
        try:
            into[key] = value
        except TypeError:
            return
        self.kept.append(into)
        self.key_places[id(into), key] = place

    def merge(self, into: dict[Any, Any], other: dict[Any, Any], place: Place) -> None:
        """Take over all keys of another dict with their places."""
        for key, value in list(other.items()):
            self.put(into, key, value, self.key_places.get((id(other), key), place))

    def told(
        self,
        kind: str,
        node: ast.AST,
        expression: str,
        outcome: bool | None,
        message: str = "",
        within: ast.AST | None = None,
        fields: frozenset[str] = frozenset(),
    ) -> None:
        """Note what fails, or may fail. ``within``: where the names stand that it depends on.

        A helper that only tests what it is handed (``need(K % 32 == 0, ...)``) is told of as the
        call of it, which says what must hold.
        """
        if self.quiet:
            return
        place, branch, hidden = self.place(node), tuple(self.branch), None
        handed = self._handed(within)
        if handed is not None:
            within, hidden = handed, self.frames.pop()
            place, expression = self.place(handed), ast.unparse(handed)
            if kind == "raise":
                branch = branch[:-1]
                outcome = None if self.unsure else False
            kind = "assert"
        try:
            names = self._names(within)
        finally:
            if hidden is not None:
                self.frames.append(hidden)
        plain = {k: v for k, v in names.items() if isinstance(v, (int, float, str))}
        for value in names.values():
            fields |= fields_of(value)
        if kind == "raise" and self.open_fields:
            fields |= self.open_fields[-1]
        functions = [each.function for each in self.frames if each.function is not None]
        self.watch.broken.append(
            Broken(
                kind,
                place,
                expression,
                outcome,
                not self.unsure,
                branch,
                tuple(names),
                fields,
                tuple(plain.items()),
                message,
                tuple(each.name for each in functions),
                frozenset(id(each.node) for each in functions),
            )
        )

    def _names(self, within: ast.AST | None) -> dict[str, Any]:
        """The names and reads of the config in some code, with their values."""
        names: dict[str, Any] = {}
        for each in ast.walk(within) if within is not None else ():
            if isinstance(each, ast.Name):
                try:
                    names[each.id] = self.lookup(each.id)
                except KeyError:
                    names[each.id] = NOTHING
            elif isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Constant):
                names[ast.unparse(each)] = self.evaluate(each)
        return names

    def _handed(self, test: ast.AST | None) -> ast.expr | None:
        """What the caller handed over for a test of one parameter alone."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test = test.operand
        frame = self.frame
        if not isinstance(test, ast.Name) or frame.call is None or frame.function is None:
            return None
        spec = frame.function.node.args
        places = [each.arg for each in (*spec.posonlyargs, *spec.args)]
        places = places[frame.function.bound is not None :]
        given = dict(zip(places, frame.call.args, strict=False))
        given.update({each.arg: each.value for each in frame.call.keywords if each.arg})
        found = given.get(test.id)
        return (
            found if isinstance(found, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Call)) else None
        )
