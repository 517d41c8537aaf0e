"""How tightly an output is held to its reference, and by which comparison."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import Hit
from orchestrator.author.check.flow.frames import Event
from orchestrator.author.check.flow.trace import Trace, traces
from orchestrator.author.check.flow.values import (
    NONE,
    Const,
    Cosine,
    Name,
    Setting,
    Storage,
    Value,
    options,
)
from orchestrator.author.check.registry import rule
from orchestrator.author.check.runner import Runner

# The rules of the working description; ``benchmark/harness/thresholds.py`` has the same, and a test
# holds the two against each other.
COSINE = 0.999999
QUANTISED_COSINE = 0.99
QUANTISED_NAME = re.compile(
    r"quant|awq|gptq|marlin|wna16|scaled_mm|fp8|fp4|int8|int4|(?:^|_)w[48](?:a\d+)?(?:_|$)"
)
_NARROW = frozenset({"torch.int8", "torch.uint8"})
_COSINES = ("self.check_diff", "self.verify.cosine")
# Move bits about without computing: every one of them is right or wrong.
_EXACT_NAME = re.compile(
    r"(?:^|_)(?:shuffle|copy_blocks|swap_blocks|reshape_and_cache|concat_and_cache|gather|pack|"
    r"unpack|repack|permute_cols|moe_permute|shuffle_rows|convert_vertical_slash_indexes)(?:_|$)"
)
_COMPUTES_NAME = re.compile(
    r"quant|fp8|int8|gemm|moe_gather|(?:^|_)mm(?:_|$)|matmul|attention|norm|sum|softmax|unpermute"
)
_WHOLE_NUMBERS = frozenset({"torch.int16", "torch.int32", "torch.int64", "torch.bool"})


@rule(
    "loose-threshold",
    "error",
    why="Below 0.999999 (quantised operators: 0.99) a wrong row among many passes unseen.",
    fix="tighten it, or say why it is looser: threshold_reason = ...",
)
def loose_threshold(benchmark: Benchmark) -> Iterator[Hit]:
    """A threshold is below the rules and no reason is given."""
    runner = benchmark.runner
    if runner is None or _reason(runner):
        return
    trace = traces(runner).verification
    told: set[ast.AST] = set()
    for event, value, node in _thresholds(trace):
        least = QUANTISED_COSINE if _quantised(benchmark, runner, event) else COSINE
        loose = [number for number in _numbers(benchmark, value) if number < least]
        if loose and node not in told:
            told.add(node)
            yield Hit(
                runner.source.at(node),
                f"threshold {min(loose):g} is below the {least:g} of the rules, without a reason",
            )


def _thresholds(trace: Trace) -> Iterator[tuple[Event, Value, ast.AST]]:
    """Cosine thresholds in use: of the harness' checks, and of comparisons with a similarity."""
    for event in trace.of("verify"):
        if event.name in _COSINES:
            value = event.argument(2, "threshold")
            reason = event.kwargs.get("reason", NONE)
            if value is not None and reason == NONE:
                yield event, value, _argument(event, 2, "threshold")
        elif event.name in ("compare:Gt", "compare:GtE", "compare:Lt", "compare:LtE"):
            # similarity > least or < least, 1 - similarity likewise: one side passes.
            for cosine, limit in (event.args, reversed(event.args)):
                if isinstance(cosine, Cosine) and isinstance(limit, Const):
                    number = limit.value
                    if type(number) in (int, float) and 0 < number < 1:
                        yield event, Const(1 - number if cosine.distance else number), event.node


def _argument(event: Event, position: int, word: str) -> ast.AST:
    call = event.node
    if isinstance(call, ast.Call):
        for keyword in call.keywords:
            if keyword.arg == word:
                return keyword.value
        if position < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args):
            return call.args[position]
    return call


def _numbers(benchmark: Benchmark, value: Value) -> list[float]:
    found: list[float] = []
    for option in options(value):
        if isinstance(option, Setting):
            values = benchmark.config.values(option.key)
            if not values and isinstance(option.default, Const):
                values = [option.default.value]
        else:
            values = [option.value] if isinstance(option, Const) else []
        found += [
            float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)
        ]
    return found


def _reason(runner: Runner) -> bool:
    """Whether the runner says why its thresholds are loose."""
    given = runner.attributes.get("threshold_reason", [])
    return any(not (isinstance(v, ast.Constant) and not v.value) for v in given)


def _quantised(benchmark: Benchmark, runner: Runner, event: Event) -> bool:
    """As the harness decides it: declared, by the tensors' dtype, or by the name."""
    declared = [
        v.value for v in runner.attributes.get("quantised", []) if isinstance(v, ast.Constant)
    ]
    if any(value is not None for value in declared):
        return any(declared)
    if len(declared) != len(runner.attributes.get("quantised", [])):
        return True  # decided when it runs
    narrow = [seen.tensor.storage.dtype for seen in event.compared if seen is not None]
    if any(isinstance(d, Name) and (d.path in _NARROW or "float8" in d.path) for d in narrow):
        return True
    of_config = any(
        "float8" in str(v) or str(v) in ("int8", "uint8") for v in benchmark.config.values("dtype")
    )
    return of_config or QUANTISED_NAME.search(benchmark.name.lower()) is not None


@rule(
    "exact-by-cosine",
    "error",
    why="Cosine similarity sees neither single wrong bits nor a swapped layout.",
    fix="compare bit for bit: self.verify.exact(out, ref), or torch.equal",
)
def exact_by_cosine(benchmark: Benchmark) -> Iterator[Hit]:
    """The output of an operator that only moves bits, or whole numbers, is compared by cosine."""
    runner = benchmark.runner
    if runner is None:
        return
    trace = traces(runner).verification
    events = list(trace.of("verify"))
    held = {
        seen.tensor.storage
        for event in events
        for seen in event.compared
        if seen is not None and event.name not in _COSINES and not event.name.startswith("compare:")
    }
    exact = _moves_bits(benchmark, trace)
    told: set[ast.AST] = set()
    for event in events:
        out = event.compared[0]
        if event.name not in _COSINES or event.node in told:
            continue
        if out is not None and out.tensor.storage in held:
            continue
        if exact and not _otherwise_held(events):
            message = f"{benchmark.name} only moves bits, but is compared by cosine"
        elif out is not None and _whole_numbers(out.tensor.storage):
            message = f"an output of {_dtype(out.tensor.storage)} is compared by cosine"
        else:
            continue
        told.add(event.node)
        yield Hit(runner.source.at(event.node), message)


def _otherwise_held(events: list[Event]) -> bool:
    """Whether anything is compared in another way, so that cosine is only an addition."""
    return any(
        event.name in ("self.verify.exact", "torch.equal", "tensor.equal") for event in events
    )


def moves_bits(name: str) -> bool:
    """Whether an operator of this name only moves bits, without computing."""
    word = name.lower()
    return bool(_EXACT_NAME.search(word)) and not _COMPUTES_NAME.search(word)


def _moves_bits(benchmark: Benchmark, trace: Trace) -> bool:
    if not moves_bits(benchmark.name):
        return False
    # A cache of another dtype is computed.
    cached = [str(v) for k in benchmark.config for v in benchmark.config.values(k) if "dtype" in k]
    for event in trace.events:
        if event.operator:
            given = [*event.args, *event.kwargs.values()]
            cached += [str(o.value) for v in given for o in options(v) if isinstance(o, Const)]
    return not any(text.startswith(("fp8", "float8", "int8")) for text in cached)


def _whole_numbers(storage: Storage) -> bool:
    return storage.version > 0 and _dtype(storage) in _WHOLE_NUMBERS


def _dtype(storage: Storage) -> str:
    return storage.dtype.path if isinstance(storage.dtype, Name) else ""
