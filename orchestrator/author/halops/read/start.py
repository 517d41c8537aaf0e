"""Where a checkout's code is entered: its scenarios, its backends, and with which arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.author.halops.facts import Place
from orchestrator.author.halops.read.attributes import CONFIG_NAME
from orchestrator.author.halops.read.machine import Machine
from orchestrator.author.halops.read.source import Sources
from orchestrator.author.halops.read.values import (
    NOTHING,
    Class,
    Config,
    Function,
    Object,
    Source,
    Unknown,
)

_BACKENDS = re.compile(
    r"^_?(?:get_|make_|build_|list_|all_)?(?:backends?|registry)(?:_\w+)?$", re.I
)
BUILDS = re.compile(r"^(?:_?build_inputs\w*|_make_\w+)$")


@dataclass(frozen=True)
class Started:
    """A run that went through a scenario, with what it was started on."""

    machine: Machine
    target: Function


def scenarios_of(machine: Machine, op: str) -> tuple[Source | None, dict[str, Any]]:
    """``SCENARIOS`` of an op: the module and names with what each stands for."""
    source = machine.load(f"kernel.{op}.scenarios")
    table = None if source is None else source.names.get("SCENARIOS")
    if isinstance(table, Object):
        table = next((v for v in table.attributes.values() if isinstance(v, dict)), None)
    found = table if isinstance(table, dict) else {}
    return source, {name: value for name, value in found.items() if isinstance(name, str)}


def function_of(machine: Machine, op: str, name: str, value: Any) -> Function | None:
    """The function that runs a scenario: itself, of its module, or of the module of its name."""
    if isinstance(value, Function):
        return value
    if isinstance(value, str):
        module, _, wanted = value.replace(":", ".").rpartition(".")
        for candidate in (value, module, f"kernel.{op}.scenarios.{value}"):
            source = machine.load(candidate)
            if source is not None:
                inner = source.names.get(wanted)
                return inner if isinstance(inner, Function) else _running(source.names)
    if isinstance(value, Source):
        return _running(value.names)
    if isinstance(value, Object):
        return _running(value.attributes) or _running(value.of.names, bound=value)
    if isinstance(value, Class):
        return _running(value.names, bound=Object(value))
    if isinstance(value, (dict, list, tuple)):
        inside = value.values() if isinstance(value, dict) else value
        return next((each for each in inside if isinstance(each, Function)), None)
    source = machine.load(f"kernel.{op}.scenarios.{name}")
    return None if source is None else _running(source.names)


def _running(names: Mapping[str, Any], bound: Any = None) -> Function | None:
    wanted = [name for name in names if name == "run_scenario"]
    wanted += [name for name in names if name.startswith("run_") and name != "run_scenario"]
    wanted += [name for name in names if name in ("run", "__call__", "fn", "function")]
    for name in wanted:
        found = names[name]
        if isinstance(found, Function):
            return replace(found, bound=bound)
    return None


def arguments(target: Function, config: Config) -> list[Any]:
    """Arguments for a function that takes the config: it where the code uses it as one."""
    spec = target.node.args
    names = [each.arg for each in (*spec.posonlyargs, *spec.args)]
    names = names[(target.bound is not None) + len(target.preset[0]) :]
    scores = {name: _score(target.node, name) for name in names}
    best = max(names, key=lambda name: scores[name], default=None)
    return [config if name == best else NOTHING for name in names]


def _score(node: ast.AST, name: str) -> int:
    """How much a parameter looks like the config."""
    score = 3 if CONFIG_NAME.match(name) else 0
    for each in ast.walk(node):
        of: ast.expr | None = None
        if isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Constant):
            of = each.value if isinstance(each.slice.value, str) else None
        elif isinstance(each, ast.Attribute) and each.attr == "get":
            of = each.value
        if isinstance(of, ast.Name) and of.id == name:
            score += 2
    return score


def run(
    sources: Sources,
    op: str,
    name: str,
    values: dict[str, Any] | None,
    skipped: frozenset[int] = frozenset(),
) -> Started | None:
    """Go through a scenario on a config (None: any config); None where it has no function.

    ``skipped``: nodes of functions whose results do not matter.
    """
    config = Config(values)
    machine = Machine(sources, config)
    machine.skipped = skipped
    _, table = scenarios_of(machine, op)
    target = function_of(machine, op, name, table.get(name))
    if target is None:
        return None
    machine.outer(target, arguments(target, config))
    return Started(machine, target)


def backends_of(started: Started) -> dict[str, tuple[Any, Place]]:
    """The scenario's backends: what ``_get_backends()`` gives, with where each was registered."""
    machine, target = started.machine, started.target
    names = target.source.names
    candidates = [name for name in names if name in ("_get_backends", "get_backends")]
    candidates += [name for name in names if _BACKENDS.match(name) and name not in candidates]
    for name in candidates:
        value = names[name]
        place = Place(target.source.shown, getattr(getattr(value, "node", None), "lineno", 1))
        if isinstance(value, Function):
            with machine.silent():
                value = machine.outer(value, [])
        found = _table(machine, value, place)
        if found:
            return found
    return {}


def _table(machine: Machine, value: Any, place: Place) -> dict[str, tuple[Any, Place]]:
    if isinstance(value, Object):
        inner = [v for v in value.attributes.values() if isinstance(v, (dict, list))]
        return _table(machine, inner[0], place) if inner else {}
    if isinstance(value, dict):
        return {
            key: (each, machine.key_places.get((id(value), key), place))
            for key, each in value.items()
            if isinstance(key, str)
        }
    found: dict[str, tuple[Any, Place]] = {}
    for each in value if isinstance(value, (list, tuple)) else ():
        if isinstance(each, Object) and isinstance(each.attributes.get("name"), str):
            found[each.attributes["name"]] = (each, place)
        elif isinstance(each, (list, tuple)) and each and isinstance(each[0], str):
            found[each[0]] = (each[-1], place)
        elif isinstance(each, str):
            found[each] = (NOTHING, place)
    return found


def adapters(value: Any) -> Iterable[Function]:
    """The functions that adapt a backend: itself, or those of an object, a tuple or a class."""
    if isinstance(value, Function):
        yield value
    elif isinstance(value, Object):
        for each in [*value.attributes.values(), *value.of.names.values()]:
            if isinstance(each, Function) and not each.name.startswith("__"):
                bound = value if each in value.of.names.values() else each.bound
                yield replace(each, bound=bound)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from adapters(each)
    elif isinstance(value, dict):
        yield from adapters(list(value.values()))


def visit(started: Started, target: Function, dtype: Any = None) -> None:
    """Go through a function that the scenario was not seen to call, arguments by their names."""
    machine = started.machine
    wild = Unknown(dtype=dtype)
    spec = target.node.args
    known = {**target.source.names, **(machine.config.values or {}), **machine.last}
    args: list[Any] = []
    for each in [*spec.posonlyargs, *spec.args][target.bound is not None :]:
        if CONFIG_NAME.match(each.arg):
            args.append(machine.config)
        elif "dtype" in each.arg and dtype is not None:
            args.append(dtype)
        else:
            args.append(known.get(each.arg, wild))
    machine.outer(target, args)


def visit_unseen(
    started: Started, table: Mapping[str, tuple[Any, Place]], dtype: Any = None
) -> None:
    """Go through the builders and the backends' functions that were not seen to be called."""
    names = started.target.source.names
    unseen = [v for k, v in names.items() if BUILDS.match(k) and isinstance(v, Function)]
    unseen += [each for value, _ in table.values() for each in adapters(value)]
    before = set(started.machine.watch.called)
    for each in unseen:
        if id(each.node) not in before:
            visit(started, each, dtype)
