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
    ) -> None:
        """Note what fails, or may fail. ``within``: where the names stand that it depends on."""
        if self.quiet:
            return
        names: dict[str, Any] = {}
        for each in ast.walk(within) if within is not None else ():
            if isinstance(each, ast.Name):
                try:
                    names[each.id] = self.lookup(each.id)
                except KeyError:
                    names[each.id] = NOTHING
        shown = tuple(
            (name, value) for name, value in names.items() if isinstance(value, (int, float, str))
        )
        found: frozenset[str] = frozenset()
        for value in names.values():
            found |= fields_of(value)
        if kind == "raise" and self.open_fields:
            found |= self.open_fields[-1]
        functions = [each.function for each in self.frames if each.function is not None]
        self.watch.broken.append(
            Broken(
                kind,
                self.place(node),
                expression,
                outcome,
                not self.unsure,
                tuple(self.branch),
                tuple(names),
                found,
                shown,
                message,
                tuple(each.name for each in functions),
                frozenset(id(each.node) for each in functions),
            )
        )
