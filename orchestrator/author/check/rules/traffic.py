"""Bytes that ``define_metrics`` declares for a call: the right element size, all tensors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import Hit
from orchestrator.author.check.flow.expressions import spread
from orchestrator.author.check.flow.frames import SELF_DTYPE, Event
from orchestrator.author.check.flow.trace import Trace, traces
from orchestrator.author.check.flow.values import (
    Const,
    Storage,
    Symbol,
    Tensor,
    Value,
    key,
    tensors,
)
from orchestrator.author.check.registry import rule
from orchestrator.author.check.rules.metrics import listed, metrics_of
from orchestrator.author.check.source import Source

# Touched in part, or only while the operator works: a call moves less than all of them, or nothing
# that a caller could know.
_PARTLY = re.compile(
    r"cache|pool|workspace|scratch|tmp|temp|buf|table|"
    # Numbers that say where and how many: next to nothing beside what they point to.
    r"len|idx|index|indices|(?:^|_)ids?(?:_|$)|slot|map|pos|ptr|offset|cu_|perm|start|loc",
    re.IGNORECASE,
)


@rule(
    "bfloat16-bytes",
    "error",
    why="float16 and bfloat16 both take 2 bytes; counted as 4, the bandwidth is twice the truth.",
    fix="take self.dtype.itemsize, or tensor.element_size()",
)
def bfloat16_bytes(benchmark: Benchmark) -> Iterator[Hit]:
    """A test of the dtype gives one of float16 and bfloat16 4 bytes instead of 2."""
    runner = benchmark.runner
    if runner is None or not _has_sizes(runner.source):
        return
    both = traces(runner).metrics_as("float16"), traces(runner).metrics_as("bfloat16")
    half, brain = both
    if _same_traffic(*both):
        return
    sizes: list[tuple[ast.AST, int]] = []
    for node, value in half.chosen.items():
        pair = (_bytes(value), _bytes(brain.chosen.get(node)))
        if pair in ((2, 4), (4, 2)):
            sizes.append((node, pair[0] or 0))
    nodes = {node for node, _ in sizes}
    deepest = [
        (node, size)
        for node, size in sizes
        if not isinstance(node, ast.Name | ast.Attribute)
        and not nodes & set(list(ast.walk(node))[1:])
        and not (isinstance(node, ast.Call) and runner.callee(node) is not None)
    ]
    if not deepest and sizes:
        decided = [
            node
            for node, value in half.chosen.items()
            if isinstance(node, ast.If) and brain.chosen.get(node) not in (None, value)
        ]
        deepest = [(node.test, sizes[0][1]) for node in decided[-1:] if isinstance(node, ast.If)]
    for node, size in deepest:
        wrong = "bfloat16" if size == 2 else "float16"
        yield Hit(runner.source.at(node), f"counts 4 bytes for an element of {wrong}, which has 2")


def _has_sizes(source: Source) -> bool:
    """Whether a 2 or 4 stands where it may be chosen by a dtype."""
    choosing = (ast.IfExp, ast.Dict, ast.BoolOp, ast.Return, ast.Assign, ast.Call)
    return bool(re.search("float16|half", source.text)) and any(
        isinstance(source.parent(node), choosing)
        for node in source.walk(ast.Constant)
        if node.value == 4 and type(node.value) is int
    )


def _bytes(value: Value | None) -> int | None:
    return value.value if isinstance(value, Const) and type(value.value) is int else None


def _same_traffic(one: Trace, other: Trace) -> bool:
    """Whether both surely declare the same bytes, so that what differs is something else."""
    left, right = ([key(v) for v in _amounts(trace)] for trace in (one, other))
    return bool(left) and None not in left and left == right


def _amounts(trace: Trace) -> list[Value]:
    """Bytes declared with plain numbers."""
    names = ("state.add_global_memory_reads", "state.add_global_memory_writes")
    return [event.args[0] for event in trace.named(*names) if event.args]


@rule(
    "fixed-element-size",
    "warning",
    why="The config's dtype can change; bytes counted with a fixed element size are then wrong.",
    fix="multiply with self.dtype.itemsize, or take tensor.nbytes",
)
def fixed_element_size(benchmark: Benchmark) -> Iterator[Hit]:
    """Bytes are declared with a fixed element size while the data has the config's dtype."""
    trace, runner = metrics_of(benchmark), benchmark.runner
    if trace is None or runner is None:
        return
    floats = [str(v) for v in benchmark.config.values("dtype") if "float" in str(v)]
    data = [t for e in trace.of("launch") if e.operator for t in tensors(e.args)]
    if not floats or not any(t.storage.dtype == SELF_DTYPE for t in data):
        return
    moved = any(True for _ in trace.named("self.moves"))
    amounts = [(event, event.args[0]) for event in _declaring(trace) if event.args]
    keys = [key(value) for _, value in amounts]
    if moved or not keys or None in keys or any(_depends(found) for found in keys):
        return
    for event, value in amounts:
        if isinstance(value, Symbol) and _factor(value.key):
            call = event.node
            node = call.args[0] if isinstance(call, ast.Call) and call.args else call
            yield Hit(
                runner.source.at(node),
                f"bytes are counted with {_factor(value.key)} bytes an element for every dtype",
            )


def _declaring(trace: Trace) -> Iterator[Event]:
    return trace.named("state.add_global_memory_reads", "state.add_global_memory_writes")


def _depends(found: Any) -> bool:
    """Whether a key has an element size or the dtype in it."""
    if not isinstance(found, tuple):
        return False
    if found[:1] in (("itemsize",), ("element_size",), ("nbytes",)) or found == (
        "setting",
        "dtype",
    ):
        return True
    return any(_depends(part) for part in found)


def _factor(found: Any) -> int | None:
    """The 2 or 4 that a product is multiplied with."""
    if not isinstance(found, tuple) or found[:1] != ("Mult",):
        return None
    for part in found[1:]:
        if part in (("const", "int", 2), ("const", "int", 4)):
            return int(part[2])
        inner = _factor(part)
        if inner is not None:
            return inner
    return None


@rule(
    "traffic-missing",
    "error",
    why="Without reads and writes GlobalMem BW and BWUtil are empty, or count half of the traffic.",
    fix="declare it: self.moves(state, read=(x,), written=(out,))",
)
def traffic_missing(benchmark: Benchmark) -> Iterator[Hit]:
    """``define_metrics`` declares no bytes read, or none written."""
    trace, runner = metrics_of(benchmark), benchmark.runner
    if trace is None or runner is None or runner.method("define_metrics") is None:
        return
    missing = [word for word in ("read", "written") if word not in _directions(trace)]
    if missing:
        where = runner.methods["define_metrics"]
        yield Hit(runner.source.at(where), f"define_metrics declares no bytes {listed(missing)}")


def _directions(trace: Trace) -> set[str]:
    """Which of ``read`` and ``written`` are declared."""
    return {
        word
        for event in trace.events
        for word, name, keyword in (
            ("read", "state.add_global_memory_reads", "read"),
            ("written", "state.add_global_memory_writes", "written"),
        )
        if event.name == name
        or (event.name == "self.moves" and (keyword in event.kwargs or event.open))
    }


@rule(
    "traffic-incomplete",
    "warning",
    why="What one call moves is what BWUtil is computed from; a tensor left out makes it too low.",
    fix="name the tensor in read=, written= or both",
)
def traffic_incomplete(benchmark: Benchmark) -> Iterator[Hit]:
    """Reads and writes are those of whole tensors, but one that the operator gets is not there."""
    trace, runner = metrics_of(benchmark), benchmark.runner
    if trace is None or runner is None:
        return
    moved = _moved(trace)
    launched = [event for event in trace.of("launch") if event.operator]
    if not moved or len(launched) != 1 or len(_directions(trace)) < 2:
        return
    call = launched[0]
    where = next((e.node for e in trace.of("metrics") if e.name in _DECLARES), None)
    for tensor in tensors([*call.args, *call.kwargs.values()]):
        storage = tensor.storage
        told = storage.name or ""
        counted = storage in moved or any(token.storage in moved for token in storage.content)
        if told and not counted and not storage.tiny and not _PARTLY.search(told):
            at = runner.source.at(where or runner.methods["define_metrics"])
            yield Hit(at, f"{told} goes to the operator, but neither reads nor writes count it")


_DECLARES = ("self.moves", "state.add_global_memory_reads", "state.add_global_memory_writes")


def _moved(trace: Trace) -> set[Storage]:
    """The tensors that are counted; empty where something else than whole tensors is."""
    found: set[Storage] = set()
    for event in trace.named(*_DECLARES):
        values: list[Value] = []
        if event.name == "self.moves":
            for word in ("read", "written"):
                items, more = spread(event.kwargs[word]) if word in event.kwargs else ([], False)
                if more or event.open:
                    return set()
                values += items
        else:
            values = event.args[:1]
        for value in values:
            if isinstance(value, Tensor) and value.part is None:
                found.add(value.storage)
            elif isinstance(value, Symbol) and value.whole:
                found |= value.sizes
            else:
                return set()
    return found
