"""The doctor on the real fleet: what is in order, and each thing that can be broken by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from .workbench import Bench

if TYPE_CHECKING:
    from .conftest import LoopbackFleet


def checks(bench: Bench, target: str, code: int) -> dict[str, dict[str, Any]]:
    """The checks of a target by name, as JSON."""
    told = bench.mxfleet("doctor", target, "--output", "json", code=code).stdout
    events = [json.loads(line) for line in told.splitlines()]
    assert events[-1]["event"] == "summary" and events[-1]["exit_code"] == code
    return {event["name"]: event for event in events if event["event"] == "check"}


def test_a_target_in_order(bench: Bench, fleet: LoopbackFleet) -> None:
    bench.inventory(python=fleet.python)
    found = checks(bench, "loop1", 0)
    for name in ("connection", "container", "target", "store", "python", "torch", "clock"):
        assert found[name]["status"] == "OK", found[name]
    assert found["GPUs"]["status"] == "WARNING"


@pytest.mark.parametrize(
    ("settings", "name", "words"),
    [
        ({"container": "absent"}, "target", "no container absent"),
        ({"python": "/no/python"}, "setup", "/no/python"),
        ({"workdir": "/no/benchmark"}, "setup", "/no/benchmark does not exist"),
        ({"store": "/proc/store"}, "target", "/proc/store"),
        ({"docker_command": "dockerr"}, "target", "no dockerr on the host"),
        ({"env_script": "../env/none.sh"}, "setup", "env/none.sh is not in the working folder"),
        ({"model": "C500"}, "setup", "expected model C500"),
    ],
)
def test_what_is_broken_is_named_with_a_way_out(
    bench: Bench, fleet: LoopbackFleet, settings: dict[str, Any], name: str, words: str
) -> None:
    bench.inventory(**{"python": fleet.python, **settings})
    found = checks(bench, "loop1", 3)
    assert found[name]["status"] == "FAILED" and words in found[name]["message"], found
    assert found["connection"]["status"] == "OK"


def test_a_host_that_is_none(bench: Bench) -> None:
    bench.inventory(hosts={"nowhere.invalid": {"user": "root"}})
    found = checks(bench, "nowhere.invalid", 3)
    assert list(found) == ["connection"] and found["connection"]["status"] == "FAILED"
    assert found["connection"]["hint"]
