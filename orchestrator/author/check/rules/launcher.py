"""What a launcher does: it is called a thousand times, and all of it is measured."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import Hit
from orchestrator.author.check.flow import torch_model
from orchestrator.author.check.flow.calls import COMPARISONS
from orchestrator.author.check.flow.frames import Event
from orchestrator.author.check.flow.trace import Trace, traces
from orchestrator.author.check.flow.values import tensors
from orchestrator.author.check.registry import rule
from orchestrator.author.check.rules.data import text_of
from orchestrator.author.check.runner import Runner

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
    for event in _once(trace.of("launch")):
        # Without an operator of a library, torch's own functions are what is measured.
        if event.made is None or event.operator or (pure and not event.random):
            continue
        if event.name.removeprefix("tensor.") in torch_model.TO_HOST:
            continue
        what = "copies" if event.name.startswith("tensor.") and not event.random else "makes"
        yield Hit(
            runner.source.at(_place(runner, event)), f"the launcher {what} a tensor: {_text(event)}"
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
    for event in _once(trace.of("launch")):
        last = event.name.rpartition(".")[2]
        waits = last == "synchronize" or event.name in _NEVER or event.name.startswith("logging.")
        to_host = event.name.startswith("tensor.") and last in torch_model.TO_HOST
        if waits or to_host or (not pure and _computes(event)):
            at = runner.source.at(_place(runner, event))
            yield Hit(at, f"the launcher does more than call the operator: {_text(event)}")


def _calls_operator(trace: Trace) -> bool:
    return any(e.operator and not e.name.startswith("def:") for e in trace.of("launch"))


def _computes(event: Event) -> bool:
    """Whether a call computes with tensors and is not the operator's."""
    if event.operator or event.made is not None or not tensors(event.args):
        return False
    if event.name.startswith("torch."):
        return not event.name.startswith(_AROUND)
    name = event.name.removeprefix("tensor.")
    return event.name.startswith("tensor.") and name not in (*torch_model.VIEWS, "record_stream")


def _once(events: Iterator[Event]) -> Iterator[Event]:
    """Each place once, however often it is reached."""
    seen: set[ast.AST] = set()
    for event in events:
        if event.node not in seen:
            seen.add(event.node)
            yield event


def _place(runner: Runner, event: Event) -> ast.AST:
    return (
        event.node if hasattr(event.node, "lineno") else runner.methods["prepare_and_get_launcher"]
    )


def _text(event: Event) -> str:
    return text_of(event.node)
