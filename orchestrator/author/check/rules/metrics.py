"""The columns that ``define_metrics`` declares."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import Edit, Hit
from orchestrator.author.check.flow.constants import comma
from orchestrator.author.check.flow.frames import Event
from orchestrator.author.check.flow.trace import Trace, traces
from orchestrator.author.check.flow.values import (
    Const,
    Name,
    Text,
    Value,
    options,
)
from orchestrator.author.check.registry import rule
from orchestrator.author.check.source import Source

_SUMMARIES = ("Op", "dtype", "Shape")
_STATE = Name("state")


def metrics_of(benchmark: Benchmark) -> Trace | None:
    """What ``define_metrics`` does; None where it cannot be told as a whole."""
    runner = benchmark.runner
    if runner is None or runner.cls is None:
        return None
    trace = traces(runner).setup
    out_of_sight = any(
        _STATE in event.args or _STATE in event.kwargs.values()
        for event in trace.events
        if not event.name.startswith(("def:", "state.")) and event.name != "self.moves"
    )
    known = runner.complete or runner.method("define_metrics") is not None
    return trace if trace.complete and known and not out_of_sight else None


@rule(
    "summary-missing",
    "error",
    why="Op, dtype and Shape tell the cases of a table apart; without one of them rows collide.",
    fix='declare it in define_metrics: state.add_summary("Shape", "(4096 4096)")',
)
def summary_missing(benchmark: Benchmark) -> Iterator[Hit]:
    """``define_metrics`` does not declare ``Op``, ``dtype`` or ``Shape``."""
    trace, runner = metrics_of(benchmark), benchmark.runner
    if trace is None or runner is None or runner.cls is None:
        return
    declared: set[Any] = set()
    for event in trace.named("state.add_summary"):
        for name in options(event.argument(0, "key") or event.argument(0, "name") or Text(False)):
            if not isinstance(name, Const):
                return
            declared.add(name.value)
    missing = [name for name in _SUMMARIES if name not in declared]
    if missing:
        where = runner.method("define_metrics") or runner.cls
        yield Hit(runner.source.at(where), f"define_metrics declares no {listed(missing)} summary")


def listed(words: list[str]) -> str:
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


@rule(
    "shape-comma",
    "error",
    why="A comma in Shape shifts the columns of every script that splits the CSV's lines.",
    fix="separate with spaces",
    fixable=True,
)
def shape_comma(benchmark: Benchmark) -> Iterator[Hit]:
    """The ``Shape`` summary has a comma in it."""
    runner = benchmark.runner
    if runner is None:
        return
    for event in traces(runner).setup.named("state.add_summary"):
        if Const("Shape") not in options(event.argument(0, "key") or Text(False)):
            continue
        value = event.argument(1, "value")
        for option in options(value) if value is not None else ():
            if comma(option):
                node = _written(runner.source, option, event)
                yield Hit(
                    runner.source.at(node),
                    "Shape has a comma in it",
                    edit=_without_commas(runner.source, node),
                )


def _written(source: Source, value: Value, event: Event) -> ast.AST:
    """The node that writes a text down, else the argument that it is."""
    node = value.node if isinstance(value, Const | Text) else None
    if node is not None and hasattr(node, "lineno") and source.parent(node) is not None:
        return node
    call = event.node
    return call.args[1] if isinstance(call, ast.Call) and len(call.args) > 1 else call


def _without_commas(source: Source, node: ast.AST) -> Edit | None:
    """The edit that puts spaces in place of the commas of a literal's own text."""
    if not isinstance(node, ast.Constant | ast.JoinedStr):
        return None
    start, end = source.span(node)
    text, depth, made = source.text[start:end], 0, ""
    formatted = isinstance(node, ast.JoinedStr)
    for letter, following in zip(text, [*text[1:], ""], strict=True):
        depth += formatted * ((letter == "{") - (letter == "}"))
        own = letter == "," and depth == 0
        made += ("" if following == " " else " ") if own else letter
    return Edit(source.path, start, end, text, made) if made != text else None
