"""The dtype of a row against the dtype of what is measured."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.dtypes import SHORT, is_dtype
from orchestrator.author.check.finding import Hit
from orchestrator.author.check.registry import rule
from orchestrator.author.check.runner import Runner
from orchestrator.author.check.source import dotted

_DEFAULT = "float32"
_ALIASES = {"float": "float32", "half": "float16", "double": "float64", "long": "int64", **SHORT}
_LABELS = ("define_metrics",)


def _plain(text: str) -> str:
    word = text.removeprefix("torch.")
    return _ALIASES.get(word, word)


@rule(
    "dtype-unused",
    "error",
    why="A row then names a dtype that nothing was measured with.",
    fix="make the data with dtype=self.dtype, or refuse other dtypes in __init__ with a ValueError",
)
def dtype_unused(benchmark: Benchmark) -> Iterator[Hit]:
    """The config's dtype is one that the runner's data never has."""
    runner, config = benchmark.runner, benchmark.config
    if runner is None or runner.cls is None or not runner.complete or "dtype" not in config:
        return
    if _reads_dtype(runner) or "dtype" in _keys_read(benchmark):
        return
    written = {_plain(path) for path in _named(runner)} | {_DEFAULT}
    values = [one for one in config.values("dtype") if isinstance(one, str) and is_dtype(one)]
    others = [one for one in values if _plain(one) not in written]
    if others:
        message = f"the data does not depend on dtype, which is {others[0]}"
        at = config.at("dtype")
        yield Hit(at, message, anchors=benchmark.anchors("dtype"))


def _reads_dtype(runner: Runner) -> bool:
    """Whether anything but the summaries asks for the case's dtype, or hands the object on."""
    for node in runner.source.walk(ast.Attribute):
        function = runner.source.function(node)
        label = function is not None and function.name in _LABELS
        if runner.attribute(node) in ("dtype", "compute_dtype", "config") and not label:
            return True
    return any(
        isinstance(one, ast.Name) and one.id == runner.own_name(one)
        for call in runner.calls()
        for one in (*call.args, *(word.value for word in call.keywords))
    )


def _keys_read(benchmark: Benchmark) -> set[str]:
    runner = benchmark.runner
    assert runner is not None
    found = set()
    for read in benchmark.reads.reads:
        function = runner.source.function(read.node)
        if function is None or function.name not in _LABELS:
            found.add(read.key)
    return found


def _named(runner: Runner) -> Iterator[str]:
    """The dtypes that the runner writes out, but for its summaries; methods that convert too."""
    for node in runner.source.walk(ast.Attribute):
        function = runner.source.function(node)
        if function is not None and function.name in _LABELS:
            continue
        path = dotted(node) or ""
        if path.startswith("torch.") and is_dtype(path):
            yield path
        elif node.attr in _ALIASES or node.attr in ("bfloat16", "int", "bool"):
            yield node.attr


@rule(
    "dtype-summary",
    "error",
    why="Tables tell cases apart by this column; one that is written out says the same of all.",
    fix='declare it from the case: str(self.dtype).removeprefix("torch.")',
)
def dtype_summary(benchmark: Benchmark) -> Iterator[Hit]:
    """The ``dtype`` summary is a literal that the config's dtype, or one of its sweep, is not."""
    runner, config = benchmark.runner, benchmark.config
    method = runner.method("define_metrics") if runner is not None else None
    if runner is None or method is None:
        return
    values = [one for one in config.values("dtype") if isinstance(one, str) and is_dtype(one)]
    for call in runner.calls(method):
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "add_summary":
            continue
        if len(call.args) != 2 or runner.source.literal(call.args[0]) != "dtype":
            continue
        said = runner.source.literal(call.args[1])
        if not isinstance(said, str) or not is_dtype(_plain(said)):
            continue
        others = [one for one in values if _plain(one) != _plain(said)]
        if others:
            message = f"the dtype summary says {said}, and the config {others[0]}"
            yield Hit(runner.source.at(call.args[1]), message)
