"""``mxfleet gen halops``: a config of a HALOps checkout, from a sentence and the checkout's code.

Nothing of the checkout is imported; only ``--smoke`` runs it. What is missing is asked for, what
is concluded is marked, and nothing is written that the code would refuse.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from orchestrator.author.halops.check import check_config
from orchestrator.author.halops.facts import Checkout, Scenario, Violation
from orchestrator.author.halops.intent import Intent, parse_intent
from orchestrator.author.halops.intent.choose import choose
from orchestrator.author.halops.intent.question import Question
from orchestrator.author.halops.read import benchmark_folder, read_checkout
from orchestrator.author.halops.write.compose import Composed, compose, ordered
from orchestrator.author.halops.write.infer import family
from orchestrator.author.halops.write.names import file_name
from orchestrator.author.halops.write.text import flows_of, read_yaml, yaml_text
from orchestrator.errors import ConfigError, ExitCode, TreeError, UsageError
from orchestrator.events import LeftOpen, Note, Sink, Summary
from orchestrator.inventory.find import find_inventory
from orchestrator.workflows.gen_files import write_all
from orchestrator.workflows.halops_smoke import smoke

COMMAND = "gen halops"


class Dialogue(Protocol):
    """Who is asked. Without anybody there answers are None, and questions are printed instead."""

    def ask(self, questions: Sequence[Question]) -> Mapping[str, str] | None:
        """Answers by field, as they were typed."""

    def confirm(self, text: str) -> bool | None:
        """Yes or no."""

    def show(self, path: str, text: str) -> None:
        """Show the config that would be written."""


@dataclass(frozen=True)
class HalopsWish:
    """What is asked for; ``marks``: keep or strip ``# inferred``, None: ask where it matters."""

    text: str = ""
    op: str | None = None
    scenario: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    yes: bool = False
    smoke: bool = False
    marks: bool | None = None


def gen_halops(root: Path, wish: HalopsWish, sink: Sink, dialogue: Dialogue) -> ExitCode:
    """Ask, show, confirm, write, read back, try; raises ``UsageError`` where it cannot go on."""
    began = time.monotonic()
    checkout = read_checkout(root)
    intent = parse_intent(wish.text)
    scenario = _choose(checkout, intent, wish, dialogue)
    made = _compose(checkout, scenario, intent, wish, dialogue)
    _tell(made, intent, scenario, sink)
    run_only = _check(checkout, scenario, made, sink)
    op = checkout.ops[scenario.op]
    path = _free(op.configs / f"{file_name(scenario, made.values)}.yaml", made.values)
    keep = _keep_marks(checkout, scenario, made, wish, dialogue)
    text = _text(checkout, scenario, made, keep)
    dialogue.show(str(path), text)
    answer = True if wish.yes else dialogue.confirm(f"write {path}?")
    if answer is None:
        raise UsageError("nothing was written", hint="--yes writes what is shown")
    message = "nothing was written"
    code, files = ExitCode.OK, ()  # type: tuple[ExitCode, tuple[str, ...]]
    if answer:
        write_all({path: text}, checkout.root)
        _read_back(path, made.values)
        files = (str(path),)
        message = f"written and read back; {_untested(run_only)}"
        if wish.smoke:
            code, message = smoke(checkout.root, scenario.op, path, made.values, sink)
    sink(
        Summary(
            command=COMMAND,
            exit_code=int(code),
            counts={"inferred": len(made.inferred)},
            files=files,
            seconds=time.monotonic() - began,
            message=message,
        )
    )
    return code


def find_root(root: Path | None, inventory: Path | None) -> Path:
    """The folder to read: ``root``; without one the current one, else beside the inventory.

    Raises ``TreeError`` where there is no HALOps benchmark.
    """
    if root is not None:
        return benchmark_folder(root)
    try:
        return benchmark_folder(Path())
    except TreeError as error:
        try:
            folder = find_inventory(inventory).parent
        except ConfigError:
            raise error from None
        return benchmark_folder(folder)


def _choose(checkout: Checkout, intent: Intent, wish: HalopsWish, dialogue: Dialogue) -> Scenario:
    """The scenario, asked for at most twice: of which op, and which."""
    op, name = wish.op, wish.scenario
    found = choose(checkout, intent, op, name)
    for _ in range(2):
        if isinstance(found, Scenario):
            return found
        answers = dialogue.ask([_with_needs(checkout, intent, wish, found, op)])
        if answers is None:
            break
        op, name = answers.get("op", op), answers.get("scenario", name)
        found = choose(checkout, intent, op, name)
    if isinstance(found, Scenario):
        return found
    raise UsageError(f"it is open which {found.field} is meant", hint=f"give {found.option}")


def _with_needs(
    checkout: Checkout, intent: Intent, wish: HalopsWish, question: Question, op: str | None
) -> Question:
    """With the key fields that each choice would leave open, so that all is answered at once."""
    needs = {}
    for each in checkout.ops.values():
        for scenario in each.scenarios.values():
            fits = op in (None, each.name) and scenario.name in question.choices
            if fits and set(wish.settings) <= set(scenario.fields):
                made = compose(checkout, scenario, intent, wish.settings)
                needs[scenario.name] = tuple(one.field for one in made.questions)
    return replace(question, needs=needs)


def _compose(
    checkout: Checkout,
    scenario: Scenario,
    intent: Intent,
    wish: HalopsWish,
    dialogue: Dialogue,
) -> Composed:
    """The config's values; what is missing is asked for once, all of it together."""
    given = dict(wish.settings)
    made = compose(checkout, scenario, intent, given)
    if made.questions:
        answers = dialogue.ask(made.questions)
        if answers is not None:
            made = compose(checkout, scenario, intent, given | dict(answers))
    if made.questions:
        names = ", ".join(one.field for one in made.questions)
        options = " ".join(one.option for one in made.questions)
        raise UsageError(f"what to measure is open: {names}", hint=f"for example: {options}")
    return made


def _tell(made: Composed, intent: Intent, scenario: Scenario, sink: Sink) -> None:
    for text in (*intent.told, *made.notes):
        sink(Note(text))
    lost = [*intent.unknown, *made.unused]
    if lost:
        sink(Note(f"nothing was made of: {'; '.join(lost)}", level="warning"))
    for text in intent.unclear:
        sink(Note(f"not understood: {text}", level="warning"))
    for name, why in made.inferred.items():
        sink(LeftOpen(scenario.name, "inferred", f"{name}: {made.values[name]}, {why}"))
    if made.geometry:
        names = ", ".join(f"{name} {made.values[name]}" for name in made.geometry)
        sink(Note(f"shapes rest on values that were not given: {names}", level="warning"))


def _check(checkout: Checkout, scenario: Scenario, made: Composed, sink: Sink) -> list[Violation]:
    """Refuse what the code would; returns what only a run can show.

    An inferred field that the code does without is left out where it stands in the way.
    """
    found = check_config(checkout, scenario.op, made.values)
    for name in [one for one in made.inferred if one not in made.geometry]:
        errors = [one for one in found if one.severity == "error"]
        concerned = any(name == one.field or name in one.values for one in errors)
        if not concerned or scenario.fields[name].required:
            continue
        values = {key: value for key, value in made.values.items() if key != name}
        without = check_config(checkout, scenario.op, values)
        if sum(one.severity == "error" for one in without) < len(errors):
            made.values = ordered(checkout, scenario, values)
            sink(Note(f"{name} is left to the code's default: {made.inferred.pop(name)} fails"))
            found = without
    errors = [one for one in found if one.severity == "error"]
    for one in found:
        if one.severity in ("warning", "note"):
            sink(Note(str(one), level="warning" if one.severity == "warning" else "info"))
    for one in errors[1:]:
        sink(Note(str(one), level="warning"))
    if errors:
        worst = errors[0]
        where = str(worst.place) if worst.place is not None else None
        raise UsageError(worst.message, where=where, hint=worst.hint or None)
    return [one for one in found if one.severity == "run"]


def _untested(run_only: Sequence[Violation]) -> str:
    if not run_only:
        return "nothing was run"
    return f"nothing was run, and only a run can show: {'; '.join(map(str, run_only))}"


def _keep_marks(
    checkout: Checkout,
    scenario: Scenario,
    made: Composed,
    wish: HalopsWish,
    dialogue: Dialogue,
) -> bool:
    """Whether ``# inferred`` stays; asked where the neighbours have none and it was not said."""
    op = checkout.ops[scenario.op]
    if wish.marks is not None:
        return wish.marks
    if not made.inferred or not op.neighbours or op.style.marks or wish.yes:
        return True
    return not dialogue.confirm("no config here has `# inferred`: strip these marks?")


def _text(checkout: Checkout, scenario: Scenario, made: Composed, keep: bool) -> str:
    """As the config beside it with most of the same fields is written."""
    style = checkout.ops[scenario.op].style
    same, others = family(checkout, scenario)
    near = sorted(others, key=lambda one: len(set(one.values) & set(made.values)))
    near += sorted(same, key=lambda one: len(set(one.values) & set(made.values)))
    flows = {}
    for one in near:
        flows.update(flows_of(one.path))
    return yaml_text(made.values, style, made.inferred if keep else (), flows)


def _free(path: Path, values: Mapping[str, Any]) -> Path:
    """``path``, or a name beside it where another config has it; the same one is written again."""
    number, free = 1, path
    while free.exists() and not _has(free, values):
        number += 1
        free = path.with_name(f"{path.stem}_{number}{path.suffix}")
    return free


def _has(path: Path, values: Mapping[str, Any]) -> bool:
    try:
        return read_yaml(path.read_text(encoding="utf-8"), str(path)) == values
    except (OSError, UnicodeDecodeError, TreeError):
        return False


def _read_back(path: Path, values: Mapping[str, Any]) -> None:
    if read_yaml(path.read_text(encoding="utf-8"), str(path)) != values:
        raise TreeError("what was written reads back as something else", where=str(path))
