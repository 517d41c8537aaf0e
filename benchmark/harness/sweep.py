"""A configuration whose values are lists stands for several cases: their cartesian product."""

from __future__ import annotations

import copy
import difflib
import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

from harness import markers
from harness.cases import NOT_PARAMETERS
from harness.errors import TreeError

# Lists under these names are one value, never a sweep.
NEVER_SWEPT = frozenset({"device_id", "device_name", "samples", "batch_size_list"})
# Cases of one run: hours, even of the fastest operators.
MOST = 10_000


def names(cases: Sequence[dict[str, Any]]) -> list[str]:
    """What tells each case from the others: ``rows=8 dtype=float16``; empty for a single one."""
    swept = [key for key in cases[0] if any(case[key] != cases[0][key] for case in cases)]
    # On one line whatever the values are.
    return [" ".join(f"{key}={case[key]}" for key in swept).replace("\n", " ") for case in cases]


def expand(config: dict[str, Any], where: str, filters: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return one configuration a case, in the order of the keys, the last key fastest.

    A value that a list names twice is one case, with a warning. Cases that ``filters`` (see
    ``select``) rule out need not be among them. Raises ``TreeError`` naming ``where`` when a swept
    list is empty, for then there is no case, and when there would be more than ``MOST``.
    """
    swept = [k for k, v in config.items() if isinstance(v, list) and k not in NEVER_SWEPT]
    for key in swept:
        if not config[key]:
            raise TreeError(f"{where}: {key!r} is an empty list, so there is nothing to measure")
    lists = {key: _once(config[key], key, where) for key in swept}
    wanted = _wanted(filters)
    for key in lists.keys() & wanted.keys():
        # Where none is left, ``select`` tells which values there are.
        kept = [value for value in lists[key] if any(_is(value, text) for text in wanted[key])]
        lists[key] = kept or lists[key]
    count = math.prod(map(len, lists.values()))
    if count > MOST:
        raise TreeError(
            f"{where}: {', '.join(swept)} make {count} cases, and a run has at most {MOST}; "
            "shorten the lists, or choose with --case KEY=VALUE"
        )
    cases = []
    for values in itertools.product(*lists.values()):
        case = copy.deepcopy(config)
        case.update(zip(swept, copy.deepcopy(values), strict=True))
        cases.append(case)
    return cases


def select(
    cases: Sequence[dict[str, Any]], filters: Sequence[str], where: str
) -> list[dict[str, Any]]:
    """Return those of ``cases`` that every ``KEY=VALUE`` of ``filters`` lets through.

    A value is compared as JSON, then as text. A key that is named several times lets any of its
    values through. Raises ``TreeError`` naming ``where`` for a filter without ``=``, for a key that
    no case has, and when no case is left.
    """
    wanted = _wanted(filters)
    for key in wanted:
        if key not in cases[0] or key in NOT_PARAMETERS:
            raise TreeError(f"{where}: --case {key}: no such parameter{_near(key, cases)}")
    left = [
        case
        for case in cases
        if all(any(_is(case[key], text) for text in texts) for key, texts in wanted.items())
    ]
    if not left:
        there = "; ".join(
            f"{key} is {', '.join(dict.fromkeys(_shown(case[key]) for case in cases))}"
            for key in wanted
        )
        raise TreeError(f"{where}: no case is {' '.join(map(str.strip, filters))}: {there}")
    return left


def _wanted(filters: Sequence[str]) -> dict[str, list[str]]:
    """The texts that filters want, by key; raises ``TreeError`` for one without ``=``."""
    wanted: dict[str, list[str]] = {}
    for text in filters:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise TreeError(f"--case {text!r}: write KEY=VALUE")
        wanted.setdefault(key.strip(), []).append(value.strip())
    return wanted


def _is(value: Any, text: str) -> bool:
    try:
        if json.dumps(json.loads(text), sort_keys=True) == json.dumps(value, sort_keys=True):
            return True
    except (ValueError, RecursionError):
        pass
    return str(value) == text


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _near(key: str, cases: Sequence[dict[str, Any]]) -> str:
    names = [name for name in cases[0] if name not in NOT_PARAMETERS]
    swept = [name for name in names if any(case[name] != cases[0][name] for case in cases)]
    close = difflib.get_close_matches(key, names, n=3)
    said = f"; did you mean {', '.join(close)}?" if close else ""
    return f"{said}; swept are {', '.join(swept)}" if swept else f"{said}; nothing is swept there"


def _once(values: list[Any], key: str, where: str) -> list[Any]:
    # Told apart as JSON: 1, 1.0 and true are different values of a configuration.
    found: dict[str, Any] = {}
    for value in values:
        found.setdefault(json.dumps(value, sort_keys=True), value)
    if len(found) < len(values):
        markers.warn(f"{where}: {key!r} names a value twice; every case is measured once")
    return list(found.values())
