"""Config, runner and whitelist entry belong together under exactly one name."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import At, Hit
from orchestrator.author.check.registry import rule
from orchestrator.inventory.spelling import near

_WHY = (
    "The harness and every script find an operator's config, runner and whitelist entry by "
    "one exact name."
)


def _meant(name: str, known: Collection[str], complete: Collection[str], otherwise: str) -> str:
    """What a name was probably meant to be: one that lacks what this one has."""
    guess = near(name, set(known) - set(complete))
    return f'did you mean "{guess}"? rename one of them' if guess else otherwise


@rule("missing-config", "error", why=_WHY, fix="write config/<op>.json, see benchmark/README.md")
def missing_config(benchmark: Benchmark) -> Iterator[Hit]:
    """An operator has a runner but no config of the same name."""
    tree, name = benchmark.tree, benchmark.name
    if benchmark.config.missing and not benchmark.runner_missing:
        fix = _meant(name, tree.configured, tree.running, f"write {benchmark.config_shown}")
        message = f'the runner of "{name}" has no config {benchmark.config_shown}'
        yield Hit(At(benchmark.runner_shown), message, fix)


@rule("missing-runner", "error", why=_WHY, fix="write its runner, see benchmark/README.md")
def missing_runner(benchmark: Benchmark) -> Iterator[Hit]:
    """An operator has a config but no runner of the same name."""
    tree, name = benchmark.tree, benchmark.name
    if benchmark.runner_missing and not benchmark.config.missing:
        fix = _meant(name, tree.running, tree.configured, f"write {benchmark.runner_shown}")
        message = f'the config of "{name}" has no runner {benchmark.runner_shown}'
        yield Hit(At(benchmark.config_shown), message, fix)


@rule(
    "config-syntax",
    "error",
    why="A config that is no strict JSON object is refused, or half of it silently lost.",
    fix="fix it",
)
def config_syntax(benchmark: Benchmark) -> Iterator[Hit]:
    """The config cannot be read: no file, not UTF-8, broken JSON, a key twice, NaN, no object."""
    problem = benchmark.config.problem
    if problem is not None:
        yield Hit(problem.at, problem.message, problem.hint)


@rule(
    "runner-syntax",
    "error",
    why="A runner that Python cannot read ends its operator's job before it begins.",
    fix="fix it",
)
def runner_syntax(benchmark: Benchmark) -> Iterator[Hit]:
    """The runner cannot be read or parsed: no file, not UTF-8, NUL bytes, a syntax error."""
    problem = benchmark.runner_problem
    if problem is not None:
        yield Hit(problem.at, problem.message, problem.hint)
