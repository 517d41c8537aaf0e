"""Names that a runner reads and nothing defines: they end the case where they are first read."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import Hit
from orchestrator.author.check.registry import rule
from orchestrator.author.check.undefined import undefined
from orchestrator.inventory.spelling import near, short


@rule(
    "undefined-name",
    "error",
    why="A name that nothing defines ends the case in a NameError, often after minutes of work.",
    fix="define it, or import it",
)
def undefined_name(benchmark: Benchmark) -> Iterator[Hit]:
    """The runner reads a name that neither it nor Python defines; a near one is told."""
    runner = benchmark.runner
    if runner is None:
        return
    for node, known in undefined(runner.source.tree):
        guess = near(node.id, known)
        fix = f"did you mean {guess}?" if guess else None
        yield Hit(runner.source.at(node), f"the name {short(node.id)} is not defined", fix)
