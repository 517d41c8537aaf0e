"""The tables of the suite on a device, from records given: nothing here is timed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"
sys.path.insert(0, str(BENCH))

import device  # noqa: E402
import testall  # noqa: E402
from common.errors import Failed  # noqa: E402


def record(op: str, status: str = "PASSED", **known: Any) -> dict[str, Any]:
    """A record as far as the table reads it; half of the bandwidth unless told otherwise."""
    clocks = {"sm_clock_mhz": 1980, "temperature_c": 40}
    timer = {"median": 2e-5, "mean": 2e-5, "noise": 0.01}
    roofline = {"bandwidth_fraction": 0.5, "bound": "memory", "fraction": 0.5}
    return {
        "op": op,
        "case_id": op,
        "status": status,
        "started": "2026-01-01T00:00:00Z",
        "parameters": {},
        "summaries": {"dtype": "float16", "Shape": "(1 2)"},
        "timers": {"cold_gpu": timer, "batch_gpu": None},
        "rates": {"bytes_per_second": 1e12},
        "flops": None,
        "repeats": 5,
        "repeat_spread": 0.002,
        "roofline": {**roofline, "peak_bandwidth": 2e12, "source": "data sheet"},
        "flags": [],
        "device": {"kind": "cuda", "name": "NVIDIA X1"},
        "environment": {
            "driver": "1",
            "python": "3",
            "torch": "2",
            "nvbench": None,
            "board": {"after": clocks},
        },
        "sampling": {"mode": "adaptive", "criterion": "entropy"},
        "library": None,
        "error": None
        if status == "PASSED"
        else {"message": "why (/a/b) not; folders searched: /c"},
        **known,
    }


def test_a_slow_row_without_a_reason_is_a_problem() -> None:
    text, problems = device.render([record("new_one"), record("swap_blocks")])
    assert problems == ["new_one (1 2): 50%"]
    assert "| new_one     | (1 2) | 50%   |" in text and "bound by the bus" in text
    assert "2 operators verified and measured, 2 cases in all: 2 PASSED." in text


def test_what_was_not_measured_is_told_and_only_faults_are_problems() -> None:
    fast = record("fast", roofline={"bandwidth_fraction": 0.9, "bound": "memory", "fraction": 0.9})
    lost = record("lost", "UNAVAILABLE")
    text, problems = device.render([fast, lost, record("bad", "FAILED")])
    assert problems == ["bad: FAILED: why"]
    assert "## Bandwidth-bound" not in text
    assert "/a/b" not in text and "/c" not in text
    assert "| lost     | (1 2) | UNAVAILABLE | why |" in text


def test_a_later_record_of_a_case_replaces_the_earlier_one(tmp_path: Path) -> None:
    for number in (1, 2):
        text = json.dumps(record("a", repeats=number))
        (tmp_path / f"{number}.jsonl").write_text(text + "\n")
    (found,) = device._read([tmp_path / "1.jsonl", tmp_path / "2.jsonl"])
    assert found["repeats"] == 2
    with pytest.raises(Failed, match=r"3\.jsonl: there are no records"):
        device._read([tmp_path / "3.jsonl"])


def one(way: str, seconds: float, median: float, spread: float | None = None) -> dict[str, Any]:
    rows = {
        f"op{number}": {"status": "PASSED", "median": median, "spread": spread}
        for number in range(20)
    }
    environment = {"torch": "2", "nvbench": None, "driver": "1"}
    return {
        "way": way,
        "gpus": 1,
        "seconds": seconds,
        "rows": rows,
        "device": "X1",
        "environment": environment,
        "library": None,
    }


@pytest.mark.parametrize(
    ("single", "five", "median", "spread", "broken"),
    [
        (10, 40, 1.005, 0.0, []),
        (10, 40, 1.03, 0.04, []),
        (10, 40, 1.03, 0.02, ["medians within max(1 %, repeat spread)"]),
        (13, 40, 1.0, 0.0, ["1 repeat: times faster"]),
        (10, 51, 1.0, 0.0, ["5 repeats: times faster"]),
    ],
)
def test_promises_of_testall(
    single: float, five: float, median: float, spread: float, broken: list[str]
) -> None:
    passes = [
        one(testall.ESTABLISHED, 100, 1.0),
        one(testall.ONE, single, 1.0),
        one(testall.FIVE, five, median, spread),
    ]
    report = testall._report(passes)
    assert [promise.text for promise in report.promises if not promise.kept] == broken
    assert report.kept == (not broken)


def test_passes_that_are_missing_are_named() -> None:
    with pytest.raises(Failed, match="warm, 5 repeats"):
        testall._report([one(testall.ESTABLISHED, 1, 1.0), one(testall.ONE, 1, 1.0)])
