"""Warming up until times are steady, how many samples are taken, and what is said of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest
import torch
from core import timing

CPU = torch.device("cpu")


def _sleeper(seconds: Iterator[float]) -> timing.Launch:
    out = torch.zeros(1)

    def launch() -> torch.Tensor:
        time.sleep(next(seconds))
        return out

    return launch


def test_numbers_that_are_given_are_kept_exactly() -> None:
    calls = itertools.count()
    out = torch.zeros(1)

    def launch() -> torch.Tensor:
        next(calls)
        return out

    found = timing.measure(launch, CPU, warmup=3, repeats=4)
    assert next(calls) == 3 + 4
    assert (len(found.samples), found.warmup, found.steady) == (4, 3, None)


def test_warm_up_ends_when_times_no_longer_change() -> None:
    # Falls by a tenth a call for forty calls, then stays.
    times = iter([0.9 ** min(call, 40) for call in range(1000)])
    assert timing._warm_up(lambda: next(times), None) == (50, True)
    assert next(times) == 0.9**40


def test_warm_up_of_what_never_settles_ends() -> None:
    times = iter([1.1**call for call in range(1000)])
    spent, steady = timing._warm_up(lambda: next(times), None)
    assert (spent, steady) == (100, False)


def test_there_are_ten_samples_at_least_and_a_thousand_at_most() -> None:
    assert not timing._enough(9, 100.0, None)
    assert timing._enough(10, 0.3, None)
    assert not timing._enough(999, 0.1, None)
    assert timing._enough(1000, 0.0, None)
    assert timing._enough(1, 0.0, 0), "at least one"


def test_a_launch_of_the_cpu_is_timed_by_the_clock_and_not_called_cold() -> None:
    found = timing.measure(
        _sleeper(itertools.repeat(0.002)), CPU, cold=True, timer="events", warmup=1, repeats=5
    )
    assert (found.timer, found.cold, found.graph, found.flushed_bytes) == ("cpu", False, False, 0)
    assert all(sample >= 0.002 for sample in found.samples)
    assert found.summary["median"] == pytest.approx(found.median)
    assert found.summary["q25"] is not None
