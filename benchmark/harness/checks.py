"""Compare an output with its reference so that a wrong kernel cannot pass.

Cosine similarity alone is blind to scale, shape and, through NaN comparisons, to broken values.
Everything is computed in float64, in slices: checking a large tensor takes little memory.
"""

from __future__ import annotations

import math
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
            "norm_ratio": self.norm_ratio,
            "max_abs_error": self.max_abs_error,
        }


def _refused(reason: str) -> Comparison:
    return Comparison(False, math.nan, None, None, reason)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.reshape(-1)


def compare(out: torch.Tensor, ref: torch.Tensor, threshold: float) -> Comparison:
    """Compare ``out`` with ``ref`` (any dtype, any device, equal shapes).

    Passes when both are finite, the cosine similarity is at least ``threshold`` and the norms
    agree within 1 %. Two all-zero tensors are equal; one of them all-zero is a failure.
    """
    if out.shape != ref.shape:
        return _refused(f"shape {tuple(out.shape)} where the reference has {tuple(ref.shape)}")
    left, right = _flat(out), _flat(ref)
    dot = left_square = right_square = worst = 0.0
    broken = broken_ref = 0
    for start in range(0, left.numel(), _SLICE):
        a = left[start : start + _SLICE].to(torch.float64)
        b = right[start : start + _SLICE].to(a.device, torch.float64)
        broken += int((~torch.isfinite(a)).sum())
        broken_ref += int((~torch.isfinite(b)).sum())
        dot += float(torch.dot(a, b))
        left_square += float(torch.dot(a, a))
        right_square += float(torch.dot(b, b))
        worst = max(worst, float((a - b).abs().max()))
    if broken or broken_ref:
        return _refused(
            f"{broken} of {left.numel()} output values and {broken_ref} reference values "
            "are not finite"
        )
    return _judge(dot, math.sqrt(left_square), math.sqrt(right_square), worst, threshold)


def _judge(dot: float, left: float, right: float, worst: float, threshold: float) -> Comparison:
    if left == 0.0 and right == 0.0:
        return Comparison(True, 0.0, None, worst, None)
    if left == 0.0 or right == 0.0:
        which = "output" if left == 0.0 else "reference"
        return Comparison(False, 1.0, None, worst, f"the {which} is all zero")
    # Rounding can put the cosine a hair above one.
    difference = max(0.0, 1.0 - dot / (left * right))
    ratio = left / right
    reason = None
    if difference > 1.0 - threshold:
        reason = f"1 - cosine is {difference:.2e}, allowed is {1.0 - threshold:.2e}"
    elif abs(ratio - 1.0) > NORM_TOLERANCE:
        reason = f"the output's norm is {ratio:.4g} times the reference's, allowed is 1 % off"
    return Comparison(reason is None, difference, ratio, worst, reason)
