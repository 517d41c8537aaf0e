"""What a launcher does: it is called a thousand times, and all of it is measured."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import Hit
from orchestrator.author.check.flow import torch_model
from orchestrator.author.check.flow.calls import COMPARISONS
from orchestrator.author.check.flow.frames import ARITHMETIC, Event
from orchestrator.author.check.flow.trace import Trace, traces
from orchestrator.author.check.flow.values import tensors
from orchestrator.author.check.registry import rule
from orchestrator.author.check.rules.data import text_of

# Whatever the operator is, this is no part of it.
_NEVER = frozenset(
    {
        *("print", "breakpoint", "input", "open", "gc.collect"),
        *("torch.cuda.empty_cache", "torch.cuda.Event", "torch.cuda.manual_seed"),
        *("torch.manual_seed", "self.poison", "self.moves", "self.generator"),
        *(f"time.{name}" for name in ("time", "perf_counter", "perf_counter_ns", "sleep")),
        *COMPARISONS,
    }
)
# Of torch, and yet only says where the operator runs.
_AROUND = ("torch.cuda.", "torch.ops.", "torch.no_grad", "torch.inference_mode", "torch.device")


@rule(
    "data-in-launcher",
    "error",
    why="The launcher is called thousands of times: memory it takes and copies it makes are timed.",
    fix="make it in prepare_and_get_launcher, and let the launcher call the operator alone",
)
def data_in_launcher(benchmark: Benchmark) -> Iterator[Hit]:
    """The launcher makes or copies tensors."""
    runner = benchmark.runner
    if runner is None:
        return
    trace = traces(runner).setup
    pure = not _calls_operator(trace)
    # Without an operator of a library, torch's own functions are what is measured.
    made = (
        event
        for event in trace.of("launch")
        if event.made is not None
        and not event.operator
        and (event.random or not pure)
        and event.name.removeprefix("tensor.") not in torch_model.TO_HOST
    )
    for event in _once(made):
        what = "copies" if event.name.startswith("tensor.") and not event.random else "makes"
        yield Hit(
            runner.source.at(event.outermost),
            f"the launcher {what} a tensor: {text_of(event.outermost)}",
        )


@rule(
    "launcher-does-more",
    "error",
    why="All that the launcher does is timed with the operator, at every one of its calls.",
    fix="let the launcher call the operator alone",
)
def launcher_does_more(benchmark: Benchmark) -> Iterator[Hit]:
    """The launcher waits, prints, brings numbers to the host or computes beside the operator."""
    runner = benchmark.runner
    if runner is None:
        return
    trace = traces(runner).setup
    pure = not _calls_operator(trace)
    doing = (
        event for event in trace.of("launch") if _extra(event) or (not pure and _computes(event))
    )
    for event in _once(doing):
        what = f"the launcher does more than call the operator: {text_of(event.outermost)}"
        yield Hit(runner.source.at(event.outermost), what)


def _extra(event: Event) -> bool:
    """Whether it waits, prints, or brings numbers to the host."""
    last = event.name.rpartition(".")[2]
    to_host = event.name.startswith("tensor.") and last in torch_model.TO_HOST
    waits = last == "synchronize" or event.name in _NEVER
    return waits or to_host or event.name.startswith("logging.")


def _calls_operator(trace: Trace) -> bool:
    return any(e.operator and not e.name.startswith("def:") for e in trace.of("launch"))


def _computes(event: Event) -> bool:
    """Whether a call computes with tensors and is not the operator's."""
    if event.operator or event.made is not None or not tensors(event.args):
        return False
    if event.name.startswith(ARITHMETIC):
        return True
    if event.name.startswith("torch."):
        return not event.name.startswith(_AROUND)
    name = event.name.removeprefix("tensor.")
    return event.name.startswith("tensor.") and name not in (*torch_model.VIEWS, "record_stream")


def _once(events: Iterator[Event]) -> Iterator[Event]:
    """The first of each place in the launcher: a call, or that of a helper that leads to it."""
    seen: set[ast.AST] = set()
    for event in events:
        if event.outermost not in seen:
            seen.add(event.outermost)
            yield event
