"""A whole checkout: its ops with their scenarios, what the entry layer does, GPUs and configs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.author.halops.facts import Checkout, Field, Op, Place, Scenario, Todo
from orchestrator.author.halops.read import start
from orchestrator.author.halops.read.gpus import read_gpus
from orchestrator.author.halops.read.machine import Machine
from orchestrator.author.halops.read.neighbours import read_neighbours
from orchestrator.author.halops.read.scenario import fields_from, read_scenario
from orchestrator.author.halops.read.source import Sources
from orchestrator.author.halops.read.values import Config, Function, Object, Source
from orchestrator.errors import TreeError

ENTRY = "benchmark"
_FOLDERS = ("", "benchmark", "benchmark/halops")


def benchmark_folder(root: Path) -> Path:
    """The folder of ``benchmark.py``: the one named, or the one in a repository that was named.

    Raises ``TreeError`` where there is none.
    """
    for each in _FOLDERS:
        folder = root / each
        if (folder / f"{ENTRY}.py").is_file() and (folder / "kernel").is_dir():
            return folder
    raise TreeError(
        "there is no HALOps benchmark here: neither it nor its benchmark/ has a benchmark.py"
        " and a kernel/",
        where=str(root),
        hint="name the repository or its benchmark folder with --root",
    )


def read_checkout(root: Path) -> Checkout:
    """The facts of a checkout; raises ``TreeError`` with file and line for one of another shape."""
    folder = benchmark_folder(root)
    sources = Sources(folder)
    machine = Machine(sources, Config(None))
    entry = machine.load(ENTRY)
    names = _ops(machine, entry)
    entry_fields = _entry_fields(sources)
    ops: dict[str, Op] = {}
    todos: list[Todo] = []
    for name, place in names.items():
        op, said = _op(sources, name, place, entry_fields)
        ops[name] = op
        todos += said
    return Checkout(folder, ops, read_gpus(sources, entry), entry_fields, tuple(todos))


def _ops(machine: Machine, entry: Source | None) -> dict[str, Place]:
    """The names in ``OP_REGISTRY`` with their places."""
    table: Any = None if entry is None else entry.names.get("OP_REGISTRY")
    if isinstance(table, Object):
        table = next((v for v in table.attributes.values() if isinstance(v, dict)), None)
    at = Place(f"{ENTRY}.py", 1)
    if isinstance(table, dict) and table:
        return {
            name: machine.key_places.get((id(table), name), at)
            for name in table
            if isinstance(name, str)
        }
    if isinstance(table, (list, tuple, set)) and table:
        return {name: at for name in table if isinstance(name, str)}
    raise TreeError("OP_REGISTRY was not found, or is empty", where=str(at))


def _op(
    sources: Sources, name: str, place: Place, entry_fields: dict[str, Field]
) -> tuple[Op, list[Todo]]:
    machine = Machine(sources, Config(None))
    module, table = start.scenarios_of(machine, name)
    todos: list[Todo] = []
    if not table:
        shown = module.shown if module else f"kernel/{name}/scenarios/__init__.py"
        todos.append(Todo(f"SCENARIOS of {name} was not found, or is empty", Place(shown, 1)))
    scenarios: dict[str, Scenario] = {}
    raw = module.names.get("SCENARIOS") if module else None
    for scenario in table:
        at = machine.key_places.get((id(raw), scenario), Place(module.shown if module else "", 1))
        scenarios[scenario] = _with_entry(read_scenario(sources, name, scenario, at), entry_fields)
    folder = sources.root / "configs" / name
    neighbours, style, bad = read_neighbours(folder, sources.root)
    todos += [Todo("no YAML mapping", Place(each, 1)) for each in bad]
    return Op(name, place, folder, scenarios, neighbours, style), todos


def _with_entry(scenario: Scenario, entry_fields: dict[str, Field]) -> Scenario:
    """The scenario with the fields that the entry layer reads for it."""
    fields = dict(scenario.fields)
    scalars = {field.expands_to for field in entry_fields.values()}
    for name, field in entry_fields.items():
        if field.expands_to is not None:
            inner = fields.get(field.expands_to)
            if inner is None:
                continue  # not this scenario's
            # The entry layer sets it: the config need not have it.
            outer = entry_fields.get(field.expands_to, inner)
            fields[field.expands_to] = replace(
                inner,
                required=False,
                default=outer.default if inner.default_source is None else inner.default,
                default_source=inner.default_source or outer.default_source,
            )
        if name not in fields and name in scalars:
            continue
        if name not in fields:
            fields[name] = field
        elif field.sweep:
            fields[name] = replace(fields[name], sweep=True, expands_to=field.expands_to)
    return replace(scenario, fields=fields)


def _entry_fields(sources: Sources) -> dict[str, Field]:
    """The fields that ``benchmark.py`` and what it calls read before a scenario runs."""
    machine = Machine(sources, Config(None))
    entry = machine.load(ENTRY)
    if entry is None:
        return {}
    functions = {k: v for k, v in entry.names.items() if isinstance(v, Function)}
    wanted: list[str] = [name for name in ("_run_scenarios", "main") if name in functions]
    wanted += [name for name in functions if name.lstrip("_").startswith("run")]
    for name in wanted:
        target = functions[name]
        own = target.source.name == ENTRY
        if own and id(target.node) not in machine.watch.called:
            machine.outer(target, start.arguments(target, machine.config))
    watch = machine.watch
    # What a scenario reads is its own: it may be all that a registry of one holds.
    watch.reads = [each for each in watch.reads if not each.place.path.startswith("kernel/")]
    found = fields_from(watch, entry=True)
    return {
        name: replace(each, sweep=each.sweep and each.expands_to is not None)
        for name, each in found.items()
    }
