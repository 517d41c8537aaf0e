"""What facts of a target mean for its jobs, and how it is told."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from orchestrator.events import Check
from orchestrator.inventory.model import Host, Target
from orchestrator.show.doctor import doctor_lines
from orchestrator.workflows.doctor import conditions

TARGET = Target("t", Host("t"), container="box", env_script="../env/env.sh")
PUSHED = {"env/env.sh"}
FINE: dict[str, Any] = {
    "problems": [],
    "user": "u",
    "store": {"path": "/s", "disk": {"free": 50 << 30, "total": 90 << 30, "free_inodes": 10**7}},
    "python": {
        "version": "3.12.1",
        "executable": "/opt/python",
        "torch": {"version": "2.11"},
        "nvbench": [{"package": "cuda-bench", "version": "0.3.0"}],
        "libraries": {"vllm": "0.22.0", "mcoplib": None},
    },
    "devices": [{"index": 0, "name": "NVIDIA H200", "uuid": "GPU-1"}] * 2,
    "gpu_processes": [],
}


def facts(**changed: Any) -> dict[str, Any]:
    found = copy.deepcopy(FINE)
    for path, value in changed.items():
        *folders, name = path.split("__")
        place = found
        for folder in folders:
            place = place[folder]
        place[name] = value
    return found


def told(
    target: Target = TARGET, pushed: Any = PUSHED, **changed: Any
) -> dict[str, tuple[Any, ...]]:
    found = list(conditions(target, facts(**changed), pushed))
    assert len({name for name, *_ in found}) == len(found) or "problems" in changed
    return {name: rest for name, *rest in found}  # type: ignore[misc]


def test_a_target_in_order() -> None:
    found = told()
    assert {status for status, *_ in found.values()} == {"OK"}
    assert found["GPUs"][1] == "2 × NVIDIA H200"
    assert found["libraries"][1] == "vllm 0.22.0, mcoplib ?"
    assert "inodes free" in found["store"][1]


WORKDIR = {"path": "/w", "writable": True, "established": True, "disk": {}}
BUSY = {"gpu": "GPU-1", "pid": "7", "name": "train, me", "memory": "99 MiB"}


@pytest.mark.parametrize(
    ("changed", "name", "status", "words"),
    [
        ({"store__disk": {"free": 1 << 30, "free_inodes": 10**7}}, "store", "WARNING", "free some"),
        ({"store__disk": {"free": 1 << 40, "free_inodes": 10}}, "store", "WARNING", "10 inodes"),
        ({"workdir": WORKDIR}, "workdir", "OK", "/w"),
        ({"workdir": {**WORKDIR, "writable": False}}, "workdir", "FAILED", "cannot be written"),
        ({"workdir": {**WORKDIR, "established": False}}, "workdir", "FAILED", "no front door"),
        ({"python__nvbench": []}, "nvbench", "FAILED", "cuda-bench"),
        ({"python__nvbench": [], "devices": []}, "nvbench", "OK", "no GPU to need it"),
        ({"python__libraries": {}}, "libraries", "WARNING", "no operator library"),
        ({"devices": []}, "GPUs", "WARNING", "measured on the CPU"),
        ({"devices": None}, "GPUs", "WARNING", "measured on the CPU"),
        ({"gpu_processes": None}, "GPU use", "UNKNOWN", "nvidia-smi"),
        ({"gpu_processes": [BUSY] * 6}, "GPU use", "WARNING", "train, me (pid 7, 99 MiB)"),
        ({"gpu_processes": [BUSY] * 6}, "GPU use", "WARNING", "and 2 more"),
        ({"clock_skew": -40.0}, "clock", "WARNING", "-40 s off"),
        ({"problems": ["no python3.9 here; set `python`"]}, "setup", "FAILED", "no python3.9 here"),
    ],
)
def test_what_is_wrong_is_told_with_what_to_do(
    changed: dict[str, Any], name: str, status: str, words: str
) -> None:
    found = told(**changed)[name]
    assert found[0] == status and words in f"{found[1]} {found[2]}"
    if status in ("WARNING", "FAILED"):
        assert found[2], "nothing is said on what to do"


def test_what_python_could_not_tell_is_not_made_up() -> None:
    found = told(problems=["torch cannot be imported: x"], python=None, devices=None)
    assert not {"python", "torch", "nvbench", "libraries"} & found.keys()


def test_an_env_script_that_no_push_would_bring_fails() -> None:
    status, message, _ = told(pushed=set(), problems=[])["setup"]
    assert status == "FAILED" and "env/env.sh is not in the working folder" in message


def test_the_lines_keep_their_width_and_no_escapes() -> None:
    checks = [
        Check("a", "store", "OK", "/s"),
        Check("b", "setup", "FAILED", "x\x1b[2J " * 40, "do this " * 30),
        Check("a", "libraries", "WARNING", "none"),
    ]
    shown = doctor_lines(checks, 80)
    assert all(len(line) <= 80 for line in shown) and "\x1b" not in "".join(shown)
    assert shown[0] == "a" and shown.index("b") > shown.index("  WARNING  libraries  none")
    assert any(line.strip().startswith("-> do this") for line in shown)
    assert doctor_lines([], 80) == []
