"""Write an operator's config and runner from what its source and unit test say: ``draft``."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.author.check.flow.torch_model import FRAMEWORKS
from orchestrator.author.check.undefined import undefined
from orchestrator.author.emit.dialect import Dialect, read_dialect
from orchestrator.author.emit.docstring import concluded, docstring
from orchestrator.author.emit.lines import used_attributes
from orchestrator.author.emit.material import Material, gather
from orchestrator.author.emit.places import from_roots
from orchestrator.author.emit.runner import Runner
from orchestrator.author.emit.settings import Settings, settle, with_fixed_dtype
from orchestrator.author.emit.tensors import from_helper, tensor
from orchestrator.author.facts import Draft, Operator, Todo, Trial
from orchestrator.errors import TreeError
from orchestrator.suites import mcoplib

__all__ = ["draft"]


def draft(
    operator: Operator,
    trial: Trial,
    *,
    tree: Path,
    name: str,
    settings: Mapping[str, Any] | None = None,
    device_name: str | None = None,
    samples: int | None = None,
    roots: Sequence[Path] = (),
) -> Draft:
    """The config and runner of ``operator`` for the benchmark folder ``tree``; writes nothing.

    ``settings`` overrides values of the configuration, a list is swept; ``samples`` None: 1000, or
    100 for operators that allocate or synchronise at every call. ``roots`` are the folders that
    places are told from. Raises ``TreeError`` where the
    tree has no base class, ``UsageError`` for a setting that the test has no parameter for.
    """
    dialect = read_dialect(tree)
    operator, trial = from_roots(operator, trial, roots)
    literal_dtype = _literal_dtype(operator, trial)
    chosen = settle(
        trial,
        operator,
        settings or {},
        device_name=device_name,
        samples=samples,
        literal_dtype=literal_dtype,
    )
    try:
        material = gather(operator, trial, chosen, f"_ref_{operator.name}")
        if not material.follows_dtype:
            chosen = with_fixed_dtype(chosen, literal_dtype)
        return _put_together(name, operator, trial, chosen, material, dialect)
    except (SyntaxError, ValueError, RecursionError) as error:
        # Its parts are Python each for itself; what they come to together is only seen here.
        raise TreeError(
            f"what the unit test does cannot be put into a runner: {error}",
            where=str(trial.place),
            hint="make the test simpler, or write the runner by hand (benchmark/README.md)",
        ) from None


def _put_together(
    name: str,
    operator: Operator,
    trial: Trial,
    chosen: Settings,
    material: Material,
    dialect: Dialect,
) -> Draft:
    """The draft; raises what ``compile`` does where the parts do not make a module."""
    todos = list(dict.fromkeys([*operator.todos, *material.todos, *_missing(material)]))
    # A key that nothing reads would only pretend to be a choice.
    first = Runner(name, operator, trial, replace(chosen, own=()), material, dialect)
    used = used_attributes(first.source("", ()))
    chosen = chosen.only(used)
    notes = [
        f"the unit test does not compare {argument}, so neither does the runner"
        for argument in material.unseen
    ]
    runner = Runner(name, operator, trial, chosen, material, dialect)
    source = runner.source(docstring(operator, trial, chosen, material, notes), todos)
    open_still = [*_undefined(source, trial), *_foreign(source, operator, trial)]
    if open_still:
        todos += open_still
        source = runner.source(docstring(operator, trial, chosen, material, notes), todos)
    compile(source, name, "exec", dont_inherit=True)
    if operator.allocates:
        notes.append(f"{chosen.samples} samples: every call allocates or synchronises")
    config_path, runner_path = mcoplib.files_of(name)
    return Draft(
        operator,
        name,
        {config_path: chosen.config(), runner_path: source},
        tuple(todos),
        _inferred(operator, chosen),
        tuple(notes),
    )


def _literal_dtype(operator: Operator, trial: Trial) -> str | None:
    """The dtype of the first tensor that the operator reads, where the test says it outright."""
    made = []
    for argument in operator.arguments:
        text = trial.arguments.get(argument.name)
        if text is not None and text.isidentifier():
            one = tensor(text, trial.prepare)
            if one.dtype is None:
                one = from_helper(text, trial.prepare, trial.helpers)
            made.append((argument.mutated, one))
    # What is only filled comes last.
    for _, one in sorted(made, key=lambda pair: (pair[1].made != "data", pair[0])):
        if one.dtype is not None and one.dtype.startswith("torch."):
            return one.dtype.removeprefix("torch.")
    return operator.dtypes[0] if len(operator.dtypes) == 1 else None


def _missing(material: Material) -> list[Todo]:
    if not material.compared:
        return [Todo("what the unit test compares could not be told: write run_verification")]
    if not material.reference.call and not material.after:
        return [Todo("the unit test's reference could not be told: write _ref and the comparison")]
    return []


def _inferred(operator: Operator, settings: Settings) -> tuple[str, ...]:
    found = [f"{one.key}: {one.why}" for one in (*settings.own, settings.dtype) if one.why]
    found += [
        f"argument {a.name}, concluded from the code: {', '.join(concluded(a))}"
        for a in operator.arguments
        if a.inferred
    ]
    return tuple(found)


def _undefined(source: str, trial: Trial) -> list[Todo]:
    return [
        Todo(f"nothing defines {node.id}: the unit test has it from elsewhere", trial.place)
        for node, _ in undefined(ast.parse(source))
    ]


def _foreign(source: str, operator: Operator, trial: Trial) -> list[Todo]:
    """What the test's code imports and hosts may lack, as ``check`` sees it."""
    known = {*sys.stdlib_module_names, *FRAMEWORKS, "torch", mcoplib.WRAPPER}
    known |= {part for text in operator.imports for part in _modules(text)}
    foreign = dict.fromkeys(one for one in _modules(source) if one not in known)
    return [
        Todo(f"the unit test imports {one}, which hosts may lack: do it with torch", trial.place)
        for one in foreign
    ]


def _modules(source: str) -> list[str]:
    """The first names of all modules that a source imports."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [one.name.split(".")[0] for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.module or "").split(".")[0])
    return [one for one in found if one]
