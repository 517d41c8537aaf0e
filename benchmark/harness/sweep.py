"""A configuration whose values are lists stands for several cases: their cartesian product."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Sequence
from typing import Any

from harness import markers
from harness.errors import TreeError

# Lists under these names are one value, never a sweep.
NEVER_SWEPT = frozenset({"device_id", "device_name", "samples", "batch_size_list"})


def names(cases: Sequence[dict[str, Any]]) -> list[str]:
    """What tells each case from the others: ``rows=8 dtype=float16``; empty for a single one."""
    swept = [key for key in cases[0] if any(case[key] != cases[0][key] for case in cases)]
    # On one line whatever the values are.
    return [" ".join(f"{key}={case[key]}" for key in swept).replace("\n", " ") for case in cases]


def expand(config: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """Return one configuration a case, in the order of the keys, the last key fastest.

    A value that a list names twice is one case, with a warning. Raises ``TreeError`` naming
    ``where`` when a swept list is empty, for then there is no case.
    """
    swept = [k for k, v in config.items() if isinstance(v, list) and k not in NEVER_SWEPT]
    for key in swept:
        if not config[key]:
            raise TreeError(f"{where}: {key!r} is an empty list, so there is nothing to measure")
    lists = {key: _once(config[key], key, where) for key in swept}
    cases = []
    for values in itertools.product(*lists.values()):
        case = copy.deepcopy(config)
        case.update(zip(swept, copy.deepcopy(values), strict=True))
        cases.append(case)
    return cases


def _once(values: list[Any], key: str, where: str) -> list[Any]:
    # Told apart as JSON: 1, 1.0 and true are different values of a configuration.
    found: dict[str, Any] = {}
    for value in values:
        found.setdefault(json.dumps(value, sort_keys=True), value)
    if len(found) < len(values):
        markers.warn(f"{where}: {key!r} names a value twice; every case is measured once")
    return list(found.values())
