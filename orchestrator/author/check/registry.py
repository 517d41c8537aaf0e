"""The rules by id: ``@rule`` makes one of a function that looks at one benchmark.

    @rule("stray-print", "warning", why="Output of a runner mixes with the markers ...",
          fix="remove it")
    def stray_print(benchmark: Benchmark) -> Iterator[Hit]:
        runner = benchmark.runner
        for call in runner.walk(ast.Call) if runner else ():
            ...
            yield Hit(runner.at(call), "print() is left in the runner")

``@tree_rule`` looks at the tree as a whole. ``needs="operator"`` marks rules that can only speak
where an operator's source or library was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.author.check.finding import Finding, Hit, Severity

if TYPE_CHECKING:
    from orchestrator.author.check.benchmark import Benchmark
    from orchestrator.author.check.tree import CheckedTree

Scope = Literal["benchmark", "tree"]
RULES: dict[str, Rule] = {}


@dataclass(frozen=True)
class Rule:
    """One rule: ``why`` it is one, in a sentence, and how to ``fix`` what it finds.

    ``fixable``: ``--fix`` mends some or all of it. ``silent``: no comment silences it.
    """

    id: str
    severity: Severity
    scope: Scope
    why: str
    fix: str
    look: Callable[[Any], Iterable[Hit]]
    what: str
    fixable: bool = False
    silent: bool = False
    needs: Literal["operator"] | None = None

    @property
    def subject(self) -> str:
        """The module that it stands in: ``names``, ``config``, ``launcher``."""
        return self.look.__module__.rpartition(".")[2]

    def findings(self, subject: Benchmark | CheckedTree, operator: str | None) -> Iterator[Finding]:
        """What the rule finds in ``subject``."""
        for hit in self.look(subject):
            yield self.finding(hit, operator)

    def finding(self, hit: Hit, operator: str | None) -> Finding:
        """``hit`` as a finding of this rule."""
        return Finding(
            at=hit.at,
            rule=self.id,
            severity=self.severity,
            message=hit.message,
            why=self.why,
            fix=hit.fix or self.fix,
            operator=operator,
            edit=hit.edit,
            anchors=hit.anchors,
        )


Look = Callable[["Benchmark"], Iterable[Hit]]
TreeLook = Callable[["CheckedTree"], Iterable[Hit]]


def rule(
    identifier: str,
    severity: Severity,
    *,
    why: str,
    fix: str,
    fixable: bool = False,
    needs: Literal["operator"] | None = None,
) -> Callable[[Look], Look]:
    """Register a function that looks at one benchmark; its docstring says what is found."""

    def register(look: Look) -> Look:
        _add(identifier, severity, "benchmark", why, fix, look, fixable, needs)
        return look

    return register


def tree_rule(
    identifier: str, severity: Severity, *, why: str, fix: str, fixable: bool = False
) -> Callable[[TreeLook], TreeLook]:
    """Register a function that looks at the tree as a whole."""

    def register(look: TreeLook) -> TreeLook:
        _add(identifier, severity, "tree", why, fix, look, fixable, None)
        return look

    return register


def _add(
    identifier: str,
    severity: Severity,
    scope: Scope,
    why: str,
    fix: str,
    look: Callable[[Any], Iterable[Hit]],
    fixable: bool,
    needs: Literal["operator"] | None,
) -> None:
    if identifier in RULES:
        raise ValueError(f"two rules are called {identifier}")
    what = " ".join((look.__doc__ or "").split())
    RULES[identifier] = Rule(
        identifier, severity, scope, why, fix, look, what, fixable=fixable, needs=needs
    )


def register_own(made: Rule) -> Rule:
    """Register a rule that the engine itself speaks for."""
    if made.id in RULES:
        raise ValueError(f"two rules are called {made.id}")
    RULES[made.id] = made
    return made
