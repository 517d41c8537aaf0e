"""Whether what is measured is what is verified: one operator, called in both, and its output."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import Hit
from orchestrator.author.check.flow.frames import Event, Seen
from orchestrator.author.check.flow.trace import traces
from orchestrator.author.check.flow.values import Const, Storage, Tensor, Token, tensors
from orchestrator.author.check.registry import rule
from orchestrator.author.check.rules import golden
from orchestrator.author.check.rules.verification import VERIFY
from orchestrator.author.check.runner import Runner

# Of the suite's base class; any other method that is not in sight may do anything.
_BASE = ("verify", "check_diff", "poison", "synchronize", "generator", "device", "stream")
_TOLD = ("torch.", "tensor.", "def:", "compare:", *(f"self.{name}" for name in _BASE))
_PLAIN = frozenset({"print", "len", "range", "zip", "min", "max", "float", "int", "isinstance"})
_OVERWRITES = frozenset({"tensor.copy_", "tensor.zero_", "tensor.fill_"})


@rule(
    "nothing-launched",
    "error",
    why="An empty launcher is measured as the fastest of all kernels.",
    fix="return self.make_launcher(dev_id, operator, *arguments)",
)
def nothing_launched(benchmark: Benchmark) -> Iterator[Hit]:
    """The launcher does nothing at all."""
    runner = benchmark.runner
    for function in traces(runner).operators if runner is not None else ():
        if isinstance(function, ast.AST) and not any(_works(n) for n in ast.walk(function)):
            assert runner is not None
            yield Hit(runner.source.at(function), "the launcher calls no operator")


def _works(node: ast.AST) -> bool:
    """Whether a piece of a function may be work: a call, arithmetic, a part of a tensor."""
    work = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.AugAssign, ast.Subscript, ast.Await)
    return isinstance(node, (*work, ast.Yield))


@rule(
    "other-operator",
    "error",
    why="The table then has the time of one kernel and the verdict on another.",
    fix="call the same operator in the launcher and in run_verification",
)
def other_operator(benchmark: Benchmark) -> Iterator[Hit]:
    """``run_verification`` calls another operator than the launcher does, or none."""
    runner = benchmark.runner
    method = runner.method(VERIFY) if runner is not None else None
    if runner is None or method is None:
        return
    launched = _operators(list(traces(runner).setup.of("launch")))
    trace = traces(runner).verification
    events = list(trace.of("verify"))
    if not (launched and trace.complete and traces(runner).setup.complete and _told(events)):
        return
    called = _operators(events)
    if called is None:
        return
    if not called:
        if any(True for _ in _compared(events)):
            message = f"never calls {min(launched)}, which the launcher does"
            yield Hit(runner.source.at(method), message)
    elif not any(_alike(one, other) for one in launched for other in called):
        event = next(event for event in events if event.operator)
        message = f"verifies {min(called)}, where the launcher calls {min(launched)}"
        yield Hit(runner.source.at(event.node), message)


def _operators(events: list[Event]) -> set[str] | None:
    """The operators' own names, without namespace and overload; None: not all are by name."""
    found: set[str] = set()
    for event in events:
        if not event.operator:
            continue
        if not event.name.startswith("torch.ops.") and event.name.startswith(("def:", "torch.")):
            return None
        parts = event.name.split(".")
        found.add(parts[3] if event.name.startswith("torch.ops.") and parts[3:] else parts[-1])
    return found


def _alike(one: str, other: str) -> bool:
    """Whether one may be a wrapper of the other: ``rms_norm`` and ``rms_norm_out``."""
    return one in other or other in one


def _told(events: list[Event]) -> bool:
    """Whether it is known of every call what it does."""
    return all(
        event.operator
        or (not event.open and event.name in _PLAIN)
        or (not event.open and event.name.startswith(_TOLD))
        for event in events
    )


def _compared(events: list[Event]) -> Iterator[tuple[Event, Seen, Seen]]:
    """Comparisons of two tensors; differences count where there is nothing else."""
    found = [(e, *e.compared) for e in events if e.compared != (None, None)]
    both = [(e, out, ref) for e, out, ref in found if out is not None and ref is not None]
    plain = [one for one in both if one[0].name != "compare:-"]
    yield from plain or both


def _half_told(events: list[Event]) -> bool:
    """Whether a tensor is compared with something that cannot be told."""
    for event in events:
        if (event.compared[0] is None) != (event.compared[1] is None) and not any(
            isinstance(value, Const) for value in event.args
        ):
            return True
    return False


@rule(
    "output-unused",
    "error",
    why="What the operator computed is thrown away: any kernel passes, also one that does nothing.",
    fix="compare the operator's own output with a reference of the inputs",
)
def output_unused(benchmark: Benchmark) -> Iterator[Hit]:
    """Nothing that the operator wrote is compared, or it is overwritten before."""
    runner = benchmark.runner
    if runner is None or runner.method(VERIFY) is None:
        return
    trace = traces(runner).verification
    events = list(trace.of("verify"))
    compared = list(_compared(events))
    calls = [event for event in events if event.operator]
    if not (trace.complete and calls and compared):
        return
    overwritten = _overwritten(events, compared)
    if overwritten is not None:
        message = f"the operator's output is overwritten: {ast.unparse(overwritten.node)}"
        yield Hit(runner.source.at(overwritten.node), message)
    elif _told(events) and not _half_told(events) and _thrown_away(runner, calls, compared):
        yield Hit(runner.source.at(compared[0][0].node), "what is compared is not its output")


def _overwritten(events: list[Event], compared: list[tuple[Event, Seen, Seen]]) -> Event | None:
    """A call by which the runner itself fills an output between operator and comparison."""
    for at, event in enumerate(events):
        owner = event.args[0] if event.name in _OVERWRITES and event.args else None
        called = event.node.func if isinstance(event.node, ast.Call) else None
        if not isinstance(owner, Tensor) or owner.part or not isinstance(called, ast.Attribute):
            continue
        storage = owner.storage
        # A view of it by another name may be a part.
        if not isinstance(called.value, ast.Name) or called.value.id != storage.name:
            continue
        later = any(storage in _given(one) for one in events[at:] if one.operator)
        before = any(storage in _given(one) for one in events[:at] if one.operator)
        after = events[at:]
        looked_at = any(
            one in after and storage in (out.tensor.storage, ref.tensor.storage)
            for one, out, ref in compared
        )
        if before and not later and looked_at:
            return event
    return None


def _given(call: Event) -> list[Storage]:
    return [tensor.storage for tensor in tensors([*call.args, *call.kwargs.values()])]


def _thrown_away(
    runner: Runner, calls: list[Event], compared: list[tuple[Event, Seen, Seen]]
) -> bool:
    given = {storage for call in calls for storage in _given(call)}
    kept = [call for call in calls if isinstance(runner.source.parent(call.node), ast.Assign)]
    results = {t.storage for call in calls if call.result is not None for t in tensors(call.result)}
    outputs = {storage for storage in given if storage.kind == "empty"}
    if not outputs and not kept:
        return False  # in place, it may be
    for _, *both in compared:
        for seen in both:
            # An input itself: it may have been changed in place.
            sources = {seen.tensor.storage} | ({seen.copy_of.storage} if seen.copy_of else set())
            if sources & given or any(t.storage in outputs | results for t in seen.content):
                return False
    return True


@rule(
    "reference-of-output",
    "error",
    why="What is computed from the output alone agrees with it, whatever the operator computed.",
    fix="compute the reference from the inputs",
)
def reference_of_output(benchmark: Benchmark) -> Iterator[Hit]:
    """All that an output is compared with is computed from that same output."""
    runner = benchmark.runner
    if runner is None or runner.method(VERIFY) is None:
        return
    trace = traces(runner).verification
    events = list(trace.of("verify"))
    compared = list(_compared(events))
    alone = all(_alone(out, ref) for _, out, ref in compared)
    if not (trace.complete and compared and alone and _told(events)) or _half_told(events):
        return
    if not any(golden.output_with_itself(benchmark)) and not any(
        golden.output_with_its_clone(benchmark)
    ):
        place = compared[0][0].node
        yield Hit(runner.source.at(place), "the output is compared with what is made of it alone")


def _alone(out: Seen, ref: Seen) -> bool:
    """Whether both come of one output, and are no pieces of it.

    What is changed in place may have a property that shows in itself alone.
    """
    sources: frozenset[Token] = out.content | ref.content
    if len(sources) != 1 or not (out.content and ref.content):
        return False
    ((storage, version),) = sources
    written = version > 0 or storage.kind == "result"
    return written and not storage.has_data() and out.tensor.storage is not ref.tensor.storage
