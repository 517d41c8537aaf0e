"""The constraints that the code itself has, evaluated on all values of a config.

The scenario's code is gone through by the reader's interpreter once for each value that the entry
layer expands; what it asserts, raises or looks up on the way is what it would do in a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.author.halops.facts import Checkout, Place, Scenario, Violation
from orchestrator.author.halops.read import start
from orchestrator.author.halops.read.scenario import adapter_nodes, dtype_named
from orchestrator.author.halops.read.source import Sources
from orchestrator.author.halops.read.watch import Broken

_ROUNDS = 64  # values that the entry layer expands


def expanded(scenario: Scenario, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The config as the scenario gets it, once for each value of what the entry layer expands."""
    whole = [dict(values)]
    for field in scenario.fields.values():
        wanted = values.get(field.name)
        if field.expands_to is None or not isinstance(wanted, list) or not wanted:
            continue
        whole = [{**each, field.expands_to: one} for each in whole for one in wanted][:_ROUNDS]
    for each in whole:
        for field in scenario.fields.values():
            if field.expands_to is not None:
                each.setdefault(field.expands_to, 1)
        yield each


def evaluated(checkout: Checkout, scenario: Scenario, values: Mapping[str, Any]) -> list[Violation]:
    """What the scenario's code forbids of these values, each line of it once."""
    sources = Sources(checkout.root)
    names = [each for each in _listed(values.get("backends")) if each in scenario.backends]
    found: dict[tuple[str, Place, str], Violation] = {}
    skipped = _aside(sources, scenario)
    for each in expanded(scenario, values):
        started = start.run(sources, scenario.op, scenario.name, each, skipped)
        if started is None:
            return []
        table = start.backends_of(started)
        dtypes = [dtype_named(each.get(name)) for name in scenario.dtypes]
        dtype = next((one for one in dtypes if one is not None), None)
        chosen = {name: table[name] for name in names if name in table}
        start.visit_unseen(started, chosen, dtype)
        inside = adapter_nodes(table)
        for broken in started.machine.watch.broken:
            violation = _violation(scenario, broken, inside, names, each)
            if violation is not None:
                key = (violation.rule, broken.place, violation.message)
                found.setdefault(key, violation)
        if started.machine.watch.spent:
            place = scenario.place
            found[("too-many", place, "")] = Violation(
                "run", "too-many", "too many combinations to look at all of them", place
            )
    return list(found.values())


def _aside(sources: Sources, scenario: Scenario) -> frozenset[int]:
    """Functions of the suite's core that nothing of a config depends on: timing, tables."""
    started = start.run(sources, scenario.op, scenario.name, None)
    if started is None:
        return frozenset()
    start.visit_unseen(started, start.backends_of(started))
    return started.machine.watch.aside


def _violation(
    scenario: Scenario,
    broken: Broken,
    inside: Mapping[str, frozenset[int]],
    chosen: list[str],
    values: Mapping[str, Any],
) -> Violation | None:
    backends = [name for name, nodes in inside.items() if broken.nodes & nodes]
    wanted = [name for name in backends if name in chosen]
    if backends and not wanted:
        return None
    if broken.outcome is None and broken.kind == "assert":
        if not any(known.place == broken.place for known in scenario.constraints):
            return None  # of a backend's own state
        message = f"only a run can show whether {broken.expression} holds"
        return Violation("run", "run-only", message, broken.place)
    if broken.outcome is True or not broken.sure:
        return None
    told = any(known.place == broken.place for known in scenario.constraints)
    if broken.kind == "raise" and not broken.in_kernel and not told:
        return None  # what a rule says by name
    text = f": {broken.message}" if broken.message else ""
    at = ", ".join(f"{name}={value!r}" for name, value in broken.values)
    if wanted and broken.kind in ("raise", "assert"):
        text = text or (f": {broken.expression} does not hold" if broken.expression else "")
        asked = {n: values[n] for n in scenario.dtypes if n in values}
        what = ", ".join(f"{n}: {v}" for n, v in asked.items())
        message = f"{', '.join(wanted)} cannot do {what or 'this'}{text}"
        hint = "take it out of backends, or choose another dtype or mode"
        return Violation("error", "backend-dtype", message, broken.place, "backends", hint, asked)
    shown = dict(broken.values)
    if broken.kind == "assert":
        message = f"{broken.expression} does not hold at {at}{text}"
        return Violation(
            "error", "constraint", message, broken.place, _field(scenario, broken), values=shown
        )
    if broken.kind == "dtype":
        dtype = _field(scenario, broken) or "dtype"
        message = f"torch has no dtype {broken.expression!r}: {dtype} needs torch's own names"
        return Violation("error", "dtype-spelling", message, broken.place, dtype)
    if broken.kind == "key":
        message = f"{broken.expression} is none of {broken.message}"
        return Violation("error", "unknown-value", message, broken.place, _field(scenario, broken))
    if broken.kind == "unpack":
        message = f"{broken.message} cannot be taken apart to {broken.expression}"
        return Violation("error", "shape", message, broken.place, _field(scenario, broken))
    message = f"the code raises here{text or f' at {at}'}"
    return Violation("error", "constraint", message, broken.place, _field(scenario, broken))


def _field(scenario: Scenario, broken: Broken) -> str | None:
    """The field that a line depends on, as the reader found it."""
    for each in scenario.constraints:
        if each.place == broken.place and each.fields:
            return each.fields[0]
    for name, spelling in scenario.dtypes.items():
        if spelling.torch == broken.place:
            return name
    return None


def _listed(value: Any) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []
