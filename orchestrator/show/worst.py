"""The worst elements of outputs that failed, beneath the remark on their case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.show.numbers import UNKNOWN
from orchestrator.show.text import display_width, fold, pad, safe, truncate

_MOST_OUTPUTS = 4  # of a case; the record has them all
_LONGEST_NUMBER = 24
_TITLES = ("index", "got", "expected", "abs error", "rel error")


def worst_lines(outputs: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """Each output with a line for each of its elements, at most ``width`` (≥ 80) cells wide."""
    lines: list[str] = []
    for output in outputs[:_MOST_OUTPUTS]:
        first, *rest = fold(safe(_heading(output)), width - 4)
        lines += [f"  {first}", *(f"    {piece}" for piece in rest)]
        lines += [f"    {line}".rstrip() for line in _table(output["elements"])]
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


def _table(elements: Sequence[Mapping[str, Any]]) -> list[str]:
    if not elements:
        return []
    rows: list[tuple[str, ...]] = [_TITLES]
    for one in elements:
        index = " ".join(str(place) for place in one["index"])
        errors = (one["abs_error"], one["rel_error"])
        rows.append(
            (
                f"[{index}]",
                _number(one["got"]),
                _number(one["expected"]),
                *(UNKNOWN if error is None else f"{error:.3g}" for error in errors),
            )
        )
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(pad(cell, width) for cell, width in zip(row, widths, strict=True)) for row in rows
    ]


def _number(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return truncate(safe(text), _LONGEST_NUMBER)
