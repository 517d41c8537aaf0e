"""A config's file name, which tells what it measures: ``decode_gqa_b1-64_kv4k-64k_gqa8_fp8``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.author.halops.facts import Field, Scenario
from orchestrator.author.halops.intent.meaning import (
    BACKENDS,
    CACHE_DTYPE,
    DTYPE,
    SHAPES,
    role,
    roles,
    sweeps,
)
from orchestrator.author.halops.write.dtypes import short

# Before each number of a kind, in the name's order.
_LETTERS = {"batch": "b", "q_len": "s", "kv_len": "kv", "prefix": "p", "chunk": "c", "mtp": "mtp"}
_NAMED = {*_LETTERS, BACKENDS, CACHE_DTYPE, DTYPE, SHAPES}
_SHAPE_PARTS = {3: ("m", "n", "k"), 4: ("e", "m", "n", "k")}


def file_name(scenario: Scenario, values: Mapping[str, Any]) -> str:
    """The name without its ending; letters, digits, ``_`` and ``-``."""
    have = roles(scenario)
    parts = [scenario.name]
    for sort, letter in _LETTERS.items():
        found = _value(have.get(sort, ()), values)
        if found is not None and not (sort == "mtp" and found in (0, [0])):
            parts.append(f"{letter}{_span(found)}")
    parts += [
        f"{one.name.removesuffix('_list').replace('_', '-')}{_span(values[one.name])}"
        for one in scenario.fields.values()
        if sweeps(one) and values.get(one.name) and role(one, scenario) not in _NAMED
    ]
    q, kv = (_value(have.get(sort, ()), values) for sort in ("q_heads", "kv_heads"))
    if isinstance(q, int) and isinstance(kv, int) and kv and q % kv == 0 and q != kv:
        parts.append(f"gqa{q // kv}")
    shapes = _value(have.get(SHAPES, ()), values)
    if isinstance(shapes, list) and shapes and all(isinstance(one, list) for one in shapes):
        parts.append(_shape(shapes))
    dtype = _value(have.get(DTYPE, ()), values)
    if dtype is not None:
        parts.append(
            "-".join(short(str(one)) for one in (dtype if isinstance(dtype, list) else [dtype]))
        )
    cache = _value(have.get(CACHE_DTYPE, ()), values)
    # A dtype has digits in it; how scales lie (per_tensor) is no news.
    if isinstance(cache, str) and cache != dtype and re.search(r"\d", cache):
        parts.append(f"kv-{short(cache)}")
    return re.sub(r"[^A-Za-z0-9_-]+", "-", "_".join(parts)).strip("-_")


def _value(fields: Sequence[Field], values: Mapping[str, Any]) -> Any:
    return next((values[one.name] for one in fields if values.get(one.name) is not None), None)


def _span(value: Any) -> str:
    numbers = value if isinstance(value, list) else [value]
    if not all(isinstance(one, int) for one in numbers) or not numbers:
        return "-".join(str(one) for one in numbers)
    low, high = min(numbers), max(numbers)
    return _size(low) if low == high else f"{_size(low)}-{_size(high)}"


def _size(number: int) -> str:
    return f"{number // 1024}k" if number >= 1024 and number % 1024 == 0 else str(number)


def _shape(shapes: Sequence[Sequence[Any]]) -> str:
    """One shape as it is; of several each dimension's span."""
    if len(shapes) == 1:
        return "x".join(str(one) for one in shapes[0])
    letters = _SHAPE_PARTS.get(len(shapes[0]), tuple("abcdefgh"))
    columns = list(zip(*shapes, strict=False))
    return "_".join(
        f"{letter}{_span(list(col))}" for letter, col in zip(letters, columns, strict=False)
    )
