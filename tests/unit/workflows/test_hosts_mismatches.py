"""What ``hosts --check`` finds wrong with an inventory's entry when the target answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.inventory.model import Host, Target
from orchestrator.workflows.hosts import mismatches

PUSHED = {"benchmark/mcoplib_mxbenchmark_ops.py", "env/env.sh"}
H200 = {"index": 0, "name": "NVIDIA H200", "uuid": "GPU-1234"}
TARGET = Target("t", Host("t"), env_script="../env/env.sh")


@pytest.mark.parametrize(
    ("settings", "devices", "problem"),
    [
        ({}, [], None),
        ({}, None, None),
        ({"env_script": "../env/nope.sh"}, [], "the env script env/nope.sh is not in the working"),
        ({"env_script": "../env/nope.sh", "workdir": "/there"}, [], None),  # the agent looks
        ({"env_script": "/opt/env.sh"}, [], None),  # lies on the target
        ({"env_script": None}, [], None),
        ({"model": "H200"}, [H200], None),
        ({"model": "NVIDIA H200"}, [H200], None),
        ({"model": "C500"}, [H200], "expected model C500, found H200"),
        ({"model": "C500"}, [], "expected model C500, found no GPU"),
        ({"model": "C500"}, None, None),  # nobody could be asked: that is a problem of its own
        ({"gpus": ("0",)}, [H200], None),
        ({"gpus": ("GPU-1234",)}, [H200], None),
        ({"gpus": ("0000:3b:00.0",)}, [H200], None),  # torch tells no bus ids
        ({"gpus": ("0", "3")}, [H200], "there is no GPU 3"),
    ],
)
def test_mismatches(
    settings: dict[str, Any], devices: list[dict[str, Any]] | None, problem: str | None
) -> None:
    found = mismatches(replace(TARGET, **settings), {"devices": devices}, PUSHED)
    assert len(found) == (problem is not None)
    assert problem is None or problem in found[0]
