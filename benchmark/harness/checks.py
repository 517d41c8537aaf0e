"""Compare an output with its reference so that a wrong kernel cannot pass.

Cosine similarity alone is blind to scale, shape and, through NaN comparisons, to broken values.
Everything is computed in float64, in slices: checking a large tensor takes little memory. Each side
is divided by its largest magnitude first, so that no square overflows or vanishes. Limits are
tested as ``not (x <= limit)``: what is no number does not pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

# Elements a slice: 32 MiB of float64 for each side.
_SLICE = 1 << 22
NORM_TOLERANCE = 0.01


@dataclass(frozen=True)
class Comparison:
    """What comparing showed; ``difference`` is 1 - cosine (NaN where it has no meaning)."""

    passed: bool
    difference: float
    norm_ratio: float | None
    max_abs_error: float | None
    reason: str | None

    def metrics(self) -> dict[str, float | None]:
        """The figures by the names the record uses."""
        return {
            "one_minus_cosine": self.difference if math.isfinite(self.difference) else None,
            "norm_ratio": _finite(self.norm_ratio),
            "max_abs_error": _finite(self.max_abs_error),
        }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _refused(reason: str) -> Comparison:
    return Comparison(False, math.nan, None, None, reason)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.reshape(-1)


def _comparable(out: torch.dtype, ref: torch.dtype) -> bool:
    """Whether values of the two say the same: an int8 output may have a reference in float32."""
    if out.is_complex or ref.is_complex:
        return out.is_complex and ref.is_complex
    with_bool = torch.bool in (out, ref)
    return not (with_bool and (out.is_floating_point or ref.is_floating_point))


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
    if out.shape != ref.shape:
        return _refused(f"shape {tuple(out.shape)} where the reference has {tuple(ref.shape)}")
    if not _comparable(out.dtype, ref.dtype):
        return _refused(
            f"{out.dtype} output against a {ref.dtype} reference; convert with ref.to(out.dtype)"
        )
    left, right = _flat(out), _flat(ref)
    if left.numel() == 0:
        return _refused("the output is empty, so there is nothing to verify")
    largest = largest_ref = worst = 0.0
    broken = broken_ref = 0
    for a, b in _slices(left, right):
        broken += int((~torch.isfinite(a)).sum())
        broken_ref += int((~torch.isfinite(b)).sum())
        largest = max(largest, float(a.abs().max()))
        largest_ref = max(largest_ref, float(b.abs().max()))
        worst = max(worst, float((a - b).abs().max()))
    if broken or broken_ref:
        return _refused(
            f"{broken} of {left.numel()} output values and {broken_ref} reference values "
            "are not finite"
        )
    if largest == 0.0 and largest_ref == 0.0:
        return Comparison(True, 0.0, None, worst, None)
    if largest == 0.0 or largest_ref == 0.0:
        which = "output" if largest == 0.0 else "reference"
        return Comparison(False, 1.0, None, worst, f"the {which} is all zero")
    dot = left_square = right_square = 0.0
    for a, b in _slices(left, right):
        a, b = a / largest, b / largest_ref
        dot += float(torch.dot(a, b))
        left_square += float(torch.dot(a, a))
        right_square += float(torch.dot(b, b))
    # Rounding can put the cosine a hair above one.
    difference = 1.0 - dot / math.sqrt(left_square * right_square)
    difference = 0.0 if difference < 0.0 else difference
    ratio = math.sqrt(left_square / right_square) * (largest / largest_ref)
    return _judge(difference, ratio, worst, threshold)


def _slices(left: torch.Tensor, right: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Both tensors in float64, a slice at a time, on the device of ``left``."""
    for start in range(0, left.numel(), _SLICE):
        a = left[start : start + _SLICE].to(torch.float64)
        yield a, right[start : start + _SLICE].to(a.device, torch.float64)


def _judge(difference: float, ratio: float, worst: float, threshold: float) -> Comparison:
    reason = None
    if not difference <= 1.0 - threshold:
        reason = f"1 - cosine is {difference:.2e}, allowed is {1.0 - threshold:.2e}"
    elif not abs(ratio - 1.0) <= NORM_TOLERANCE:
        reason = f"the output's norm is {ratio:.4g} times the reference's, allowed is 1 % off"
    return Comparison(reason is None, difference, ratio, worst, reason)
