"""What the harness itself reads of a config: dtype, samples, device_id, device_name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.config_file import HARNESS_KEYS
from orchestrator.author.check.dtypes import is_dtype, probably, surely
from orchestrator.author.check.finding import Hit
from orchestrator.author.check.registry import rule
from orchestrator.inventory.spelling import near, short

MANY = 10_000
MANY_ALLOCATING = 100
# Operators that are known to call cudaMalloc or cudaDeviceSynchronize each time.
_ALLOCATING = frozenset({"gptq_shuffle"})
_SAYS_SO = re.compile(
    r"(?:each|every) call (?:\w+ )?(?:allocates|synchroni[sz]es)"
    r"|(?:allocates|synchroni[sz]es) (?:at|in|on|with) (?:each|every) call"
    r"|cudaMalloc|cudaDeviceSynchronize",
    re.I,
)


def _read(benchmark: Benchmark) -> bool:
    config = benchmark.config
    return config.problem is None and not config.missing


def _misspelt(benchmark: Benchmark, key: str) -> str | None:
    """What a required key may be called instead."""
    others = set(benchmark.config) - benchmark.reads.keys() - HARNESS_KEYS
    guess = near(key, others)
    return f'"{guess}" is there: did you mean {key}?' if guess else None


@rule(
    "missing-dtype",
    "error",
    why="Without a dtype the harness takes float16, whatever the operator was meant to get.",
    fix='add "dtype", such as "bfloat16"',
)
def missing_dtype(benchmark: Benchmark) -> Iterator[Hit]:
    """The config has no dtype."""
    if _read(benchmark) and "dtype" not in benchmark.config:
        fix = _misspelt(benchmark, "dtype")
        yield Hit(
            benchmark.config.at(), "there is no dtype", fix, anchors=benchmark.anchors("dtype")
        )


@rule(
    "unknown-dtype",
    "error",
    why="The harness makes a torch dtype of it, and ends the case where there is none so called.",
    fix="write float16, bfloat16, float32, int32 or another dtype of torch",
    fixable=True,
)
def unknown_dtype(benchmark: Benchmark) -> Iterator[Hit]:
    """The config's dtype, or one of its sweep, is no dtype of torch."""
    config = benchmark.config
    for value in config.values("dtype"):
        if isinstance(value, str) and is_dtype(value):
            continue
        fix, edit = None, None
        if isinstance(value, str):
            guess, sure = probably(value), surely(value)
            fix = f'did you mean "{guess}"?' if guess else None
            if sure is not None and not isinstance(config.get("dtype"), list):
                edit = config.replacing("dtype", sure)
        shown = f'"{short(value)}"' if isinstance(value, str) else short(repr(value))
        yield Hit(
            config.at("dtype"),
            f"{shown} is no dtype of torch",
            fix,
            edit,
            benchmark.anchors("dtype"),
        )


@rule(
    "samples-value",
    "error",
    why="The harness refuses samples that are no positive number.",
    fix='write a number, such as "samples": 1000',
)
def samples_value(benchmark: Benchmark) -> Iterator[Hit]:
    """The config's samples are no whole number above 0."""
    if "samples" not in benchmark.config:
        return
    value = benchmark.config.get("samples")
    if _count(value) is None:
        yield _samples(benchmark, f"samples is {short(repr(value))}, no positive whole number")


@rule(
    "many-samples",
    "warning",
    why="Beyond ten thousand samples the time limit of nvbench ends the measurement.",
    fix="1000 are enough, established ones have up to 2000",
)
def many_samples(benchmark: Benchmark) -> Iterator[Hit]:
    """The config asks for more than 10000 samples."""
    count = _count(benchmark.config.get("samples"))
    if count is not None and count > MANY:
        yield _samples(benchmark, f"{count} samples are more than {MANY}")


@rule(
    "many-samples-allocating",
    "warning",
    why="An operator that allocates or synchronises at each call is so slow that many samples "
    "run into the time limit of nvbench.",
    fix="lower it to 50 to 100, or leave the slow branch out of what is timed",
)
def many_samples_allocating(benchmark: Benchmark) -> Iterator[Hit]:
    """More than 100 samples of an operator that allocates or synchronises at each call."""
    count = _count(benchmark.config.get("samples"))
    if count is None or not MANY_ALLOCATING < count <= MANY:
        return
    where = _allocates(benchmark)
    if where is not None:
        message = f"{count} samples of an operator that allocates at each call ({where})"
        yield _samples(benchmark, message)


def _allocates(benchmark: Benchmark) -> str | None:
    """What says that the operator allocates at each call."""
    for operator in benchmark.operators:
        if operator.allocates:
            return str(operator.allocates[0])
    names = {benchmark.name}
    if benchmark.calls is not None:
        names |= {call.name for call in benchmark.calls.operators}
    known = names & _ALLOCATING
    if known:
        return f"{min(known)} is known for it"
    if benchmark.runner is None:
        return None
    for number, line in enumerate(benchmark.runner.source.text.splitlines(), 1):
        if _SAYS_SO.search(line):
            return f"{benchmark.runner_shown}:{number} says so"
    return None


def _count(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and value > 0 else None


def _samples(benchmark: Benchmark, message: str) -> Hit:
    return Hit(benchmark.config.at("samples"), message, anchors=benchmark.anchors("samples"))


@rule(
    "device-id",
    "error",
    why="mxfleet and testall choose the GPU; a config that names another one breaks their choice.",
    fix='write "device_id": 0',
    fixable=True,
)
def device_id(benchmark: Benchmark) -> Iterator[Hit]:
    """The config's device_id is not 0."""
    config = benchmark.config
    if "device_id" not in config:
        return
    value = config.get("device_id")
    if isinstance(value, bool) or not isinstance(value, int) or value != 0:
        yield Hit(
            config.at("device_id"),
            f"device_id is {short(repr(value))}",
            edit=config.replacing("device_id", 0),
            anchors=benchmark.anchors("device_id"),
        )


def _calls_library(benchmark: Benchmark) -> bool:
    calls = benchmark.calls.operators if benchmark.calls is not None else []
    words = [call.target.split(".") for call in calls]
    return any(one[:2] == ["torch", "ops"] or one[0] != "torch" for one in words)


@rule(
    "device-name",
    "warning",
    why="Results say whether they come from the device that the config was written for.",
    fix='write "device_name": "MetaX C500", or a list of names',
)
def device_name(benchmark: Benchmark) -> Iterator[Hit]:
    """The config has no device_name, or one that is neither a name nor a list of names."""
    config = benchmark.config
    if not _read(benchmark):
        return
    anchors = benchmark.anchors("device_name")
    if "device_name" not in config:
        if not _calls_library(benchmark):
            return  # torch's own operators are the same on every device
        fix = _misspelt(benchmark, "device_name")
        yield Hit(config.at(), "there is no device_name", fix, anchors=anchors)
        return
    value = config.get("device_name")
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) and name.strip() for name in names):
        message = f"device_name is {short(repr(value))}, neither a name nor a list of names"
        yield Hit(config.at("device_name"), message, anchors=anchors)
