"""The data of ``run_verification``: not the benchmark's, and the same each time."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import Edit, Hit
from orchestrator.author.check.flow import torch_model
from orchestrator.author.check.flow.frames import Event
from orchestrator.author.check.flow.trace import Trace, traces
from orchestrator.author.check.flow.values import Const, Opaque, Setting, Value, key
from orchestrator.author.check.registry import rule
from orchestrator.author.check.rules.data import text_of
from orchestrator.author.check.runner import Runner

VERIFY = "run_verification"


def draws(trace: Trace) -> list[Event]:
    """Where random data is made; permutations only where there is nothing else."""
    found = [event for event in trace.of("prepare", "verify") if event.random]
    data = [e for e in found if e.name.rpartition(".")[2] not in torch_model.ORDERS]
    return data or found


@rule(
    "verification-seed",
    "error",
    why="Data of the benchmark's own seed hides an operator that kept, or never wrote, a result.",
    fix="verify with another seed: self._prepare(dev_id, seed=7)",
    fixable=True,
)
def verification_seed(benchmark: Benchmark) -> Iterator[Hit]:
    """``run_verification`` makes its data with a seed or generator of the benchmark."""
    runner = benchmark.runner
    if runner is None or runner.method(VERIFY) is None:
        return
    setup, verification = traces(runner).setup, traces(runner).verification
    timed = draws(setup)
    used = {_seed_key(benchmark, event.seed) for event in timed} - {None}
    generators = {e.generator.node for e in timed if e.generator is not None}
    told: set[ast.AST] = set()
    for event in draws(verification):
        shared = event.generator is not None and event.generator.node in generators
        shared = shared and event.generator is not None and event.generator.phase != "verify"
        same = _seed_key(benchmark, event.seed) in used
        if not (shared or same) or event.outermost in told:
            continue
        told.add(event.outermost)
        if shared and not same:
            message = "the data comes from the benchmark's own generator"
            yield Hit(runner.source.at(event.outermost), message)
            continue
        place = _seed_place(runner, event)
        said = f" {event.seed.value}" if isinstance(event.seed, Const) else ""
        yield Hit(
            runner.source.at(place),
            f"the verification's data has the benchmark's seed{said}",
            edit=_reseeded(runner, place, {e.seed for e in timed}),
        )


def _seed_key(benchmark: Benchmark, seed: Value | None) -> object:
    """A key for a seed that is known; a setting's is what the config has, else its default."""
    if isinstance(seed, Setting):
        values = benchmark.config.values(seed.key)
        if len(values) == 1:
            return ("const", type(values[0]).__name__, values[0])
        if not values and isinstance(seed.default, Const):
            return key(seed.default)
    return None if seed is None or isinstance(seed, Opaque) else key(seed)


def _seed_place(runner: Runner, event: Event) -> ast.AST:
    """The seed where verification writes it down, else the call that leads to it."""
    node = event.seed.node if isinstance(event.seed, Const) else None
    if node is not None and _in_verification(runner, node):
        return node
    if event.stack:
        return event.stack[0]
    return event.generator.node if event.generator is not None else event.node


def _in_verification(runner: Runner, node: ast.AST) -> bool:
    method = runner.methods[VERIFY]
    return node in method.body or method in runner.source.ancestors(node)


def _reseeded(runner: Runner, place: ast.AST, used: set[Value | None]) -> Edit | None:
    """Another number where verification has the seed as a literal of its own."""
    if not isinstance(place, ast.Constant) or not _in_verification(runner, place):
        return None
    taken = {seed.value for seed in used if isinstance(seed, Const)}
    return runner.source.replacing(place, str(next(n for n in range(7, 999) if n not in taken)))


@rule(
    "verification-unseeded",
    "error",
    why="A failure on data that nobody can make again cannot be looked into.",
    fix="draw from a seeded generator: self.generator(dev_id, 7)",
)
def verification_unseeded(benchmark: Benchmark) -> Iterator[Hit]:
    """``run_verification`` draws random numbers without any seed."""
    runner = benchmark.runner
    if runner is None or runner.method(VERIFY) is None:
        return
    drawn = [event for event in traces(runner).verification.of("verify") if event.random]
    seeded = any(event.seed is not None for event in drawn)
    told: set[ast.AST] = set()
    for event in drawn:
        # Not all torch versions let randn_like take a generator: beside seeded data it may pass.
        like = event.name.rpartition(".")[2] in torch_model.LIKE
        if event.seed is None and event.outermost not in told and not (seeded and like):
            told.add(event.outermost)
            yield Hit(runner.source.at(event.node), f"{text_of(event.node)} is not seeded")
