"""The worst elements of an output that failed its check: where they are, and by how much off.

Looked for only once a comparison has failed, slice by slice and in float64 as the comparison
itself. Elements are ranked as the check judges: by their row's magnitude (``close``), by absolute
error (``cosine``), by whether their bits differ (``exact``). What is not finite comes first.
"""

from __future__ import annotations

import heapq
import math
import sys
from collections.abc import Iterator
from typing import Any, Literal

import torch

from harness import checks, elements

Ranking = Literal["row", "absolute", "bits"]
Entry = dict[str, Any]
"""One output in a record's ``verification.worst``; see ``entry``."""

ELEMENTS = 10  # an output

_Found = tuple[float, int]  # how bad, and the flat index


def entry(
    name: str | None,
    reason: str | None,
    compared: tuple[torch.Tensor, torch.Tensor] | None,
    ranking: Ranking,
    limit: float | None = None,
) -> Entry:
    """What a record says of an output that failed: shapes, dtypes and its worst elements.

    ``compared``: output and reference, None where the check got to no comparison. ``limit`` is what
    ``close`` held the output against. ``elements`` has at most ten of ``index``, ``got``,
    ``expected``, ``abs_error`` and ``rel_error`` (by ``expected``); the errors are None where they
    are no number. It is empty where shapes or kinds differ: then these are what is wrong.
    """
    told: Entry = {
        "output": name,
        "reason": reason,
        "shape": None,
        "expected_shape": None,
        "dtype": None,
        "expected_dtype": None,
        "elements": [],
    }
    if compared is None:
        return told
    out, ref = compared
    for prefix, tensor in (("", out), ("expected_", ref)):
        told[f"{prefix}shape"] = list(tensor.shape)
        told[f"{prefix}dtype"] = str(tensor.dtype).removeprefix("torch.")
    if checks.unlike(out, ref) is None:
        told["elements"] = _elements(out, ref, ranking, limit)
    return told


def _elements(
    out: torch.Tensor, ref: torch.Tensor, ranking: Ranking, limit: float | None
) -> list[dict[str, Any]]:
    left, right = checks.numbers(out).reshape(-1), checks.numbers(ref).reshape(-1)
    halves = left.numel() // out.numel()  # a complex number has two
    by_bits = ranking == "bits" and out.dtype is ref.dtype
    if ranking == "row" and out.dtype.is_floating_point:
        ranked = _by_row(left, right, out, limit)
    elif by_bits:
        ranked = _by_bits(left, right, elements._bits(out), elements._bits(ref))
    else:
        ranked = ((span.start, _badness(left[span], right[span])) for span in _spans(0, len(left)))
    worst: list[_Found] = []
    for start, badness in ranked:
        worst = _merged(worst, _largest(badness, start, ELEMENTS * halves))
    places = dict.fromkeys(index // halves for _, index in worst)
    return [_element(out, ref, index) for index in list(places)[:ELEMENTS]]


def _spans(start: int, stop: int) -> Iterator[slice]:
    for first in range(start, stop, checks._SLICE):
        yield slice(first, min(first + checks._SLICE, stop))


def _badness(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Absolute errors in float64; not finite: the largest there is, infinite where they differ."""
    b = b.to(a.device)
    error = elements._errors(a, b)
    a, b = a.to(torch.float64), b.to(torch.float64)
    broken = ~(torch.isfinite(a) & torch.isfinite(b))
    alike = (a == b) | (torch.isnan(a) & torch.isnan(b))
    error = torch.where(broken, math.inf, error)
    return torch.where(broken & alike, sys.float_info.max, error)


def _by_bits(
    left: torch.Tensor, right: torch.Tensor, bits: torch.Tensor, ref_bits: torch.Tensor
) -> Iterator[tuple[int, torch.Tensor]]:
    for span in _spans(0, len(left)):
        differs = bits[span] != ref_bits[span].to(bits.device)
        try:
            # Equal numbers of other bits, a negative zero say, are still wrong.
            error = _badness(left[span], right[span]).clamp(min=sys.float_info.min)
        except (NotImplementedError, RuntimeError):
            # Packed numbers have no error, only bits.
            error = torch.ones(len(differs), dtype=torch.float64, device=differs.device)
        yield span.start, torch.where(differs, error, 0.0)


def _by_row(
    left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, limit: float | None
) -> Iterator[tuple[int, torch.Tensor]]:
    columns = out.shape[-1] if out.dim() else 1
    largest = max(float(_magnitude(right[span]).max()) for span in _spans(0, len(right)))
    limit = elements.usual_limit(out.dtype) if limit is None else limit
    floor = elements._floor(out.dtype, limit, largest)
    for rows in elements._row_blocks(len(left) // columns, columns):
        block = slice(rows.start * columns, rows.stop * columns)
        # Several spans only of a single row that is longer than a slice.
        spans = list(_spans(block.start, block.stop))
        found = [_magnitude(right[span]).reshape(len(rows), -1).amax(dim=1) for span in spans]
        row = torch.stack(found).amax(dim=0).clamp(min=floor).to(left.device)
        for span in spans:
            error = _badness(left[span], right[span]).reshape(len(rows), -1)
            yield span.start, (error / row[:, None]).nan_to_num(nan=math.inf).reshape(-1)


def _magnitude(values: torch.Tensor) -> torch.Tensor:
    return values.to(torch.float64).abs().nan_to_num(nan=0.0, posinf=0.0)


def _largest(badness: torch.Tensor, start: int, count: int) -> list[_Found]:
    """The ``count`` largest above zero; of equal ones the first."""
    count = min(count, len(badness))
    least = float(badness.topk(count).values[-1])
    above = (badness > least).nonzero().reshape(-1)
    level = (badness == least).nonzero().reshape(-1)[: count - len(above)]
    places = torch.cat([above, level])
    values = badness[places]
    return [
        (value, start + index)
        for value, index in zip(values.tolist(), places.tolist(), strict=True)
        if value > 0.0
    ]


def _merged(before: list[_Found], found: list[_Found]) -> list[_Found]:
    count = max(len(before), len(found), ELEMENTS)
    return heapq.nsmallest(count, [*before, *found], key=lambda one: (-one[0], one[1]))


def _element(out: torch.Tensor, ref: torch.Tensor, index: int) -> dict[str, Any]:
    got, expected = _value(out, index), _value(ref, index)
    error = relative = None
    if not isinstance(got, str) and not isinstance(expected, str):
        error = _finite(abs(got - expected))
        if error is not None and expected != 0:
            relative = _finite(error / abs(expected))
    return {
        "index": elements.indices(index, out.shape),
        "got": _told(got),
        "expected": _told(expected),
        "abs_error": error,
        "rel_error": relative,
    }


def _value(tensor: torch.Tensor, index: int) -> Any:
    """A number of Python's, or a text for what is none: ``byte 17``."""
    if tensor.dtype is torch.bool:
        byte = int(checks.numbers(tensor).reshape(-1)[index])
        return bool(byte) if byte < 2 else f"byte {byte}"
    return elements._value(tensor, index)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _told(value: Any) -> bool | int | float | str:
    """A value as JSON can hold it: what it has no number for as text."""
    if isinstance(value, complex):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return str(value)
    return value  # type: ignore[no-any-return]
