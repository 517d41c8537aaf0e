"""Ask all rules about a tree, and leave out what comments silence."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from orchestrator.author.check import suppress
from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import At, Finding, Hit
from orchestrator.author.check.registry import RULES, Rule
from orchestrator.author.check.rules import load_rules
from orchestrator.author.check.tree import CheckedTree, Known
from orchestrator.errors import UsageError
from orchestrator.inventory.spelling import near, short
from orchestrator.suites.mcoplib import SCRIPT, SYNC_FOLDERS


def check_tree(
    tree: Path, operators: Sequence[str] | None = None, *, known: Known | None = None
) -> list[Finding]:
    """All findings in ``tree``, the folder with the front door, by path and line.

    ``operators`` are names or globs, None means all of the tree and the tree as a whole. ``known``
    gives what sources and libraries say of an operator. Raises ``UsageError`` for a name that the
    tree does not have, and for a folder that is no tree.
    """
    load_rules()
    checked = CheckedTree(tree, known)
    _require_tree(checked)
    with _without_collector():
        findings = _check(checked, operators)
    return sorted(findings, key=lambda one: (one.at, one.rule, one.message))


@contextmanager
def _without_collector() -> Iterator[None]:
    """Syntax trees are very many objects without a cycle: looking for one takes a fifth longer."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _check(checked: CheckedTree, operators: Sequence[str] | None) -> list[Finding]:
    findings: list[Finding] = []
    if operators is None:
        for rule in RULES.values():
            if rule.scope == "tree":
                findings += rule.findings(checked, None)
        findings = suppress.in_text(checked, findings)
    names = checked.names if operators is None else chosen(checked, operators)
    if operators is not None:
        checked.asked = frozenset(names)
    for name in names:
        benchmark = Benchmark(checked, name)
        found: list[Finding] = []
        for rule in RULES.values():
            if rule.scope == "benchmark" and (rule.needs is None or checked.sourced):
                found += _ask(rule, benchmark)
        findings += suppress.apply(benchmark, found)
    return findings


def _ask(rule: Rule, benchmark: Benchmark) -> list[Finding]:
    try:
        return list(rule.findings(benchmark, benchmark.name))
    except RecursionError:
        # Python parses it, but looking into it has no end: somebody's generated file, or a trap.
        hit = Hit(At(benchmark.runner_shown), "nested too deeply to be looked into", "split it")
        return [RULES["runner-syntax"].finding(hit, benchmark.name)]


def chosen(tree: CheckedTree, operators: Sequence[str]) -> list[str]:
    """The operators that names and globs stand for, each once."""
    found: dict[str, None] = {}
    for word in operators:
        fitting = [name for name in tree.names if fnmatchcase(name, word)]
        if not fitting:
            guess = near(word, tree.names)
            raise UsageError(
                f'the tree has nothing of an operator "{short(word)}"',
                where=tree.shown(tree.folder),
                hint=f'did you mean "{guess}"?' if guess else "mxfleet gen op writes a new one",
            )
        found.update(dict.fromkeys(fitting))
    return list(found)


def is_tree(folder: Path) -> bool:
    """Whether ``folder`` has anything of what is checked."""
    return (folder / SCRIPT).is_file() or any((folder / name).is_dir() for name in SYNC_FOLDERS)


def _require_tree(tree: CheckedTree) -> None:
    if not is_tree(tree.folder):
        raise UsageError(
            f"no benchmark tree: neither {SCRIPT} nor {SYNC_FOLDERS[0]}/ nor {SYNC_FOLDERS[1]}/",
            where=str(tree.folder),
            hint="name the folder that holds them with --root",
        )
