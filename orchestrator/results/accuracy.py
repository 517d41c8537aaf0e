"""How far a verified output was from its reference, in the one number that a table has room for."""

from __future__ import annotations

from typing import NamedTuple

from orchestrator.records import Verification

# What a check is judged by, as metrics and thresholds name it, in the order of telling.
_JUDGED = (("one_minus_cosine", "cosine"), ("worst_row_error", "close"), ("mismatches", None))


class Distance(NamedTuple):
    """A metric, its worst value over the outputs of a case, and what it had to stay within.

    ``value`` is None where it could not be told, ``limit`` where the record does not say.
    """

    metric: str
    value: float | None
    limit: float | None


def distance_of(verification: Verification | None) -> Distance | None:
    """What a verification was decided by; None where nothing of it is known."""
    metrics = verification.metrics if verification is not None else {}
    if verification is None or not metrics:
        return None
    for metric, check in _JUDGED:
        # ``key_cache.one_minus_cosine``: of several outputs each has its own.
        values = [v for name, v in metrics.items() if name.rpartition(".")[2] == metric]
        if values:
            known = [value for value in values if value is not None]
            worst = max(known, key=abs) if len(known) == len(values) else None
            return Distance(metric, worst, _limit(verification, check))
    name, value = next(iter(metrics.items()))
    return Distance(name, value, None)


def _limit(verification: Verification, check: str | None) -> float | None:
    if check is None:
        return 0.0
    held = [t.threshold for t in verification.thresholds or () if t.check == check]
    limits = {limit for limit in held if limit is not None}
    if len(limits) != 1:
        return None  # held to several: which one is whose is not known
    (limit,) = limits
    if check == "cosine":
        return round(1.0 - limit, 12)  # 1 - 0.999999 is not quite a millionth
    return limit if limit < 1 else None  # of whole numbers it is in steps, not a part of a row
