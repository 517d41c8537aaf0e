"""The worst elements of outputs that failed, beneath the remark on their case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.show.numbers import UNKNOWN
from orchestrator.show.text import display_width, fold, pad, safe, truncate

_MOST_OUTPUTS = 4  # of a case; the record has them all
_LONGEST_INDEX = 22
_LONGEST_NUMBER = 24
_LONGEST_ERROR = len("1.23e-300")
_TITLES = ("index", "got", "expected", "abs error", "rel error")


def worst_lines(outputs: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """Each output with a line for each of its elements, at most ``width`` (≥ 80) cells wide."""
    lines: list[str] = []
    for output in outputs[:_MOST_OUTPUTS]:
        first, *rest = fold(safe(_heading(output)), width - 4)
        lines += [f"  {first}", *(f"    {piece}" for piece in rest)]
        lines += [f"    {line}".rstrip() for line in _table(output["elements"], width - 4)]
    left = len(outputs) - _MOST_OUTPUTS
    if left > 0:
        lines.append(f"  and {left} more outputs, which the records name")
    return lines


def _heading(output: Mapping[str, Any]) -> str:
    name = truncate(output["output"] or "output", 60)
    if output["shape"] is None:
        return f"{name}: {output['reason']}"
    words = [f"{name} {_kind(output, '')}"]
    if _kind(output, "") != _kind(output, "expected_"):
        words.append(f"expected {_kind(output, 'expected_')}")
    return ", ".join(words) + (":" if output["elements"] else "")


def _kind(output: Mapping[str, Any], prefix: str) -> str:
    shape = " ".join(str(size) for size in output[f"{prefix}shape"] or ())
    return f"({shape}) {output[f'{prefix}dtype']}"


def _table(elements: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    if not elements:
        return []
    places = [truncate(_place(one["index"]), _LONGEST_INDEX) for one in elements]
    left = width - max(map(len, [_TITLES[0], *places])) - 2 * (_LONGEST_ERROR + 4)
    longest = min(_LONGEST_NUMBER, left // 2)
    rows: list[tuple[str, ...]] = [_TITLES]
    for place, one in zip(places, elements, strict=True):
        errors = (one["abs_error"], one["rel_error"])
        rows.append(
            (
                place,
                _number(one["got"], longest),
                _number(one["expected"], longest),
                *(UNKNOWN if error is None else f"{error:.3g}" for error in errors),
            )
        )
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(pad, row, widths)) for row in rows]


def _place(index: Sequence[int]) -> str:
    return f"[{' '.join(map(str, index))}]"


def _number(value: object, longest: int) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return truncate(safe(text), longest)
