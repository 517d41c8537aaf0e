"""``runner.verify``: the checks a runner holds its outputs to, remembered for the record."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import torch

from harness import elements, selection, storage, thresholds, worst
from harness.checks import Comparison, compare
from harness.thresholds import Limit

if TYPE_CHECKING:
    from harness.base import OpBenchmarkBase


class Verify:
    """Checks bound to one runner.

    Each returns (passed, difference), notes the comparison with the runner and never
    raises for a wrong result. ``name`` names the tensor in reasons and metrics. All raise
    ``ValueError`` when output and reference share memory: the comparison would prove nothing.
    """

    def __init__(self, runner: OpBenchmarkBase) -> None:
        self._runner = runner

    def exact(
        self, out: torch.Tensor, ref: torch.Tensor, *, name: str | None = None
    ) -> tuple[bool, float]:
        """Bit for bit: shape, dtype, NaN payloads, negative zeros; the difference is 0.0 or 1.0."""
        _apart(out, ref, name)
        return self._note(elements.exact(out, ref), name, None, (out, ref), "bits")

    def close(
        self,
        out: torch.Tensor,
        ref: torch.Tensor,
        *,
        limit: float | None = None,
        reason: str | None = None,
        name: str | None = None,
    ) -> tuple[bool, float]:
        """The worst row (last dimension) within ``limit``; see ``elements.close``.

        ``limit``: largest error relative to the row's largest magnitude (integers: steps); by
        default what the dtype of ``out`` can hold. A larger one needs a ``reason``.
        ``ref``: the output's dtype, or a finer one.
        """
        _apart(out, ref, name)
        result = elements.close(out, ref, limit)
        held = self._close_limit(limit, out.dtype, reason)
        return self._note(result, name, held, (out, ref), "row")

    def cosine(
        self,
        out: torch.Tensor,
        ref: torch.Tensor,
        threshold: float = thresholds.COSINE,
        *,
        reason: str | None = None,
        name: str | None = None,
    ) -> tuple[bool, float]:
        """Cosine similarity of at least ``threshold`` and norms within 1 %; see ``checks.compare``.

        One wrong row among many passes: use ``close`` or ``exact`` too where the operator allows.
        A threshold below 0.999999 (quantised operators: 0.99) needs a ``reason``.
        """
        _apart(out, ref, name)
        result = compare(out, ref, threshold)
        outside = thresholds.cosine_outside(threshold, self._quantised(out, ref))
        held = self._limit("cosine", threshold, reason, outside)
        return self._note(result, name, held, (out, ref), "absolute")

    def topk(
        self,
        values: torch.Tensor | None,
        indices: torch.Tensor,
        scores: torch.Tensor,
        *,
        largest: bool = True,
        limit: float | None = None,
        reason: str | None = None,
        name: str | None = None,
    ) -> tuple[bool, float]:
        """The k best of each row in any order, any of tied ones; see ``selection.topk``.

        ``scores``: [rows, n], the reference's; ``indices`` and ``values``: [rows, k]; values may
        be None.
        """
        for given in (values, indices):
            if given is not None:
                _apart(given, scores, name)
        result = selection.topk(values, indices, scores, largest=largest, limit=limit)
        dtype = scores.dtype if values is None else values.dtype
        return self._note(result, name, self._close_limit(limit, dtype, reason), None, "row")

    def unordered(
        self,
        out: torch.Tensor,
        ref: torch.Tensor,
        *,
        limit: float | None = None,
        reason: str | None = None,
        name: str | None = None,
    ) -> tuple[bool, float]:
        """Rows (last dimension) equal as multisets: integers exactly, else as ``close``."""
        _apart(out, ref, name)
        result = selection.unordered(out, ref, limit)
        ranking: worst.Ranking = "row" if out.dtype.is_floating_point else "bits"
        held = self._close_limit(limit, out.dtype, reason)
        return self._note(result, name, held, (out, ref), ranking)

    def verdict(self) -> tuple[bool, float]:
        """Whether everything compared so far passed, and the worst difference.

        The difference is 1 - cosine where any comparison has one, for tables hold it against
        older ones; the others' figures are in the record. Raises ``ValueError`` when nothing was
        compared.
        """
        seen = self._runner._noted.comparisons
        if not seen:
            raise ValueError("verdict() before anything was compared; call close or exact first")
        cosines = [c.difference for c in seen if "one_minus_cosine" in c.figures]
        lost = any(math.isnan(comparison.difference) for comparison in seen)
        largest = max(cosines or [comparison.difference for comparison in seen])
        passed = all(comparison.passed for comparison in seen)
        return passed, math.nan if lost else largest

    def _note(
        self,
        result: Comparison,
        name: str | None,
        limit: Limit | None,
        tensors: tuple[torch.Tensor, torch.Tensor] | None,
        ranking: worst.Ranking,
    ) -> tuple[bool, float]:
        """Remember ``result``; of one that failed what of ``tensors`` (output, reference) is worst.

        The check may have compared something else in their place.
        """
        seen = None
        if not result.passed:
            held = limit.threshold if limit is not None and limit.check == "close" else None
            seen = worst.entry(name, result.reason, result.compared or tensors, ranking, held)
        reason = result.reason
        if reason is not None and name is not None:
            reason = f"{name}: {reason}"
        noted = dataclasses.replace(
            result, name=name, limit=limit, reason=reason, compared=None, worst=seen
        )
        self._runner._noted.comparisons.append(noted)
        return result.passed, result.difference

    def _quantised(self, *compared: torch.Tensor) -> bool:
        declared = self._runner.quantised
        if declared is not None:
            return declared
        narrow = any(t.dtype.itemsize == 1 and t.dtype is not torch.bool for t in compared)
        return narrow or thresholds.quantised_name(str(getattr(self._runner, "name", "")))

    def _close_limit(
        self, limit: float | None, dtype: torch.dtype, reason: str | None
    ) -> Limit | None:
        """What ``close`` held against; None for the dtype's default, which needs no mention."""
        if limit is None:
            return None
        return self._limit("close", limit, reason, limit > elements.usual_limit(dtype))

    def _limit(self, check: str, value: float, reason: str | None, outside: bool) -> Limit:
        reason = reason or (self._runner.threshold_reason if outside else None)
        return Limit(check, float(value), reason, outside)


def _apart(out: torch.Tensor, ref: torch.Tensor, name: str | None) -> None:
    if storage.overlaps(out, ref):
        raise ValueError(
            f"{name or 'the output'} shares memory with what it is compared with, so the check "
            "proves nothing; clone the reference, or its input, before the call"
        )
