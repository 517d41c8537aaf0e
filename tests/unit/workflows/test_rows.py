"""From a record to a line of the table: all that judges a measurement is on it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.errors import ExitCode
from orchestrator.inventory.model import Host, Target
from orchestrator.plan.jobs import PlannedJob
from orchestrator.records import Status, parse_line
from orchestrator.workflows.collect import Done, row_of
from orchestrator.workflows.interpret import Verdict

ROOFLINE = {
    "bandwidth_fraction": 0.8,
    "flops_fraction": 0.1,
    "bound": "memory",
    "fraction": 0.8,
    "peak_bandwidth": 4.8e12,
    "peak_flops": 9.9e14,
    "source": "data sheet",
}
LIBRARY = {"name": "vllm", "version": "0.22.0", "path": "/v.so", "sha256": "ab" * 32}
INSIDE = {"check": "cosine", "threshold": 0.999999, "reason": None, "outside_rules": False}
OUTSIDE = {"check": "cosine", "threshold": 0.99, "reason": "fp8", "outside_rules": True}
KNOWN = {"reason": "a bug", "expires": "2030-01-01", "expired": False}
ODD = "the config is for MetaX C500, this device is NVIDIA H200"
WHOLE: dict[str, Any] = {
    "schema": "mxfleet-result/1",
    "record_id": "1",
    "suite": "mcoplib",
    "op": "op",
    "status": "PASSED",
    "flags": ["LAUNCH_BOUND"],
    "device": {"kind": "cuda", "name": "NVIDIA H200"},
    "verification": {
        "passed": True,
        "metrics": {},
        "thresholds": [INSIDE, OUTSIDE],
        "own_check": True,
        "overruled": ["bad row"],
    },
    "timers": {"cold_gpu": {"mean": 3e-5, "median": 2e-5, "noise": 0.01}},
    "repeats": 5,
    "repeat_spread": 0.004,
    "flops": 1000,
    "roofline": ROOFLINE,
    "library": LIBRARY,
    "known_failure": KNOWN,
    "environment": {"device_expected": ODD},
}
PLACE = Target("t", Host("t"))


def row(target: Target = PLACE, **changes: Any) -> dict[str, Any]:
    record = parse_line(json.dumps({**WHOLE, **changes}))
    job = PlannedJob(target, "op", "job", {})
    done = Done(job, Verdict(Status.PASSED, ExitCode.OK, None, (record,)))
    return json.loads(json.dumps(row_of(record, done, None).as_dict()))


def test_all_of_it_is_on_the_row() -> None:
    found = row()
    expected = {
        "seconds": 2e-5,
        "timer": "cold_gpu",
        "noise": 0.01,
        "repeats": 5,
        "repeat_spread": 0.004,
        "flops_per_second": 1000 / 2e-5,
        "roofline": ROOFLINE,
        "flags": ["LAUNCH_BOUND"],
        "thresholds": [OUTSIDE],
        "own_check": True,
        "overruled": ["bad row"],
        "device": "NVIDIA H200",
        "device_mismatch": ODD,
        "library": LIBRARY,
        "known_failure": KNOWN,
    }
    assert {key: found[key] for key in expected} == expected


def test_one_that_was_only_verified_has_no_time_and_its_worst_elements() -> None:
    element = {"index": [3, 7], "got": "nan", "expected": 2.0, "abs_error": None, "rel_error": None}
    output = {
        "output": "out",
        "reason": "not finite",
        "shape": [8, 16],
        "expected_shape": [8, 16],
        "dtype": "float16",
        "expected_dtype": "float16",
        "elements": [element],
    }
    found = row(
        status="FAILED",
        measured=False,
        timers={},
        parameters={"dtype": "float16"},
        verification={"passed": False, "worst": [output]},
    )
    assert (found["status"], found["accuracy"], found["dtype"]) == ("FAILED", "No", "float16")
    assert (found["seconds"], found["repeats"]) == (None, None)
    assert found["worst"] == [output]


def test_a_dtype_that_is_swept_is_nobodys() -> None:
    assert row(parameters={"dtype": ["float16", "float32"]})["dtype"] is None


@pytest.mark.parametrize(
    ("changes", "unknown"),
    [
        ({"timers": {}}, ["seconds", "repeats", "repeat_spread", "flops_per_second"]),
        ({"flops": None}, ["flops_per_second"]),
        ({"flops": 0}, ["flops_per_second"]),
        ({"roofline": None, "library": None}, ["roofline", "library"]),
        ({"verification": None}, ["accuracy"]),
        ({"environment": {}}, ["device_mismatch"]),
        ({"device": None}, ["device", "device_mismatch"]),
    ],
)
def test_what_is_unknown_stays_so(changes: dict[str, Any], unknown: list[str]) -> None:
    found = row(**changes)
    assert {key: found[key] for key in unknown} == dict.fromkeys(unknown)


def test_the_inventory_expects_a_model_too() -> None:
    found = row(Target("t", Host("t"), model="C500"), environment={})
    assert found["device_mismatch"] == (
        "measured on NVIDIA H200, but the inventory expects model C500 here"
    )
