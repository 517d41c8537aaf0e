"""The comparisons of a trial as text: what the runner has to compare, how and how closely."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace

from orchestrator.author.facts import Output
from orchestrator.author.trial import compare
from orchestrator.author.trial.flatten import Step
from orchestrator.author.trial.scopes import binds, reads


@dataclass(frozen=True)
class Compared:
    """A comparison whose sides are told apart."""

    actual: ast.expr
    expected: ast.expr
    found: compare.Compared
    step: Step
    index: int


def conditions(step: Step) -> list[ast.expr]:
    """Conditions of a step that do not speak of a round of a loop."""
    bound = {name for loop in step.loops for name in binds(loop.target)}
    return [c for c in step.when if not set(reads(c)) & bound]


def tolerance_reads(output: Compared) -> set[str]:
    """Names that the tolerances and the condition of a comparison read."""
    parts = [output.found.atol, output.found.rtol, *conditions(output.step)]
    return {name for part in parts if part is not None for name in reads(part)}


def key(compared: Compared) -> tuple[str, str, str]:
    """What makes two comparisons the same one."""
    when = [ast.unparse(c) for c in conditions(compared.step)]
    return ast.unparse(compared.actual), ast.unparse(compared.expected), " and ".join(when)


def as_outputs(compared: Iterable[Compared]) -> tuple[Output, ...]:
    """The comparisons as text; tolerances that differ by a condition become one expression."""
    found: dict[tuple[str, str], Output] = {}
    for one in compared:
        actual, expected = ast.unparse(one.actual), ast.unparse(one.expected)
        when = " and ".join(f"({ast.unparse(c)})" for c in conditions(one.step))
        if len(conditions(one.step)) == 1:
            when = when[1:-1]
        output = Output(
            actual,
            expected,
            one.found.how,
            one.step.source.place(one.step.node),
            _code(one.found.atol),
            _code(one.found.rtol),
            when or None,
        )
        earlier = found.get((actual, expected))
        found[(actual, expected)] = output if earlier is None else _merged(earlier, output)
    return tuple(found.values())


def _code(node: ast.expr | None) -> str | None:
    return None if node is None or ast.unparse(node) == "None" else ast.unparse(node)


def _merged(first: Output, second: Output) -> Output:
    """Two comparisons of the same under different conditions as one."""
    if first.when is None:
        return first
    if second.when is None or (first.atol, first.rtol) == (second.atol, second.rtol):
        return replace(second, when=None)

    def either(a: str | None, b: str | None) -> str | None:
        return a if a == b else f"{a} if {first.when} else {b}"

    complementary = second.when in (f"not {first.when}", f"not ({first.when})")
    return replace(
        first,
        atol=either(first.atol, second.atol),
        rtol=either(first.rtol, second.rtol),
        when=None if complementary else f"({first.when}) or ({second.when})",
    )
