"""The runner's calls of its operator against the operator's current schema.

They need the operator's source (``--source``) or a built library (``--library``), and are silent
without. An operator with several schemas is called rightly where one of them takes the call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.calls import OperatorCall
from orchestrator.author.check.dtypes import is_dtype
from orchestrator.author.check.finding import Hit
from orchestrator.author.check.flow.frames import SELF_DTYPE
from orchestrator.author.check.flow.trace import traces
from orchestrator.author.check.flow.values import Const, Name, Value
from orchestrator.author.check.registry import rule
from orchestrator.author.check.runner import Runner
from orchestrator.author.check.signature import Dtype, Given, Kind, Passed, mismatches, signature
from orchestrator.author.check.source import dotted
from orchestrator.author.facts import Operator

_WHY = "Operators change: a call that does not fit the current schema ends the case in an error."
# Namespaces of one library each: a call goes to one of them, and the operator may have moved.
_FAMILIES = (frozenset({"_C", "_moe_C", "_C_cache_ops", "_C_custom_ar", "_C_utils"}),)


_TOLD = ("torch.", "self.")


def _is_called(call: OperatorCall, operator: Operator) -> bool:
    if call.target.startswith("torch.ops."):
        return call.namespace == operator.namespace
    called = call.namespace
    return operator.namespace == called or called.endswith(f".{operator.namespace}")


def _given(benchmark: Benchmark, call: OperatorCall) -> Given:
    """What a call passes; where the text does not tell, what interpreting the runner does."""
    names = {node: _variable(node) for node in (*call.arguments, *call.keywords.values())}
    by_position = [Passed(n, names[n], _values(benchmark, n)) for n in call.arguments]
    by_name = {k: Passed(n, names[n], _values(benchmark, n)) for k, n in call.keywords.items()}
    if not call.open and not call.open_keywords:
        return Given(call.node, by_position, by_name, complete=True)
    return _traced(benchmark, call) or Given(call.node, by_position, by_name, complete=False)


def _values(benchmark: Benchmark, node: ast.expr) -> list[Any]:
    """The values that an argument may have, as far as they can be told; a dtype is a ``Dtype``."""
    runner = benchmark.runner
    assert runner is not None
    behind = runner.value_of(node) or node
    path = dotted(behind) or ""
    own = runner.attribute(behind) == "dtype" and not runner.attributes.get("dtype")
    if own or (path.startswith("torch.") and is_dtype(path)):
        return [Dtype(path)]
    return benchmark.values(node)


def _traced(benchmark: Benchmark, call: OperatorCall) -> Given | None:
    """What all ways to a call pass alike; None where it cannot be told."""
    assert benchmark.runner is not None
    if _may_grow_elsewhere(benchmark.runner, call.node):
        return None
    both = traces(benchmark.runner)
    events = [*both.setup.events, *both.verification.events]
    if call.launched:
        # What a launcher was given is in its own event: told in full there, or not at all.
        made = [event for event in events if event.node is call.node]
        events = [e for e in events if e.phase == "launch" and e.name == call.target]
    else:
        made = [event for event in events if event.name.endswith((".make_launcher", ".partial"))]
        events = [event for event in events if event.node is call.node]
    counts = {(len(event.args), *sorted(event.kwargs)) for event in events}
    if len(counts) != 1 or any(event.open for event in (*events, *made)):
        return None
    first = events[0]
    by_position = [_passed(call.node, value) for value in first.args]
    by_name = {name: _passed(call.node, value) for name, value in first.kwargs.items()}
    return Given(call.node, by_position, by_name, complete=True)


def _may_grow_elsewhere(runner: Runner, call: ast.Call) -> bool:
    """Whether a list that ``call`` spreads is handed to another function, which may add to it."""
    names = {
        one.value.id
        for one in call.args
        if isinstance(one, ast.Starred) and isinstance(one.value, ast.Name)
        if isinstance(runner.value_of(one.value), ast.List)
    }
    return any(
        isinstance(argument, ast.Name) and argument.id in names
        for other in (runner.calls() if names else ())
        for argument in other.args
    )


def _passed(node: ast.AST, value: Value) -> Passed:
    if isinstance(value, Name) and (value == SELF_DTYPE or is_dtype(value.path)):
        return Passed(node, None, [Dtype(value.path)] if value.path.startswith(_TOLD) else [])
    return Passed(node, None, [value.value] if isinstance(value, Const) else [])


def _variable(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def _hits(benchmark: Benchmark, kind: Kind) -> Iterator[Hit]:
    runner = benchmark.runner
    if runner is None or benchmark.calls is None:
        return
    for call in benchmark.calls.operators:
        fitting = [one for one in benchmark.tree.known(call.name) if _is_called(call, one)]
        if not fitting:
            continue
        given = _given(benchmark, call)
        wrong = [mismatches(given, operator) for operator in fitting]
        if all(wrong):
            for mismatch in min(wrong, key=len):
                if mismatch.kind == kind:
                    at = runner.source.at(_within(mismatch.node, call.node))
                    yield Hit(at, f"{call.name}: {mismatch.message}", mismatch.fix)


def _within(node: ast.AST, call: ast.Call) -> ast.AST:
    """The argument at fault where it stands in the call itself, else the call."""
    return node if any(found is node for found in ast.walk(call)) else call


@rule("missing-argument", "error", why=_WHY, fix="pass it", needs="operator")
def missing_argument(benchmark: Benchmark) -> Iterator[Hit]:
    """A call of the operator lacks an argument that has no default."""
    yield from _hits(benchmark, "missing")


@rule("too-many-arguments", "error", why=_WHY, fix="leave them out", needs="operator")
def too_many_arguments(benchmark: Benchmark) -> Iterator[Hit]:
    """A call of the operator passes more arguments than it takes."""
    yield from _hits(benchmark, "many")


@rule("unknown-argument", "error", why=_WHY, fix="leave it out", needs="operator")
def unknown_argument(benchmark: Benchmark) -> Iterator[Hit]:
    """A call of the operator names an argument that it does not have, or one twice."""
    yield from _hits(benchmark, "unknown")


@rule("argument-kind", "error", why=_WHY, fix="pass what it takes", needs="operator")
def argument_kind(benchmark: Benchmark) -> Iterator[Hit]:
    """An argument is a literal, or a config's value, of a kind that the operator does not take."""
    yield from _hits(benchmark, "kind")


@rule(
    "swapped-arguments",
    "error",
    why="Tensors in each other's places give wrong results, or read and write out of bounds.",
    fix="pass them in the operator's order",
    needs="operator",
)
def swapped_arguments(benchmark: Benchmark) -> Iterator[Hit]:
    """Variables that are called exactly like arguments stand in each other's places."""
    yield from _hits(benchmark, "swapped")


@rule(
    "other-namespace",
    "error",
    why="An operator that is not in the namespace it is called in does not exist there.",
    fix="call it where it is registered",
    needs="operator",
)
def other_namespace(benchmark: Benchmark) -> Iterator[Hit]:
    """The source registers the operator in another namespace of the same library."""
    runner = benchmark.runner
    if runner is None or benchmark.calls is None:
        return
    for call in benchmark.calls.operators:
        found = benchmark.tree.known(call.name)
        if not found or any(_is_called(call, one) for one in found):
            continue
        for family in _FAMILIES:
            there = [one for one in found if one.namespace in family]
            if call.namespace in family and there and call.target.startswith("torch.ops."):
                message = f"{call.target} is registered as {there[0].call}"
                fix = f"call {signature(there[0])}"
                yield Hit(runner.source.at(call.node), message, fix)


@rule(
    "unknown-operator",
    "error",
    why="A name that the library does not register ends the case in an AttributeError.",
    fix="call the operator by the name that it is registered under",
    needs="operator",
)
def unknown_operator(benchmark: Benchmark) -> Iterator[Hit]:
    """The sources have the namespace that is called, and a near name, but not this operator."""
    runner, tree = benchmark.runner, benchmark.tree
    if runner is None or benchmark.calls is None:
        return
    told: set[str] = set()
    for call in benchmark.calls.operators:
        if call.target in told or not call.target.startswith("torch.ops.") or tree.known(call.name):
            continue
        told.add(call.target)
        guesses = [one for one in tree.known_names if _one_slip(call.name, one)]
        there = [o for guess in guesses for o in tree.known(guess) if _is_called(call, o)]
        if there:
            message = f"nothing registers {call.target}"
            yield Hit(runner.source.at(call.node), message, f"did you mean {there[0].call}?")


def _one_slip(one: str, other: str) -> bool:
    """Whether a letter too many, too few or wrong, or two that changed places, are all.

    Sources may be a part of a library only, whose operators have names like each other: another
    digit is another operator.
    """
    if len(one) > len(other):
        one, other = other, one
    head = next((n for n, (a, b) in enumerate(zip(one, other)) if a != b), len(one))  # noqa: B905
    rest, longer = one[head:], other[head:]
    if any(letter.isdigit() for letter in rest[:1] + longer[:1]):
        return False
    if len(one) == len(other):
        return rest[1:] == longer[1:] or (rest[2:] == longer[2:] and rest[:2] == longer[1::-1])
    return rest == longer[1:]


@rule(
    "returns-nothing",
    "error",
    why="What an operator does not return is None: what is read of it ends the case, or is wrong.",
    fix="read the tensors that it writes to",
    needs="operator",
)
def returns_nothing(benchmark: Benchmark) -> Iterator[Hit]:
    """What a call returns is used, and the operator's schema returns nothing."""
    runner = benchmark.runner
    if runner is None or benchmark.calls is None:
        return
    for call in benchmark.calls.operators:
        fitting = [one for one in benchmark.tree.known(call.name) if _is_called(call, one)]
        silent = [one.kind == "schema" and not one.returns for one in fitting]
        if call.launched or not fitting or not all(silent):
            continue
        parent = runner.source.parent(call.node)
        # A launcher may well return the None of what it calls.
        if isinstance(parent, ast.Expr | ast.Return | ast.Lambda | ast.withitem):
            continue
        message = f"{call.name} returns nothing, and its result is used"
        yield Hit(runner.source.at(call.node), message, f"the operator is {signature(fitting[0])}")
