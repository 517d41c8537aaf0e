"""One scenario's facts: its fields, sweeps, backends, dtypes and constraints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.author.halops.facts import (
    BackendFact,
    ConstraintFact,
    DtypeSpelling,
    Field,
    Place,
    Refusal,
    Scenario,
    Todo,
)
from orchestrator.author.halops.read import order, start
from orchestrator.author.halops.read.attributes import TORCH_DTYPES
from orchestrator.author.halops.read.source import Sources
from orchestrator.author.halops.read.values import Dtype
from orchestrator.author.halops.read.watch import Broken, Watch

_COMMON = ("bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2")
# Raises on these alone say what a rule says by name.
_RULED = frozenset(("backends", "backend", "refcheck", "refcheck_reference", "gpu_type"))
_SHORT = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "fp8": "float8_e4m3fn",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
}


def fields_from(watch: Watch, entry: bool = False) -> dict[str, Field]:
    """The fields that a run read, in its order."""
    found: dict[str, Field] = {}
    for name in dict.fromkeys(read.name for read in watch.reads):
        reads = [read for read in watch.reads if read.name == name]
        soft = [read for read in reads if read.how != "[]"]
        looked = any(read.how == "in" for read in reads)
        hard = [read for read in reads if read.how == "[]"]
        required = bool(hard) and (not soft or (not looked and any(read.sure for read in hard)))
        gets = [read for read in soft if read.how == "get"]
        told = next((read for read in gets if read.default_source != "None"), None)
        told = told or (gets[0] if gets else None)
        first = hard[0] if required else (told or reads[0])
        found[name] = Field(
            name,
            required,
            first.place,
            default=told.default if told and not required else None,
            default_source=told.default_source if told and not required else None,
            sweep=name in watch.sweeps,
            columns=watch.columns.get(name, ()),
            choices=tuple(watch.choices.get(name, ())),
            expands_to=watch.expands.get(name, (None,))[0],
            entry=entry,
        )
    return found


def read_scenario(sources: Sources, op: str, name: str, place: Place) -> Scenario:
    """What the code says of a scenario; what could not be read is among its ``todos``."""
    started = start.run(sources, op, name, None)
    if started is None:
        return Scenario(name, op, place, "", todos=(Todo("no function was found for it", place),))
    table = start.backends_of(started)
    start.visit_unseen(started, table)
    watch, target = started.machine.watch, started.target
    todos: list[Todo] = []
    if watch.spent:
        todos.append(Todo("its code is too long to be gone through", place))
    if not table:
        todos.append(Todo("no registry of backends was found", place))
    fields = _with_backends(fields_from(watch), watch, table)
    dtypes, refusals = _dtypes(sources, op, name, fields, watch, table)
    backends = {
        each: _backend(each, value, at, refusals.get(each, {}))
        for each, (value, at) in table.items()
    }
    functions = list(watch.called.values())
    return Scenario(
        name,
        op,
        Place(target.source.shown, getattr(target.node, "lineno", 1)),
        target.name,
        fields,
        backends,
        tuple(_constraints(watch, table)),
        dtypes,
        order.moved(functions),
        order.first_is_base(functions),
        tuple(todos),
    )


def _with_backends(
    fields: dict[str, Field], watch: Watch, table: dict[str, tuple[Any, Place]]
) -> dict[str, Field]:
    """Which field names backends: its values are looked up in the registry."""
    named = {"backends", "backend"} | {
        name
        for name, keys in watch.choices.items()
        if table and set(table) <= set(keys) and name in watch.sweeps
    }
    return {
        name: replace(field, names_backends=True, sweep=False) if name in named else field
        for name, field in fields.items()
    }


def _backend(name: str, value: Any, place: Place, refuses: dict[str, Refusal]) -> BackendFact:
    found = list(start.adapters(value))
    adapt = next((each for each in found if "adapt" in each.name), found[0] if found else None)
    at = None if adapt is None else Place(adapt.source.shown, getattr(adapt.node, "lineno", 1))
    return BackendFact(name, place, None if adapt is None else adapt.name, at, refuses)


def adapter_nodes(table: dict[str, tuple[Any, Place]]) -> dict[str, frozenset[int]]:
    """The nodes of each backend's functions."""
    return {
        name: frozenset(id(each.node) for each in start.adapters(value))
        for name, (value, _) in table.items()
    }


def _constraints(watch: Watch, table: dict[str, tuple[Any, Place]]) -> list[ConstraintFact]:
    """Asserts, and raises under a condition on the config, outside the adapters."""
    adapting = frozenset().union(*adapter_nodes(table).values())
    found: dict[tuple[Place, tuple[str, ...]], ConstraintFact] = {}
    for each in watch.broken:
        if each.kind not in ("assert", "raise") or (each.nodes & adapting):
            continue
        if each.kind == "raise" and not each.fields - _RULED:
            continue  # of no field, or of one that has a rule of its own
        if not each.fields and not each.place.path.startswith("kernel/"):
            continue  # of the suite's own state
        branch = each.branch
        expression = each.expression
        if each.kind == "raise":
            branch = each.branch[:-1]
            inner = expression.removeprefix("not (")
            expression = inner[:-1] if inner != expression else f"not ({expression})"
        fact = ConstraintFact(
            expression,
            each.place,
            branch,
            each.names,
            tuple(sorted(each.fields)),
            each.message,
            run_only=not each.fields and each.outcome is None,
        )
        found.setdefault((each.place, branch), fact)
    return list(found.values())


def _dtype_like(field: Field, watch: Watch) -> bool:
    words = ("dtype", "mode", "quant", "precision", "format")
    return field.name in watch.torch_names or any(word in field.name for word in words)


def _dtypes(
    sources: Sources,
    op: str,
    name: str,
    fields: dict[str, Field],
    watch: Watch,
    table: dict[str, tuple[Any, Place]],
) -> tuple[dict[str, DtypeSpelling], dict[str, dict[str, Refusal]]]:
    """Spellings of each dtype field that the code takes, and which backend refuses which."""
    spellings: dict[str, DtypeSpelling] = {}
    refusals: dict[str, dict[str, Refusal]] = {}
    for field in fields.values():
        if not _dtype_like(field, watch):
            continue
        by_torch = watch.torch_names.get(field.name)
        candidates = dict.fromkeys(field.choices)
        if by_torch or "dtype" in field.name:
            candidates.update(dict.fromkeys((*_COMMON, *_SHORT)))
        if isinstance(field.default, str):
            candidates[field.default] = None
        accepted: list[str] = []
        for value in candidates:
            told, inside = _probe(sources, op, name, {field.name: value}, watch.aside)
            broken = [each for each in told if each.sure and each.refuses]
            all_inside = frozenset().union(*inside.values())
            outside = [each for each in broken if not each.nodes & all_inside]
            if any(each.kind != "assert" for each in outside):
                continue
            accepted.append(value)
            for backend, nodes in inside.items():
                hit = next((each for each in broken if each.nodes & nodes), None)
                if hit is not None:
                    refusal = Refusal(field.name, value, hit.place, hit.message)
                    refusals.setdefault(backend, {}).setdefault(value, refusal)
        aliases = {
            value: watch.choices.get(field.name, {}).get(value, field.place)
            for value in accepted
            if value not in TORCH_DTYPES and (by_torch or TORCH_DTYPES & set(accepted))
        }
        spellings[field.name] = DtypeSpelling(field.name, by_torch, aliases, tuple(accepted))
    return spellings, refusals


def _probe(
    sources: Sources, op: str, name: str, values: dict[str, Any], aside: frozenset[int]
) -> tuple[list[Broken], dict[str, frozenset[int]]]:
    """What breaks with one value of one field and everything else open."""
    started = start.run(sources, op, name, values, aside)
    if started is None:
        return [], {}
    table = start.backends_of(started)
    start.visit_unseen(started, table, dtype_named(*values.values()))
    return started.machine.watch.broken, adapter_nodes(table)


def dtype_named(value: Any) -> Dtype | None:
    """The dtype that a spelling stands for in general."""
    name = _SHORT.get(value, value) if isinstance(value, str) else ""
    return Dtype(name) if name in TORCH_DTYPES else None
