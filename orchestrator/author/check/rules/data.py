"""Where the data of a benchmark is made: under the stream that it is measured on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import Hit
from orchestrator.author.check.flow.frames import Event
from orchestrator.author.check.flow.trace import traces
from orchestrator.author.check.registry import rule
from orchestrator.inventory.spelling import short


@rule(
    "data-outside-stream",
    "error",
    why="What another stream still writes may be read too early, and slows the first samples.",
    fix="move it into `with torch.cuda.stream(tc_s):`, or `with self.stream(tc_s):`",
)
def data_outside_stream(benchmark: Benchmark) -> Iterator[Hit]:
    """Data on the device is made outside the benchmark's stream."""
    runner = benchmark.runner
    if runner is None:
        return
    told: set[ast.AST] = set()
    for event in traces(runner).setup.of("init", "prepare"):
        if not _on_device(event) or event.streamed or event.outermost in told:
            continue
        told.add(event.outermost)
        if event.phase == "init":
            message = "data on the device is made in the constructor, under no stream"
        else:
            message = f"{text_of(event.outermost)} makes data outside the stream"
        yield Hit(runner.source.at(event.outermost), message)


def _on_device(event: Event) -> bool:
    """Whether a call makes or copies data on the device."""
    return event.made is not None and event.made.place == "device"


def text_of(node: ast.AST) -> str:
    """What a call calls, as the code has it."""
    if not isinstance(node, ast.Call):
        return short(ast.unparse(node), 60) if isinstance(node, ast.expr | ast.stmt) else "this"
    text = ast.unparse(node.func)
    return f"{text}()" if len(text) <= 60 else f"....{text.rpartition('.')[2]}()"
