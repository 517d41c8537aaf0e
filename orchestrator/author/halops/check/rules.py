"""The rules that need no evaluation: names, required fields, order, GPUs, references."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orchestrator.author.halops.facts import Checkout, Field, Op, Scenario, Violation

_HALOPS = "halops"


def close(name: Any, known: Iterable[str]) -> str:
    """A hint that names the nearest of the known names, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(str(name), names, n=1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"


def _among(name: Any, known: Iterable[str]) -> bool:
    """Whether it is one of the names; YAML may give a list or a mapping for one."""
    return isinstance(name, str) and name in known


def scenario_of(op: Op, values: Mapping[str, Any]) -> tuple[Scenario | None, list[Violation]]:
    """The scenario that the values name, or what is wrong with it."""
    name = values.get("scenario")
    if isinstance(name, str) and name in op.scenarios:
        return op.scenarios[name], []
    message = f"{op.name} has no scenario {name!r}" if name else "there is no scenario"
    places = [each.place for each in op.scenarios.values()]
    place = places[0] if places else op.place
    hint = close(name or "", op.scenarios)
    return None, [Violation("error", "scenario", message, place, "scenario", hint)]


def names_and_fields(
    checkout: Checkout, scenario: Scenario, values: Mapping[str, Any]
) -> Iterator[Violation]:
    """Required fields, fields that nothing reads, empty sweeps, and batch sizes of attention."""
    for field in scenario.fields.values():
        if field.required and field.name not in values:
            message = f"{scenario.name} needs {field.name}"
            yield Violation("error", "required", message, field.place, field.name)
        elif field.name in values:
            yield from _sweep(field, values[field.name])
    for name in values:
        if name not in scenario.fields and name not in checkout.entry_fields:
            message = f"{scenario.name} does not read {name}"
            hint = close(name, scenario.fields)
            yield Violation("warning", "unread", message, scenario.place, name, hint)
    for name, spelling in scenario.dtypes.items():
        value = values.get(name)
        if value is not None and not isinstance(value, str) and spelling.accepts:
            place = spelling.torch or scenario.fields[name].place
            message = f"{name} must be a name, not {str(value)[:40]}"
            hint = f"known: {', '.join(spelling.accepts)}"
            yield Violation("error", "dtype-spelling", message, place, name, hint)
    yield from _batch(scenario, values)


def _sweep(field: Field, value: Any) -> Iterator[Violation]:
    if not field.sweep or value is None:
        return
    if not isinstance(value, list) or not value:
        message = f"{field.name} must be a list of values to go through, not {value!r}"
        yield Violation("error", "sweep", message, field.place, field.name)
        return
    for each in value:
        wanted = len(field.columns)
        if wanted and (not isinstance(each, list) or len(each) != wanted):
            message = f"{field.name} has {each!r}, not [{', '.join(field.columns)}]"
            yield Violation("error", "shape", message, field.place, field.name)
            return


def _batch(scenario: Scenario, values: Mapping[str, Any]) -> Iterator[Violation]:
    for field in scenario.fields.values():
        scalar = field.expands_to
        if scalar is not None and field.name not in values and scalar not in values:
            message = f"neither {field.name} nor {scalar} is set: only the default is measured"
            if scalar == "batch_size":
                message = f"neither {field.name} nor {scalar} is set: only batch 1 is measured"
            yield Violation("warning", "batch", message, field.place, field.name)


def backends(scenario: Scenario, values: Mapping[str, Any]) -> Iterator[Violation]:
    """Names of backends, the reference, and that ``halops`` comes first."""
    for field in (each for each in scenario.fields.values() if each.names_backends):
        wanted = values.get(field.name)
        named = wanted if isinstance(wanted, list) else [] if wanted is None else [wanted]
        if field.name in values and not named:
            yield Violation("error", "backend", "no backend is named", field.place, field.name)
        for name in named if scenario.backends else ():
            if not _among(name, scenario.backends):
                place = next(iter(scenario.backends.values())).place
                message = f"{scenario.name} has no backend {name!r}"
                hint = close(name, scenario.backends)
                yield Violation("error", "backend", message, place, field.name, hint)
        doubled = sorted({str(name) for name in named if named.count(name) > 1})
        if doubled:
            message = f"{', '.join(doubled)} is named twice"
            yield Violation("warning", "backend", message, field.place, field.name)
        yield from _order(scenario, field, named)
    yield from _reference(scenario, values)


def _order(scenario: Scenario, field: Field, named: list[Any]) -> Iterator[Violation]:
    if _HALOPS not in scenario.backends or not named:
        return
    if _HALOPS not in named:
        place = scenario.first_is_base or field.place
        message = f"halops is not among the backends: {named[0]} is what others are compared with"
        yield Violation("note", "halops-first", message, place, field.name)
    elif named[0] != _HALOPS and scenario.halops_moved is not None:
        message = "halops is not first; the code itself moves it there"
        yield Violation("note", "halops-first", message, scenario.halops_moved, field.name)
    elif named[0] != _HALOPS:
        # Without a line that makes the first one the base, it is only the order that is expected.
        base = scenario.first_is_base
        message = f"halops is not first: {named[0]} would silently become the base"
        yield Violation(
            "error" if base else "warning",
            "halops-first",
            message,
            base or field.place,
            field.name,
            "put halops first in backends",
        )


def _reference(scenario: Scenario, values: Mapping[str, Any]) -> Iterator[Violation]:
    name = values.get("refcheck_reference")
    if name is not None and scenario.backends and not _among(name, scenario.backends):
        place = next(iter(scenario.backends.values())).place
        message = f"refcheck_reference {name!r} is no backend of {scenario.name}"
        hint = close(name, scenario.backends)
        yield Violation("error", "reference", message, place, "refcheck_reference", hint)


def gpu(checkout: Checkout, scenario: Scenario, values: Mapping[str, Any]) -> Iterator[Violation]:
    """That the GPU is known, and has an FP4 peak where FP4 is measured."""
    specs = checkout.gpu_specs
    if specs is None:
        return
    name = values.get("gpu_type")
    if name is not None and not _among(name, specs.specs):
        hint = close(name, specs.specs)
        if specs.fallback is not None:
            message = f"gpu_type {name!r} is unknown, and the code silently takes another for it"
            yield Violation("warning", "gpu", message, specs.fallback, "gpu_type", hint)
        else:
            message = f"gpu_type {name!r} is none of GPU_SPECS"
            yield Violation("error", "gpu", message, specs.place, "gpu_type", hint)
        return
    asked = [
        (field, str(values[field]))
        for field in values
        if field in scenario.dtypes or field in ("mode", "dtype")
    ]
    four = [(f, v) for f, v in asked if "fp4" in v.lower() or "float4" in v.lower() or "w4" in v]
    measured = name or specs.default
    if four and measured not in specs.fp4:
        field, value = four[0]
        peaks = ", ".join(sorted(specs.fp4)) or "no GPU"
        where = measured or "the detected GPU"
        message = f"{value}: {where} has no FP4 peak in GPU_SPECS, so its roofline says nothing"
        if measured is None:
            message = f"{value}: the roofline says something only on {peaks}"
        yield Violation(
            "warning", "fp4", message, specs.place, field, f"FP4 peaks are known of: {peaks}"
        )
