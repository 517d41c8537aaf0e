"""Compare an output with its reference so that a wrong kernel cannot pass: direction and scale.

Cosine similarity alone is blind to scale, shape and, through NaN comparisons, to broken values.
Everything is computed in float64, in slices: checking a large tensor takes little memory. Each side
is divided by its largest magnitude first, so that no square overflows or vanishes. Limits are
tested as ``not (x <= limit)``: what is no number does not pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.thresholds import Limit

# Elements a slice: 32 MiB of float64 for each side.
_SLICE = 1 << 22
NORM_TOLERANCE = 0.01


@dataclass(frozen=True)
class Comparison:
    """What comparing one output with its reference showed.

    ``difference`` is the check's own measure, 0.0 for equal (``compare``: 1 - cosine; NaN where it
    has no meaning); ``figures`` are what the record keeps, by name. ``name`` is the tensor's.
    """

    passed: bool
    difference: float
    reason: str | None
    figures: Mapping[str, float | None] = field(default_factory=dict)
    name: str | None = None
    limit: Limit | None = None
    # What was compared in place of output and reference, sorted rows say; not kept once noted.
    compared: tuple[torch.Tensor, torch.Tensor] | None = field(
        default=None, repr=False, compare=False
    )
    # Of one that failed: the output and its worst elements, as ``worst.entry`` has them.
    worst: dict[str, Any] | None = None

    def metrics(self) -> dict[str, float | None]:
        """The figures by the names the record uses: ``key_cache.norm_ratio`` for a named tensor."""
        prefix = "" if self.name is None else f"{self.name}."
        return {
            f"{prefix}{key}": value if value is not None and math.isfinite(value) else None
            for key, value in self.figures.items()
        }


@dataclass(frozen=True)
class Survey:
    """Largest magnitudes of output, reference and their difference over all elements."""

    largest: float
    largest_ref: float
    worst: float


def refused(reason: str, *figures: str) -> Comparison:
    """The comparison of tensors that cannot be compared; the named figures have no value."""
    return Comparison(False, math.nan, reason, dict.fromkeys(figures))


def numbers(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` without gradient, complex numbers as pairs, bools as the bytes they are.

    The byte of a bool that is neither 0 nor 1 was never written as a bool: it reads as true, but
    equals no reference.
    """
    tensor = tensor.detach()
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    return tensor.view(torch.uint8) if tensor.dtype is torch.bool else tensor


def unlike(out: torch.Tensor, ref: torch.Tensor) -> str | None:
    """Why the two cannot be compared by value; None: they can.

    An int8 output may have a reference in float32; complex against real and bool against
    floating-point say different things, and what is empty says nothing.
    """
    if out.shape != ref.shape:
        return f"shape {tuple(out.shape)} where the reference has {tuple(ref.shape)}"
    dtypes = (out.dtype, ref.dtype)
    alike = out.is_complex() == ref.is_complex()
    if torch.bool in dtypes:
        alike = not any(d.is_floating_point or d.is_complex for d in dtypes)
    if not alike:
        return f"{out.dtype} output against a {ref.dtype} reference; convert with ref.to(out.dtype)"
    if out.numel() == 0:
        return "the output is empty, so there is nothing to verify"
    return None


def survey(left: torch.Tensor, right: torch.Tensor) -> Survey | str:
    """Look over two flat tensors of equal length; what is not finite is told in a sentence."""
    largest = largest_ref = worst = 0.0
    broken = broken_ref = 0
    for a, b in _slices(left, right):
        broken += int((~torch.isfinite(a)).sum())
        broken_ref += int((~torch.isfinite(b)).sum())
        largest = max(largest, float(a.abs().max()))
        largest_ref = max(largest_ref, float(b.abs().max()))
        worst = max(worst, float((a - b).abs().max()))
    if broken or broken_ref:
        return (
            f"{broken} of {left.numel()} output values and {broken_ref} reference values "
            "are not finite"
        )
    return Survey(largest, largest_ref, worst)


def compare(out: torch.Tensor, ref: torch.Tensor, threshold: float) -> Comparison:
    """Compare ``out`` with ``ref`` (equal shapes, any device, any real dtypes).

    Passes when both are finite, the cosine similarity is at least ``threshold`` and the norms
    agree within 1 %. Two all-zero tensors are equal; one of them all-zero is a failure, and so are
    empty ones, complex against real and bool against floating-point.
    Raises ``ValueError`` for a threshold outside (0, 1].
    """
    threshold = float(threshold)
    if not 0.0 < threshold <= 1.0:
        raise ValueError(f"threshold {threshold} is not in (0, 1]; write the least cosine, 0.99999")
    names = ("one_minus_cosine", "norm_ratio", "max_abs_error")
    reason = unlike(out, ref)
    if reason is not None:
        return refused(reason, *names)
    left, right = numbers(out).reshape(-1), numbers(ref).reshape(-1)
    seen = survey(left, right)
    if isinstance(seen, str):
        return refused(seen, *names)
    if seen.largest == 0.0 and seen.largest_ref == 0.0:
        return Comparison(True, 0.0, None, dict(zip(names, (0.0, None, seen.worst), strict=True)))
    if seen.largest == 0.0 or seen.largest_ref == 0.0:
        reason = f"the {'output' if seen.largest == 0.0 else 'reference'} is all zero"
        return Comparison(
            False, 1.0, reason, dict(zip(names, (1.0, None, seen.worst), strict=True))
        )
    dot = left_square = right_square = 0.0
    for a, b in _slices(left, right):
        a, b = a / seen.largest, b / seen.largest_ref
        dot += float(torch.dot(a, b))
        left_square += float(torch.dot(a, a))
        right_square += float(torch.dot(b, b))
    # Rounding can put the cosine a hair above one.
    difference = 1.0 - dot / math.sqrt(left_square * right_square)
    difference = 0.0 if difference < 0.0 else difference
    ratio = math.sqrt(left_square / right_square) * (seen.largest / seen.largest_ref)
    reason = _judge(difference, ratio, threshold)
    figures = dict(zip(names, (difference, ratio, seen.worst), strict=True))
    return Comparison(reason is None, difference, reason, figures)


def _slices(left: torch.Tensor, right: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Both tensors in float64, a slice at a time, on the device of ``left``."""
    for start in range(0, left.numel(), _SLICE):
        a = left[start : start + _SLICE].to(torch.float64)
        yield a, right[start : start + _SLICE].to(a.device, torch.float64)


def _judge(difference: float, ratio: float, threshold: float) -> str | None:
    if not difference <= 1.0 - threshold:
        return f"1 - cosine is {difference:.2e}, allowed is {1.0 - threshold:.2e}"
    if not abs(ratio - 1.0) <= NORM_TOLERANCE:
        return f"the output's norm is {ratio:.4g} times the reference's, allowed is 1 % off"
    return None
