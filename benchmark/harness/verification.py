"""What verification says of a runner, and how the record says it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness import markers

if TYPE_CHECKING:
    from harness.base import OpBenchmarkBase
    from harness.checks import Comparison

# Metrics that are 1 where all is well; the others are 0.
_RATIOS = ("norm_ratio", "worst_row_scale")
# Failed outputs that a record has the worst elements of.
MOST_OUTPUTS = 16


@dataclass(frozen=True)
class Verdict:
    """What verification said; ``passed`` None: there is no reference, or none was asked yet."""

    passed: bool | None = None
    difference: float = math.nan
    metrics: dict[str, float | None] = field(default_factory=dict)
    poisoned: bool = False
    reason: str | None = None
    # The limits outputs were held to, as the record has them.
    thresholds: list[dict[str, Any]] = field(default_factory=list)
    # Nothing was compared through the harness: the runner judged by itself.
    own_check: bool = False
    # Why comparisons failed that the runner passes over.
    overruled: list[str] = field(default_factory=list)
    # The outputs of comparisons that failed, with their worst elements.
    worst: list[dict[str, Any]] = field(default_factory=list)


def verify(runner: OpBenchmarkBase, op: str, dev_id: int) -> Verdict:
    """Run the runner's own verification and hold it to its contract."""
    seen = len(runner._noted.comparisons)
    answer = runner.run_verification(dev_id)
    synchronize(runner, dev_id)
    if answer is None:
        markers.warn(f"{op}: the runner has no reference, so its result is UNVERIFIED")
        return Verdict(None, math.nan, {}, False, None)
    verdict = _judge(runner, op, "run_verification", answer, seen)
    assert verdict.passed is not None
    markers.verify(op, verdict.passed, verdict.difference)
    _show_worst(verdict)
    return verdict


def verify_timed(runner: OpBenchmarkBase, op: str, dev_id: int) -> Verdict:
    """Hold the buffers that were timed to the same contract; ``passed`` None: not offered."""
    from harness.base import hook

    seen = len(runner._noted.comparisons)
    synchronize(runner, dev_id)
    answer = hook(runner, "verify_timed", dev_id)
    if answer is None:
        return Verdict()
    verdict = _judge(runner, op, "verify_timed", answer, seen)
    _show_worst(verdict)
    return verdict


def _show_worst(verdict: Verdict) -> None:
    for entry in () if verdict.passed else verdict.worst:
        markers.worst(entry)


def synchronize(runner: OpBenchmarkBase, dev_id: int) -> None:
    """Wait for the device, whatever the runner itself calls ``synchronize``."""
    from harness.base import OpBenchmarkBase

    OpBenchmarkBase.synchronize(runner, dev_id)


def _judge(runner: OpBenchmarkBase, op: str, method: str, answer: Any, seen: int) -> Verdict:
    """What ``method`` answered, and its comparisons: those that come after the first ``seen``."""
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise TypeError(f"{method} returned {answer!r}, not (passed, difference)")
    passed, difference = truth(answer[0], method), number(answer[1], method)
    comparisons = runner._noted.comparisons[seen:]
    reason = None
    reasons = [c.reason for c in comparisons if c.reason]
    overruled = reasons if passed else []
    if passed and not math.isfinite(difference):
        passed, reason = False, f"the runner calls a difference of {difference} a pass"
    elif not passed:
        reason = "; ".join(reasons) or f"the runner's own check refused it ({difference:.2e})"
    if overruled:
        markers.warn(f"{op}: the runner passes what the check refused: {'; '.join(overruled)}")
    metrics = worst_metrics([comparison.metrics() for comparison in comparisons])
    return Verdict(
        passed,
        difference,
        metrics or {"difference": difference if math.isfinite(difference) else None},
        runner._noted.poisoned,
        reason,
        _thresholds(comparisons, op),
        own_check=not comparisons,
        overruled=overruled,
        worst=_distinct(c.worst for c in comparisons if c.worst is not None),
    )


def _distinct(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each of the outputs once, as many as a record keeps."""
    kept: list[dict[str, Any]] = []
    for entry in entries:
        if entry not in kept:
            kept.append(entry)
    return kept[:MOST_OUTPUTS]


def _thresholds(comparisons: Sequence[Comparison], op: str) -> list[dict[str, Any]]:
    """Each different limit once; a warning for each outside the rules that has no reason."""
    entries: list[dict[str, Any]] = []
    for comparison in comparisons:
        limit = comparison.limit
        if limit is None or limit.entry() in entries:
            continue
        entries.append(limit.entry())
        if limit.outside_rules and limit.reason is None:
            markers.warn(
                f"{op}: {limit.check} {limit.threshold:g} is looser than the rules allow and the "
                "runner gives no reason; set threshold_reason, or tighten it"
            )
    return entries


def truth(value: Any, method: str) -> bool:
    """A bool, or a single one of torch or numpy; anything else, "False" say, is true by accident.

    Raises ``TypeError``.
    """
    if not isinstance(value, bool):
        dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
        if str(dtype) not in ("bool", "torch.bool") or shape is None or tuple(shape):
            raise TypeError(f"{method} returned {value!r} for passed, which is no bool")
    return bool(value)


def number(value: Any, method: str) -> float:
    """A figure as float; raises ``TypeError`` for a text or a bool, which float() would take."""
    if isinstance(value, (str, bytes, bool)):
        raise TypeError(f"{method} returned {value!r} for the difference, not a number")
    return float(value)


def worst_metrics(several: Sequence[dict[str, float | None]]) -> dict[str, float | None]:
    """The worst figure of each kind over ``several``; None where one had no value."""
    metrics: dict[str, float | None] = {}
    for one in several:
        for name, value in one.items():
            if name not in metrics:
                metrics[name] = value
                continue
            other = metrics[name]
            centre = 1.0 if name.endswith(_RATIOS) else 0.0
            if value is None or other is None:
                metrics[name] = None
            elif abs(value - centre) > abs(other - centre):
                metrics[name] = value
    return metrics


def as_record(verdict: Verdict) -> dict[str, Any]:
    if verdict.passed is None:
        return {"verification": None}
    shown = f"{verdict.difference:.2e}" if math.isfinite(verdict.difference) else None
    return {
        "verification": {
            "passed": verdict.passed,
            "metrics": verdict.metrics,
            "poisoned": verdict.poisoned,
            "thresholds": verdict.thresholds,
            "own_check": verdict.own_check,
            "overruled": verdict.overruled,
            "worst": verdict.worst,
        },
        "cos_dist": shown,
    }


def merged(several: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first of several verifications in a record, with the worst figures of all of them.

    What was held to a loose limit or passed over in any of them is told.
    """
    together = dict(several[0])
    together["metrics"] = worst_metrics([one["metrics"] for one in several])
    for key in ("thresholds", "overruled"):
        together[key] = []
        for entry in (entry for one in several for entry in one.get(key, ())):
            if entry not in together[key]:
                together[key].append(entry)
    together["worst"] = _distinct(entry for one in several for entry in one.get("worst", ()))
    return together
