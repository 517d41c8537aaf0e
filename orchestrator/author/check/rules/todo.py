"""What was left open when a benchmark was written."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import At, Hit
from orchestrator.author.check.registry import rule
from orchestrator.inventory.spelling import short

MARK = "TODO(mxfleet)"


@rule(
    "todo",
    "error",
    why="mxfleet gen op marks what it could not determine: until then the benchmark is a guess.",
    fix="settle it and remove the mark",
)
def todo(benchmark: Benchmark) -> Iterator[Hit]:
    """A ``TODO(mxfleet)`` of ``mxfleet gen op`` is left in the runner or the config."""
    texts = [(benchmark.config_shown, benchmark.config.text)]
    if benchmark.runner is not None:
        texts.append((benchmark.runner_shown, benchmark.runner.source.text))
    for shown, text in texts:
        if MARK not in text:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            before, mark, rest = line.partition(MARK)
            if mark:
                what = _unquoted(rest)
                message = f"still open: {short(what, 400)}" if what else "something is still open"
                yield Hit(At(shown, number, len(before) + 1), message)


def _unquoted(rest: str) -> str:
    """What follows the mark, without the quote, comma or bracket of what it stands in."""
    what = rest.strip(" :\t").rstrip("\"', \t")
    while what.endswith(")") and what.count(")") > what.count("("):
        what = what[:-1].rstrip("\"', \t")
    return what
