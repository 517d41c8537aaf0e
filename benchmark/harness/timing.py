"""One timer's distribution over its samples, in seconds, as the record holds it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TypedDict


class Timer(TypedDict):
    """Seconds; ``noise`` is the standard deviation relative to the mean; None where unknown."""

    mean: float | None
    median: float | None
    min: float | None
    max: float | None
    q25: float | None
    q75: float | None
    noise: float | None
    samples: int | None


def unknown() -> Timer:
    """A timer of which nothing is known yet."""
    return Timer(
        mean=None, median=None, min=None, max=None, q25=None, q75=None, noise=None, samples=None
    )


def summarise(samples: Sequence[float]) -> Timer:
    """Describe ``samples`` (seconds a call, at least one); noise and quartiles need two."""
    timer = unknown()
    timer["samples"] = len(samples)
    timer["mean"] = statistics.fmean(samples)
    timer["median"] = statistics.median(samples)
    timer["min"] = min(samples)
    timer["max"] = max(samples)
    if len(samples) > 1:
        timer["q25"], _, timer["q75"] = statistics.quantiles(samples, n=4, method="inclusive")
        timer["noise"] = statistics.stdev(samples) / timer["mean"] if timer["mean"] else None
    return timer
