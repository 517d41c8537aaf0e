"""Shapes of GEMMs: as they were written, or from M, N and K that were given one by one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.author.halops.facts import Field
from orchestrator.author.halops.intent.meaning import meaning_of

DIMENSIONS = ("m", "n", "k", "max_m", "experts")
# By length, where neither the code nor a neighbour says what a shape is made of.
_USUAL = {3: ("M", "N", "K"), 4: ("num_experts", "max_m", "N", "K")}


def of(
    written: Sequence[tuple[int, ...]],
    amounts: Mapping[str, tuple[int, ...]],
    field: Field,
    used: Sequence[Any],
) -> tuple[list[list[int]], str | None]:
    """The shapes, or why there are none; neither where nothing of them was said.

    ``amounts``: values by dimension, of which every combination is one shape; ``used``: what other
    configs have in that field.
    """
    columns = field.columns or _columns(used)
    if written:
        wrong = [one for one in written if columns and len(one) != len(columns)]
        if wrong:
            return [], f"{'x'.join(map(str, wrong[0]))}: a shape is [{', '.join(columns)}] here"
        return [list(one) for one in written], None
    sides = {name: _side(name, amounts) for name in columns}
    if not any(sides.values()):
        return [], None
    lost = [name for name, values in sides.items() if not values]
    if lost:
        return [], f"{', '.join(lost)} of [{', '.join(columns)}] is missing"
    return [list(one) for one in itertools.product(*sides.values())], None


def _side(column: str, amounts: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The values of one dimension; what is M to people may be ``max_m`` to the code."""
    key = meaning_of(column) or column.lower()
    other = {"m": "max_m", "max_m": "m"}.get(key, key)
    return amounts.get(key) or amounts.get(other, ())


def _columns(used: Sequence[Any]) -> tuple[str, ...]:
    """What a shape is made of, by the length of another config's."""
    for shapes in used:
        if isinstance(shapes, list) and shapes and isinstance(shapes[0], list):
            return _USUAL.get(len(shapes[0]), ())
    return ()
