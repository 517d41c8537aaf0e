"""All checks of one config against its checkout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.author.halops.check import rules
from orchestrator.author.halops.check.evaluate import evaluated
from orchestrator.author.halops.facts import Checkout, Violation

_SEVERITIES = ("error", "warning", "note", "run")


def check_config(checkout: Checkout, op: str, values: Mapping[str, Any]) -> list[Violation]:
    """What is wrong with a config of an op, or must be said of it; errors first.

    Each names the line of the checkout that says so. Raises nothing for a wrong config.
    """
    if op not in checkout.ops:
        place = next(iter(checkout.ops.values())).place if checkout.ops else None
        hint = rules.close(op, checkout.ops)
        return [Violation("error", "op", f"there is no op {op!r}", place, None, hint)]
    scenario, found = rules.scenario_of(checkout.ops[op], values)
    if scenario is None:
        return found
    found += rules.names_and_fields(checkout, scenario, values)
    found += rules.backends(scenario, values)
    found += rules.gpu(checkout, scenario, values)
    shaped = {each.field for each in found if each.rule == "shape"}
    named = {each.field for each in found if each.rule in ("backend", "reference")}
    reached = evaluated(checkout, scenario, values)
    spelled = any(each.rule in ("dtype-spelling", "unknown-value") for each in reached)
    for each in reached:
        # Said already, by name instead of by what comes of it.
        if spelled and each.rule == "backend-dtype":
            continue  # no backend knows a dtype that is none
        if shaped and (each.rule == "shape" or each.severity == "run"):
            continue
        if each.rule == "unknown-value" and named and each.field in (None, *named):
            continue
        found.append(each)
    return sorted(found, key=lambda each: _SEVERITIES.index(each.severity))
