"""Compare an output with the reference, row by row; NaN never passes.

A row is the last dimension: one query head's output, one row of a matrix product. Each is held to
its own magnitude (``harness.elements``), so that one wrong row in a million does not average away.
Before the call that is checked the output's memory is filled with NaN (``poisoned``), so that
what a kernel does not write is found, and so is a result that was left there by another backend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from harness import elements, storage, verification

# Largest error relative to the largest magnitude of a row, by what the kernel computes in. 16 bit:
# a rounded output, rounded probabilities and another order of summing. FP8 and FP4: the operands
# are given to both sides as quantised, but kernels round the probabilities to the same few bits.
LIMITS = {"fp64": 1e-10, "fp32": 1e-4, "fp16": 5e-3, "bf16": 2e-2, "fp8": 1e-1, "fp4": 1e-1}


@dataclass(frozen=True)
class Verdict:
    """What checking said; ``passed`` None: there was nothing to check against."""

    passed: bool | None
    reason: str | None
    metrics: dict[str, float | None]
    poisoned: bool
    limit: float | None

    def as_record(self) -> dict[str, Any] | None:
        """The record's ``verification``."""
        if self.passed is None:
            return None
        limit = {"check": "close", "threshold": self.limit, "reason": None, "outside_rules": False}
        return {
            "passed": self.passed,
            "metrics": self.metrics,
            "poisoned": self.poisoned,
            "thresholds": [limit],
        }


def unverified(reason: str) -> Verdict:
    """The verdict where there is no reference to hold the output against."""
    return Verdict(None, reason, {}, False, None)


def check(
    out: torch.Tensor,
    ref: torch.Tensor,
    compute: str,
    *,
    poisoned: bool,
    limit: float | None = None,
) -> Verdict:
    """Hold ``out`` against ``ref`` (equal shapes; ``ref`` at least as fine a dtype).

    ``compute`` is the class of ``LIMITS`` that the kernel computes in, ``limit`` one of the
    scenario's own. Anything not finite on either side fails.
    """
    allowed = LIMITS[compute] if limit is None else limit
    found = elements.close(out, ref, allowed)
    return Verdict(found.passed, found.reason, found.metrics(), poisoned, allowed)


def fresh_output(launch: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, bool]:
    """An output of ``launch``, and whether it was written over poison.

    The first call's output is poisoned and given back to the allocator, which hands the same
    memory to the second call; kernels that keep their output write over the poison anyway. Where
    the second output lies elsewhere, nobody knows what lay there: not poisoned.
    """
    first = launch()
    storage.poison(first)
    place = first.data_ptr()
    del first
    second = launch()
    return second, second.data_ptr() == place


def worse(one: Verdict, other: Verdict) -> Verdict:
    """Both verdicts of one case in one: passed only when both did, with the worst figures."""
    passed = None if one.passed is None or other.passed is None else one.passed and other.passed
    metrics = verification.worst_metrics([one.metrics, other.metrics])
    reason = one.reason or other.reason
    return Verdict(passed, reason, metrics, one.poisoned and other.poisoned, one.limit)
