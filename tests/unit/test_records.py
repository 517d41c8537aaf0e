"""A record's own content decides what it may call itself."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from orchestrator.records import Record, Status, judged, parse_line

GOOD: dict[str, Any] = {
    "schema": "mxfleet-result/1",
    "record_id": "1",
    "suite": "mcoplib",
    "op": "op",
    "status": "PASSED",
    "device": {"kind": "cuda", "name": "NVIDIA H200"},
    "verification": {"passed": True, "metrics": {"one_minus_cosine": 1e-7, "norm_ratio": None}},
    "timers": {"cold_gpu": {"mean": 1e-5, "median": 1e-5}, "cpu": {"mean": 2e-5}},
}
CPU = {"kind": "cpu", "name": "Xeon"}
NAN, INF = math.nan, math.inf


def metrics(value: float) -> dict[str, Any]:
    return {"verification": {"passed": True, "metrics": {"one_minus_cosine": value}}}


def cold(**values: Any) -> dict[str, Any]:
    return {"timers": {"cold_gpu": values}}


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "PASSED"),
        ({"device": CPU, "timers": {"cpu": {"mean": 1e-5}}}, "PASSED"),
        ({"device": CPU, "timers": {"cpu": {"mean": 1e-5}, "cold_gpu": {}}}, "PASSED"),
        (cold(median=1e-5), "PASSED"),
        ({"verification": {"passed": True}}, "PASSED"),
        # not verified
        ({"verification": {"passed": False}}, "FAILED"),
        ({"verification": {"passed": False}, "timers": {}}, "FAILED"),
        ({"verification": None}, "UNVERIFIED"),
        (metrics(NAN), "FAILED"),
        (metrics(INF), "FAILED"),
        (metrics(-INF), "FAILED"),
        # not measured
        ({"timers": {}}, "ERROR"),
        ({"timers": {"cpu": {"mean": 1e-5}}}, "ERROR"),  # a GPU's time is what counts there
        ({"timers": {"batch_gpu": {"mean": 1e-5}}}, "ERROR"),
        ({"device": CPU, "timers": {}}, "ERROR"),
        ({"device": CPU, "timers": {"cpu": {}}}, "ERROR"),
        ({"device": CPU, "timers": {"cpu": {"mean": 0.0}}}, "ERROR"),
        (cold(), "ERROR"),
        (cold(samples=100, noise=0.1), "ERROR"),
        (cold(mean=0.0), "ERROR"),
        (cold(mean=-1e-5), "ERROR"),
        (cold(mean=NAN), "ERROR"),
        (cold(mean=INF), "ERROR"),
        (cold(mean=NAN, median=1e-5), "ERROR"),
        (cold(mean=1e-5, median=-5.0), "ERROR"),
        (cold(mean=1e-5, max=INF), "ERROR"),
        ({"timers": {**GOOD["timers"], "cpu": {"mean": -1.0}}}, "ERROR"),
        ({"timers": {**GOOD["timers"], "batch_gpu": {"mean": NAN}}}, "ERROR"),
        ({"verification": None, "timers": {}}, "ERROR"),
        # only verified: then no time is missed, but all else
        ({"measured": False, "timers": {}}, "PASSED"),
        ({"measured": False, "timers": {}, "verification": None}, "UNVERIFIED"),
        ({"measured": False, "timers": {}, "verification": {"passed": False}}, "FAILED"),
        ({"measured": False, "timers": {}, **metrics(NAN)}, "FAILED"),
        ({"measured": False, "timers": {}, "device": None}, "ERROR"),
        ({"measured": False, **cold(mean=-1.0)}, "ERROR"),
        # on nothing
        ({"device": None}, "ERROR"),
        ({"device": {"kind": "cuda", "name": " "}}, "ERROR"),
        # what says itself that it did not pass
        ({"status": "UNVERIFIED", "verification": None}, "UNVERIFIED"),
        ({"status": "UNVERIFIED"}, "UNVERIFIED"),
        ({"status": "UNVERIFIED", "verification": {"passed": False}}, "FAILED"),
        ({"status": "UNVERIFIED", "verification": None, "timers": {}}, "ERROR"),
        ({"status": "UNAVAILABLE", "timers": {}, "device": None}, "UNAVAILABLE"),
        ({"status": "TIMEOUT"}, "TIMEOUT"),
    ],
)
def test_what_a_record_may_call_itself(changes: dict[str, Any], status: str) -> None:
    record = parse_line(json.dumps({**GOOD, **changes}))
    found = judged(record)
    assert found.status is Status(status)
    if found.status is not record.status:
        assert found.error is not None and found.error.type == status and found.error.message
    else:
        assert found == record
    assert judged(found) == found
    again = parse_line(found.to_line())
    assert judged(again).status is found.status


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_line_is_json_for_everybody(value: float) -> None:
    record = Record.model_validate({**GOOD, **cold(mean=value), "power": [{"mean": value}]})

    def refuse(word: str) -> None:
        raise AssertionError(word)

    json.loads(record.to_line(), parse_constant=refuse)
    mean = parse_line(record.to_line()).timers.cold_gpu
    assert mean is not None and repr(mean.mean) == repr(value)


JUDGED_BY: dict[str, Any] = {
    "repeats": 5,
    "repeat_spread": 0.004,
    "sampling": {"mode": "adaptive", "criterion": "entropy", "repeats": 5, "medians": [1e-5] * 5},
    "roofline": {
        "bandwidth_fraction": 0.8,
        "flops_fraction": None,
        "bound": "memory",
        "fraction": 0.8,
        "peak_bandwidth": 4.8e12,
        "peak_flops": None,
        "source": "data sheet",
    },
    "known_failure": {"reason": "a bug", "expires": "2030-01-01", "expired": False},
    "verification": {
        "passed": True,
        "metrics": {},
        "poisoned": True,
        "own_check": False,
        "overruled": [],
        "worst": [
            {
                "output": None,
                "reason": "off",
                "shape": [2, 3],
                "expected_shape": [2, 3],
                "dtype": "float16",
                "expected_dtype": "float16",
                "elements": [
                    {
                        "index": [0, 2],
                        "got": got,
                        "expected": 2**62,
                        "abs_error": None,
                        "rel_error": 0.5,
                    }
                    for got in (1, 1.0, True, "nan")
                ],
            }
        ],
        "thresholds": [
            {"check": "cosine", "threshold": 0.99, "reason": None, "outside_rules": True}
        ],
    },
    "environment": {
        "board": {"before": {"power_w": 70.5}, "after": None, "foreign": [None]},
        "commit": None,
        "device_expected": "the config is for Y, this device is X",
    },
}


def add_unknown(value: Any) -> Any:
    """``value`` with a key that nobody knows in every mapping but that of metrics."""
    if isinstance(value, dict):
        known = {k: item if k == "metrics" else add_unknown(item) for k, item in value.items()}
        return {**known, "newer": [{"x": 1}]}
    return [add_unknown(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("key", JUDGED_BY)
def test_every_key_survives_with_unknown_ones_inside(key: str) -> None:
    """Through reading and writing, twice."""
    sent = {**GOOD, key: add_unknown(JUDGED_BY[key]), "newer": [{"x": 1}]}
    back = json.loads(parse_line(parse_line(json.dumps(sent)).to_line()).to_line())
    assert back[key] == sent[key]
    assert back["newer"] == sent["newer"]


@pytest.mark.parametrize("key", ["sampling", "roofline", "known_failure"])
def test_an_older_harness_says_nothing_of_it(key: str) -> None:
    assert json.loads(parse_line(json.dumps(GOOD)).to_line())[key] is None
