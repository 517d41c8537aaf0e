"""``--strict``: what is undecided, or measured on another device, does not end well."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import ExitCode
from orchestrator.inventory.model import Host, Target
from orchestrator.records import Record, Status
from orchestrator.workflows.interpret import Verdict, verdict_of
from orchestrator.workflows.strictness import device_mismatch, strictly

ODD = "the config is for MetaX C500, this device is NVIDIA H200"


def target(model: str | None = None) -> Target:
    return Target("t", Host("t"), model=model)


def record(status: str = "PASSED", odd: Any = None, device: str | None = "NVIDIA H200") -> Record:
    return Record(
        schema="mxfleet-result/1",
        record_id="1",
        suite="mcoplib",
        op="op",
        status=Status(status),
        device=None if device is None else {"kind": "cuda", "name": device},
        environment={"device_expected": odd},
    )


@pytest.mark.parametrize(
    ("records", "model", "code", "refused"),
    [
        ([record()], None, 0, None),
        ([record()], "H200", 0, None),
        ([record("UNVERIFIED")], None, 6, None),
        ([record(), record("UNVERIFIED")], None, 6, None),
        ([record("FAILED"), record("UNVERIFIED")], None, 1, None),
        ([record("TIMEOUT"), record("UNVERIFIED")], None, 4, None),
        ([record(odd=ODD)], None, 3, ODD),
        ([record(), record("UNVERIFIED", odd=ODD)], None, 3, ODD),
        ([record("FAILED", odd=ODD)], None, 1, ODD),
        ([record()], "C500", 3, "measured on NVIDIA H200, but the inventory expects model C500"),
        ([record("ERROR", device=None)], "C500", 1, None),
    ],
)
def test_codes(records: list[Record], model: str | None, code: int, refused: str | None) -> None:
    verdict = verdict_of(records)
    found = strictly(verdict, target(model))
    assert (found.code, found.status, found.records) == (code, verdict.status, verdict.records)
    if refused is None:
        assert found.refused is None
    else:
        assert found.refused is not None and refused in found.refused.message
        assert found.refused.code is ExitCode.TARGET


def test_what_the_front_door_refused_stays() -> None:
    first = strictly(verdict_of([record(odd=ODD)]), target())
    again = strictly(
        Verdict(Status.PASSED, ExitCode.OK, None, (record(odd="other"),), first.refused), target()
    )
    assert again.refused is first.refused


@pytest.mark.parametrize("odd", [None, "", 7, ["x"], {"a": 1}])
def test_only_a_sentence_says_that_the_device_is_another(odd: Any) -> None:
    assert device_mismatch(record(odd=odd), target()) is None
