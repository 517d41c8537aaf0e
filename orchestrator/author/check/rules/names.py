"""Config, runner and whitelist entry belong together under exactly one name."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import At, Hit
from orchestrator.author.check.reading import UnreadableError, read
from orchestrator.author.check.registry import rule, tree_rule
from orchestrator.author.check.tree import RUNNER_FILE, CheckedTree
from orchestrator.inventory.spelling import near
from orchestrator.suites.mcoplib import BASE_CLASS, files_of

_WHY = (
    "The harness and every script find an operator's config, runner and whitelist entry by "
    "one exact name."
)


def _meant(name: str, others: Collection[str], otherwise: str) -> str:
    """What a name was probably meant to be."""
    guess = near(name, others)
    return f'did you mean "{guess}"? rename one of them' if guess else otherwise


@rule("missing-config", "error", why=_WHY, fix="write config/<op>.json")
def missing_config(benchmark: Benchmark) -> Iterator[Hit]:
    """An operator has a runner but no config of the same name; a near name is told."""
    tree, name = benchmark.tree, benchmark.name
    if benchmark.config.missing and not benchmark.runner_missing:
        fix = _meant(name, tree.configured - tree.running, f"write {benchmark.config_shown}")
        message = f'the runner of "{name}" has no config {benchmark.config_shown}'
        yield Hit(At(benchmark.runner_shown), message, fix)


@rule("missing-runner", "error", why=_WHY, fix="write the runner")
def missing_runner(benchmark: Benchmark) -> Iterator[Hit]:
    """An operator has a config but no runner of the same name; a near name is told."""
    tree, name = benchmark.tree, benchmark.name
    if benchmark.runner_missing and not benchmark.config.missing:
        fix = _meant(name, tree.running - tree.configured, f"write {benchmark.runner_shown}")
        message = f'the config of "{name}" has no runner {benchmark.runner_shown}'
        yield Hit(At(benchmark.config_shown), message, fix)


@tree_rule("runner-name", "error", why=_WHY, fix="rename it")
def runner_name(tree: CheckedTree) -> Iterator[Hit]:
    """A file in runners/ looks like a runner, but no operator's runner is called so."""
    for path in tree.runner_files:
        stem = path.name.removesuffix(".py")
        alike = stem.startswith("mcoplib_mxbenchmark_") or stem.endswith(("_runner", "_runners"))
        if stem == path.name or not alike or RUNNER_FILE.fullmatch(path.name):
            continue
        shown = tree.shown(path)
        try:
            if f"({BASE_CLASS}" not in read(path, shown):
                continue
        except UnreadableError:
            continue
        name = stem.removeprefix("mcoplib_mxbenchmark_")
        name = name.removesuffix("_runners").removesuffix("_runner")
        guess = name if name in tree.configured else near(name, tree.configured - tree.running)
        wanted = files_of(guess or name or "<op>")[1]
        yield Hit(At(shown), "no operator's runner has such a name", f"rename it to {wanted}")


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


@rule(
    "no-runner-class",
    "error",
    why=f"The harness runs the first class of the module that derives from {BASE_CLASS}.",
    fix=f"derive the runner's class from {BASE_CLASS} of mcoplib_mxbenchmark_op_wrapper",
)
def no_runner_class(benchmark: Benchmark) -> Iterator[Hit]:
    """No class of the runner derives from the base class."""
    runner = benchmark.runner
    if runner is None or runner.classes:
        return
    source = runner.source
    # A base that is computed, or classes made by a function, may be anything.
    imported = set(source.imports)
    for node in source.walk(ast.ClassDef):
        if any(not isinstance(base, ast.Name) or base.id in imported for base in node.bases):
            return
        if source.scope(node) is not source.tree:
            return
    if any(name.name == "*" for part in source.walk(ast.ImportFrom) for name in part.names):
        return
    yield Hit(At(source.shown), f"the runner defines no subclass of {BASE_CLASS}")


@rule(
    "several-runner-classes",
    "warning",
    why=f"The harness runs the first class of the module that derives from {BASE_CLASS}.",
    fix="leave one, or make the others plain classes",
)
def several_runner_classes(benchmark: Benchmark) -> Iterator[Hit]:
    """Several classes of one module derive from the base class; only the first ever runs."""
    runner = benchmark.runner
    if runner is None or len(runner.classes) < 2:
        return
    first, *others = runner.classes
    for node in others:
        yield Hit(
            runner.source.at(node),
            f"{node.name} never runs: {first.name} in line {first.lineno} is the first subclass",
        )
