"""The config's keys: what the harness asks of its own, how they fit what the runner reads."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from typing import Any

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.config_file import HARNESS_KEYS, NEVER_SWEPT
from orchestrator.author.check.finding import Hit
from orchestrator.author.check.literals import UNKNOWN
from orchestrator.author.check.reads import Read
from orchestrator.author.check.registry import rule
from orchestrator.inventory.spelling import near, short

_NOT_PARAMETERS = frozenset({"device_id", "device_name", "samples"})


def _sound(benchmark: Benchmark) -> bool:
    """Whether there is a config that can be read, of a runner that can."""
    config = benchmark.config
    whole = config.problem is None and not config.missing
    return whole and benchmark.runner is not None and benchmark.runner.cls is not None


@rule(
    "unread-key",
    "error",
    why="A key that nobody reads changes nothing: what it says was never measured.",
    fix="remove it, or read it with config.get",
)
def unread_key(benchmark: Benchmark) -> Iterator[Hit]:
    """The runner never reads a key of its config; the key that it reads instead is told."""
    reads = benchmark.reads
    if not _sound(benchmark) or reads.dynamic or not _sees_all(benchmark):
        return
    read = reads.keys()
    wanted = read - set(benchmark.config) - HARNESS_KEYS
    for key in benchmark.config:
        if key in HARNESS_KEYS or key in read:
            continue
        guess = near(key, wanted)
        fix = f'the runner reads "{guess}": did you mean that?' if guess else None
        yield Hit(
            benchmark.config.at(key),
            f'the runner never reads "{short(key)}"',
            fix,
            anchors=benchmark.anchors(),
        )


def _sees_all(benchmark: Benchmark) -> bool:
    """Whether no base class of another module may read more."""
    return benchmark.runner is not None and benchmark.runner.complete


@rule(
    "missing-key",
    "error",
    why="A key that is read without a default ends the case in a KeyError where it is absent.",
    fix="add it to the config, or give a default",
)
def missing_key(benchmark: Benchmark) -> Iterator[Hit]:
    """The runner needs a key, by ``config["x"]``, that its config does not have."""
    if not _sound(benchmark) or benchmark.runner is None:
        return
    source = benchmark.runner.source
    asked = {read.key for read in benchmark.reads.reads if read.asked}
    unread = set(benchmark.config) - benchmark.reads.keys() - HARNESS_KEYS
    for read in benchmark.reads.reads:
        if not read.required or read.key in benchmark.config or read.key in asked:
            continue
        if _is_set(benchmark, read.key) or any(
            isinstance(found, ast.Try) for found in source.ancestors(read.node)
        ):
            continue
        guess = near(read.key, unread)
        fix = f'the config has "{guess}": did you mean that?' if guess else None
        yield Hit(source.at(read.node), f'the config has no "{short(read.key)}"', fix)


def _is_set(benchmark: Benchmark, key: str) -> bool:
    """Whether the runner may put the key there itself: ``config["x"] = 1``, ``setdefault``."""
    assert benchmark.runner is not None
    source = benchmark.runner.source
    stored = any(
        not isinstance(node.ctx, ast.Load) and source.literal(node.slice) in (key, UNKNOWN)
        for node in source.walk(ast.Subscript)
    )
    return stored or any(
        isinstance(call.func, ast.Attribute) and call.func.attr in ("setdefault", "update")
        for call in source.walk(ast.Call)
    )


@rule(
    "other-default",
    "warning",
    why="A default other than the config's value misleads readers, and measures something else "
    "once the key is left out.",
    fix="make the default the config's value",
    fixable=True,
)
def other_default(benchmark: Benchmark) -> Iterator[Hit]:
    """A default differs from the config's value, or of a sweep from all of its values."""
    if not _sound(benchmark) or benchmark.runner is None:
        return
    source = benchmark.runner.source
    first: dict[str, tuple[Read, Any]] = {}
    for read in benchmark.reads.reads:
        default = source.literal(read.default)
        if read.default is None or default is UNKNOWN or default is None:
            continue
        if read.key in _NOT_PARAMETERS:
            continue
        if read.key not in benchmark.config:
            former, value = first.setdefault(read.key, (read, default))
            if not _same(value, default):
                line = getattr(former.node, "lineno", 1)
                message = f'"{short(read.key)}" has the default {_shown(default)} here, but '
                message += f"{_shown(value)} in line {line}"
                yield Hit(source.at(read.default), message, "read it once")
            continue
        values = benchmark.config.values(read.key)
        whole = benchmark.config.get(read.key)
        if not values or any(_same(default, one) for one in [*values, whole]):
            continue
        swept = len(values) > 1
        message = f'the default of "{short(read.key)}" is {_shown(default)}, the config has '
        message += f"{'none of it: ' if swept else ''}{_shown(whole)}"
        edit = None
        if isinstance(read.default, ast.Constant) and isinstance(values[0], int | float | str):
            edit = source.replacing(read.default, _as_python(values[0]))
        yield Hit(source.at(read.default), message, f"make it {_shown(values[0])}", edit)


def _as_python(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(left, tuple | list) and isinstance(right, tuple | list):
        pairs = zip(left, right, strict=False)
        return len(left) == len(right) and all(_same(a, b) for a, b in pairs)
    if isinstance(left, str) and isinstance(right, str):
        return left.removeprefix("torch.") == right.removeprefix("torch.")
    return bool(left == right)


def _shown(value: Any) -> str:
    try:
        return short(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        return short(repr(value))


@rule(
    "empty-sweep",
    "error",
    why="A list is a sweep, one case for each value, and an empty one leaves nothing to measure.",
    fix="give it a value, or remove the key",
)
def empty_sweep(benchmark: Benchmark) -> Iterator[Hit]:
    """A value of the config is an empty list."""
    for key in benchmark.config:
        if benchmark.config.get(key) == [] and key not in NEVER_SWEPT:
            at = benchmark.config.at(key)
            yield Hit(at, f'"{short(key)}" is an empty list', anchors=benchmark.anchors(key))
