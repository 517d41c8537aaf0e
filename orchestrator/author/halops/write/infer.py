"""What neighbouring configs say of fields that nobody gave: head geometry, and secondary ones."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.author.halops.facts import Checkout, Field, Neighbour, Scenario
from orchestrator.author.halops.intent import meaning
from orchestrator.author.halops.intent.meaning import CACHE_DTYPE, REFERENCE

# Secondary fields that are written also where no neighbour says how: what the spec names.
_WORTH = frozenset({"refcheck", REFERENCE, "cold_l2", "cuda_graph"})


@dataclass(frozen=True)
class Inferred:
    """A value and where it is from, for people."""

    value: Any
    why: str


def family(checkout: Checkout, scenario: Scenario) -> tuple[list[Neighbour], list[Neighbour]]:
    """The configs of the same scenario, and the others of its op."""
    all_of = checkout.ops[scenario.op].neighbours
    same = [one for one in all_of if one.scenario == scenario.name]
    return same, [one for one in all_of if one.scenario != scenario.name]


def geometry(
    checkout: Checkout, scenario: Scenario, missing: Sequence[Field], known: Mapping[str, Any]
) -> dict[str, Inferred]:
    """Values for all ``missing`` from one config that agrees with what is ``known`` of its shape.

    Most configs' values win, of as many the largest (small ones are for trying things out), those
    of the same scenario before others of the op; empty where no config has all of them.
    """
    names = [each.name for each in missing]
    for configs in family(checkout, scenario):
        fit = [
            one
            for one in configs
            if all(name in one.values for name in names)
            and all(one.values.get(name, value) == value for name, value in known.items())
        ]
        sets = Counter(json.dumps([one.values[name] for name in names]) for one in fit)
        if sets:
            best = max(sets, key=lambda key: (sets[key], _volume(json.loads(key))))
            where = next(
                one.shown for one in fit if json.dumps([one.values[n] for n in names]) == best
            )
            values = json.loads(best)
            return {
                name: Inferred(value, f"as in {where}")
                for name, value in zip(names, values, strict=True)
            }
    return {}


def _volume(values: Sequence[Any]) -> int:
    return math.prod(value for value in values if isinstance(value, int))


def secondary(
    checkout: Checkout, scenario: Scenario, field: Field, dtype: tuple[str, Any] | None
) -> Inferred | None:
    """What the field is mostly set to, None where it is better left to the code's default.

    ``dtype``: field and value of the config's; what goes with a dtype is only taken from configs
    that have the same one.
    """
    same, others = family(checkout, scenario)
    sort = meaning.role(field, scenario)
    if sort == CACHE_DTYPE and dtype is not None:
        same = [one for one in same if one.values.get(dtype[0]) == dtype[1]]
        others = []
    for configs in (same, others):
        having = [one for one in configs if field.name in one.values]
        # A field that the configs of this scenario mostly leave out is left out.
        if having and len(having) * 2 >= len(configs):
            found = _most(field, having)
            if sort != REFERENCE or _may_refer(scenario, found.value, dtype):
                return found
        elif configs is same and same and not field.required:
            return None
    return _default(checkout, scenario, field, sort, dtype)


def _most(field: Field, having: Sequence[Neighbour]) -> Inferred:
    values = Counter(json.dumps(one.values[field.name], default=str) for one in having)
    best = values.most_common(1)[0][0]
    for one in having:
        if json.dumps(one.values[field.name], default=str) == best:
            return Inferred(one.values[field.name], f"as in {one.shown}")
    raise AssertionError("a value is of one of those it was counted in")


def _default(
    checkout: Checkout,
    scenario: Scenario,
    field: Field,
    sort: str | None,
    dtype: tuple[str, Any] | None,
) -> Inferred | None:
    """The code's own default, where the field is one that configs usually have."""
    if sort == REFERENCE and _may_refer(scenario, "golden", dtype):
        return Inferred("golden", f"{scenario.name} has it ({scenario.backends['golden'].place})")
    if sort in _WORTH and sort != REFERENCE and field.default is not None:
        return Inferred(field.default, f"the code's default ({field.place})")
    return None


def _may_refer(scenario: Scenario, name: Any, dtype: tuple[str, Any] | None) -> bool:
    """Whether outputs can be held against that backend's: it is there and does the dtype."""
    fact = scenario.backends.get(name) if isinstance(name, str) else None
    return fact is not None and (dtype is None or dtype[1] not in fact.refuses)
