"""The whitelist: all operators that there are, each once, in alphabetical order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import At, Edit, Hit
from orchestrator.author.check.registry import rule, tree_rule
from orchestrator.author.check.tree import CheckedTree
from orchestrator.errors import TreeError
from orchestrator.inventory.spelling import near, short
from orchestrator.suites import whitelist


def _edit(tree: CheckedTree, change: Callable[[str, str], str]) -> Edit | None:
    """What ``change`` makes of the front door as an edit; None where it is not safe."""
    try:
        new = change(tree.script_text, tree.shown(tree.script))
    except TreeError:
        return None
    return Edit.between(tree.script, tree.script_text, new)


@tree_rule(
    "whitelist-syntax",
    "error",
    why=f"mxfleet and other scripts read {whitelist.NAME} without running the front door.",
    fix="write it as a plain list of strings, one operator a line",
)
def whitelist_syntax(tree: CheckedTree) -> Iterator[Hit]:
    """The front door or its whitelist is missing, broken, or no literal list of strings."""
    if tree.problem is not None:
        yield Hit(tree.problem.at, tree.problem.message, tree.problem.hint)


@tree_rule(
    "whitelist-order",
    "warning",
    why="Where the order is the alphabet's, a new operator has one place, and merges do not clash.",
    fix="put it in its place",
    fixable=True,
)
def whitelist_order(tree: CheckedTree) -> Iterator[Hit]:
    """An entry of the whitelist stands behind one that the alphabet has later."""
    # Sorting says everything about repetitions, too: those have a rule of their own.
    for (former, _), (name, at) in pairwise(tree.listed):
        if name < former:
            edit = _edit(tree, whitelist.tidy)
            yield Hit(at, f'"{short(name)}" stands behind "{short(former)}"', edit=edit)


@tree_rule(
    "listed-twice",
    "error",
    why="An operator that is listed twice is run twice, for a table that has it once.",
    fix="remove one",
    fixable=True,
)
def listed_twice(tree: CheckedTree) -> Iterator[Hit]:
    """An operator stands in the whitelist twice."""
    first: dict[str, At] = {}
    for name, at in tree.listed:
        if name in first:
            edit = _edit(tree, whitelist.tidy)
            message = f'"{short(name)}" stands twice, first in line {first[name].line}'
            yield Hit(at, message, edit=edit)
        first.setdefault(name, at)


@rule(
    "listed-without-files",
    "error",
    why="testall runs all that is listed, and an operator without files fails on every host.",
    fix="write its config and runner, or remove the entry",
)
def listed_without_files(benchmark: Benchmark) -> Iterator[Hit]:
    """A whitelist entry has neither config nor runner; a near name that has is told."""
    tree, name = benchmark.tree, benchmark.name
    if not benchmark.config.missing or not benchmark.runner_missing:
        return
    guess = near(name, (tree.configured & tree.running) - tree.listed_names)
    fix = f'did you mean "{guess}"?' if guess else None
    for listed, at in tree.listed:
        if listed == name:
            yield Hit(at, f'"{short(name)}" has neither config nor runner', fix)
            return


@rule(
    "unlisted",
    "error",
    why=f"An operator that {whitelist.NAME} lacks is refused by the front door and by testall.",
    fix=f"add it to {whitelist.NAME}",
    fixable=True,
)
def unlisted(benchmark: Benchmark) -> Iterator[Hit]:
    """An operator has config and runner, but the whitelist lacks it."""
    tree, name = benchmark.tree, benchmark.name
    there = not benchmark.config.missing and not benchmark.runner_missing
    if not there or tree.problem is not None or name in tree.listed_names:
        return
    ghosts = tree.listed_names - tree.configured - tree.running
    guess = near(name, ghosts)
    if guess:
        fix = f'it lists "{guess}", which has no files: did you mean that?'
        edit = None
    else:
        fix, edit = None, tree.listing_all
    yield Hit(At(benchmark.runner_shown), f'"{short(name)}" is not in {whitelist.NAME}', fix, edit)
