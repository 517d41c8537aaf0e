"""``mxfleet gen op``: an operator's config and runner, from its source and its unit test.

Nothing is imported or run. Either all files are written or none, and none that is there already
without ``force``.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.author.check.engine import check_tree, is_tree
from orchestrator.author.check.known import known_operators
from orchestrator.author.emit import draft
from orchestrator.author.facts import Draft, Framework, Operator, Trial
from orchestrator.author.locate import find_operators
from orchestrator.author.trial import read_trial
from orchestrator.author.unit_imports import unit_imports
from orchestrator.errors import ExitCode, MxfleetError, UsageError
from orchestrator.events import Drafted, LeftOpen, Note, Sink, Summary
from orchestrator.suites import mcoplib, whitelist
from orchestrator.workflows.check import finding_event
from orchestrator.workflows.gen_files import (
    lock_tree,
    refuse_out_of_place,
    refuse_overwriting,
    write_all,
)

COMMAND = "gen op"
_PREFIXES: Mapping[Framework, str] = {"vllm": "vllm", "sgl": "sgl"}


@dataclass(frozen=True)
class Wish:
    """What is asked for. ``settings`` override the configuration (``--set``)."""

    name: str
    sources: tuple[Path, ...]
    unit_tests: tuple[Path, ...]
    framework: Framework | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    device_name: str | None = None
    samples: int | None = None


@dataclass(frozen=True)
class Generated:
    """What came of it; ``files`` are contents by path, the front door's among them."""

    drafts: tuple[Draft, ...]
    files: Mapping[Path, str]
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The operators as the tree calls them."""
        return [one.name for one in self.drafts]


def gen_op(
    tree: Path, wish: Wish, sink: Sink, *, dry_run: bool = False, force: bool = False
) -> ExitCode:
    """Generate and write; tells of every file, what is left open, and what ``check`` finds."""
    write(tree, wish, sink, dry_run=dry_run, force=force)
    return ExitCode.OK


def write(
    tree: Path,
    wish: Wish,
    sink: Sink,
    *,
    dry_run: bool = False,
    force: bool = False,
    close: bool = True,
) -> tuple[Generated, dict[str, int]]:
    """As ``gen_op``; returns what was generated, and how many todos, errors and so on there are.

    Without ``close`` the summary is left to others.
    """
    began = time.monotonic()
    made = generate(tree, wish)
    for text in made.notes:
        sink(Note(text))
    if dry_run:
        refuse_out_of_place(tree, made.files)
        drafted = _drafted(tree, made, True)
    else:
        made, drafted = _written(tree, made, force)
    for event in drafted:
        sink(event)
    counts = _tell_open(made, sink)
    if not dry_run:
        counts |= _tell_findings(tree, made, wish, sink)
    if close:
        sink(
            Summary(
                command=COMMAND,
                exit_code=int(ExitCode.OK),
                counts=counts,
                files=() if dry_run else tuple(str(path) for path in made.files),
                seconds=time.monotonic() - began,
                message=closing(made, counts, dry_run),
            )
        )
    return made, counts


def closing(made: Generated, counts: Mapping[str, int], dry_run: bool) -> str:
    """What to do next, in a sentence."""
    if dry_run:
        return "dry run: nothing was written"
    names = ",".join(made.names)
    if counts["todos"] or counts.get("errors"):
        return f"next: see to what is open, then mxfleet check {names}"
    return f"next: mxfleet verify --op {names}"


def generate(tree: Path, wish: Wish) -> Generated:
    """The drafts and the files that they come to; writes nothing.

    Raises ``UsageError`` or ``TreeError`` where operator, unit test or tree cannot be used.
    """
    if not is_tree(tree):
        raise UsageError(
            "this is no benchmark folder",
            where=str(tree),
            hint="run it in a working folder (mxfleet init), or name one with --root",
        )
    pairs, notes = _pairs(wish)
    drafts = [
        draft(
            operator,
            trial,
            tree=tree,
            name=name,
            settings=wish.settings,
            device_name=wish.device_name,
            samples=wish.samples,
            roots=[path for path in wish.sources if path.is_dir()],
        )
        for name, operator, trial in pairs
    ]
    files = {tree / path: text for one in drafts for path, text in one.files.items()}
    files |= _listed(tree, drafts)
    told = [f"{one.name}: {note}" for one in drafts for note in one.notes]
    return Generated(tuple(drafts), files, (*notes, *told))


def _pairs(wish: Wish) -> tuple[list[tuple[str, Operator, Trial]], list[str]]:
    """Names, operators and trials; the name tells frameworks apart where several have it."""
    operators = _found(wish)
    frameworks = list(dict.fromkeys(one.framework for one in operators))
    several = len(frameworks) > 1
    names = {id(one): _name(one, several) for one in operators}
    notes = []
    if several:
        each = " and ".join(dict.fromkeys(names.values()))
        notes.append(f"{wish.name} is in {' and '.join(frameworks)}: a benchmark for each, {each}")
    chosen = [one for one in operators if wish.framework in (None, one.framework)]
    found, reasons = [], []
    for operator in chosen:
        trial, reason = _trial(wish, operator)
        if trial is not None:
            found.append((names[id(operator)], operator, trial))
        elif reason is not None:
            reasons.append(reason)
            notes.append(f"{names[id(operator)]} is not generated: {reason.message}")
    if not found:
        raise reasons[0]
    return found, notes


def _found(wish: Wish) -> list[Operator]:
    """The operators of all frameworks, those that a unit test imports first."""
    found: dict[tuple[str, str], Operator] = {}
    for path in wish.unit_tests:
        for one in find_operators(wish.name, wish.sources, path, None):
            found.setdefault((one.framework, one.namespace), one)
    if wish.framework is not None and all(f != wish.framework for f, _ in found):
        # Says what was looked for, and where.
        return find_operators(wish.name, wish.sources, wish.unit_tests[0], wish.framework)
    return list(found.values())


def _name(operator: Operator, several: bool) -> str:
    prefix = _PREFIXES.get(operator.framework) if several else None
    return operator.name if prefix is None else f"{prefix}_{operator.name}"


def _trial(wish: Wish, operator: Operator) -> tuple[Trial | None, MxfleetError | None]:
    """The first unit test's that calls the operator; else why there is none."""
    reason: MxfleetError | None = None
    for path in wish.unit_tests:
        frameworks = unit_imports(path).frameworks
        if frameworks and operator.framework not in frameworks:
            reason = reason or UsageError(
                f"no --unit-test is of {operator.framework}", where=str(path), hint="name its own"
            )
            continue
        try:
            return read_trial(path, operator, wish.sources), None
        except UsageError as error:
            reason = error
    return None, reason


def _listed(tree: Path, drafts: Sequence[Draft]) -> dict[Path, str]:
    """The front door with the operators in its whitelist, where they are not in it yet."""
    script = tree / mcoplib.SCRIPT
    former = mcoplib.read_text(script)
    listed = whitelist.add(former, [one.name for one in drafts], str(script))
    return {script: listed} if listed != former else {}


def _written(tree: Path, made: Generated, force: bool) -> tuple[Generated, list[Drafted]]:
    """Write all files or none; returns them as they were written, and what to tell of each."""
    own = {path: text for path, text in made.files.items() if path != tree / mcoplib.SCRIPT}
    _refuse(tree, own, force)  # without leaving so much as a lock
    with lock_tree(tree):
        # The files and the whitelist as they are now: others may have written meanwhile.
        _refuse(tree, own, force)
        made = replace(made, files={**own, **_listed(tree, made.drafts)})
        drafted = _drafted(tree, made, False)
        write_all(made.files, tree)
    return made, drafted


def _refuse(tree: Path, own: Mapping[Path, str], force: bool) -> None:
    if not force:
        refuse_overwriting(tree, own)
    refuse_out_of_place(tree, own)


def _drafted(tree: Path, made: Generated, dry_run: bool) -> list[Drafted]:
    """What becomes of each file, against what is there now."""
    owner = {tree / path: one.name for one in made.drafts for path in one.files}
    found = []
    for path, text in made.files.items():
        former = mcoplib.read_text(path) if path.exists() else None
        action = "create" if former is None else "change"
        action = f"would_{action}" if dry_run else f"{action}d"
        shown = path.relative_to(tree.parent) if tree.parent in path.parents else path
        diff = _diff(shown, former, text) if dry_run else None
        if former == text:
            action, diff = "unchanged", None
        found.append(Drafted(owner.get(path, ",".join(made.names)), str(path), action, diff))
    return found


def _diff(path: Path, former: str | None, text: str) -> str:
    lines = difflib.unified_diff(
        (former or "").splitlines(),
        text.splitlines(),
        "/dev/null" if former is None else f"a/{path}",
        f"b/{path}",
        lineterm="",
    )
    return "\n".join(lines)


def _tell_open(made: Generated, sink: Sink) -> dict[str, int]:
    todos = inferred = 0
    for one in made.drafts:
        for todo in one.todos:
            place = str(todo.place) if todo.place is not None else None
            sink(LeftOpen(one.name, "todo", todo.what, place))
        for text in one.inferred:
            sink(LeftOpen(one.name, "inferred", text))
        todos += len(one.todos)
        inferred += len(one.inferred)
    return {"todos": todos, "inferred": inferred}


def _tell_findings(tree: Path, made: Generated, wish: Wish, sink: Sink) -> dict[str, int]:
    findings = check_tree(tree, made.names, known=known_operators(wish.sources, ()))
    for finding in findings:
        sink(finding_event(finding))
    errors = sum(one.severity == "error" for one in findings)
    return {"errors": errors, "warnings": len(findings) - errors}
