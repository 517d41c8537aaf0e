"""Lanes of a target: which devices its jobs run on, and what is locked for them."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import UnusableError
from orchestrator.inventory.model import Host, Target
from orchestrator.plan.lanes import Lane, lanes_of


def gpu(index: int, vendor: str = "nvidia", **more: Any) -> dict[str, Any]:
    return {
        "index": index,
        "uuid": f"GPU-{index}aaa-bbbb" if vendor == "nvidia" else None,
        "pci": f"0000:0{index}:00.0",
        "name": "NVIDIA H200",
        "vendor": vendor,
        **more,
    }


NVIDIA = [gpu(0), gpu(1), gpu(2)]
METAX = [gpu(0, "metax"), gpu(1, "metax")]


def target(**more: Any) -> Target:
    return Target(name="a", host=Host(name="a"), **more)


def nvidia(index: int) -> Lane:
    return Lane(
        f"gpu{index}",
        (f"0000:0{index}:00.0",),
        {"CUDA_VISIBLE_DEVICES": f"GPU-{index}aaa-bbbb"},
        ("--device", "0"),
    )


CPU = Lane("cpu", ("cpu",))


@pytest.mark.parametrize(
    ("settings", "gpus", "lanes"),
    [
        ({}, [], (CPU,)),
        ({}, NVIDIA, (nvidia(0), nvidia(1), nvidia(2))),
        ({"gpus": ("2", "0")}, NVIDIA, (nvidia(0), nvidia(2))),
        ({"gpus": ("GPU-1aaa-bbbb",)}, NVIDIA, (nvidia(1),)),
        ({"gpus": ("gpu-1aa",)}, NVIDIA, (nvidia(1),)),
        ({"gpus": ("00000000:01:00.0", "02:00.0")}, NVIDIA, (nvidia(1), nvidia(2))),
        ({"gpus": ("1", "GPU-1aaa-bbbb")}, NVIDIA, (nvidia(1),)),
        ({"env": {"CUDA_VISIBLE_DEVICES": "1"}}, NVIDIA, (nvidia(1),)),
        ({"env": {"CUDA_VISIBLE_DEVICES": ""}}, NVIDIA, (CPU,)),
        ({"env": {"CUDA_VISIBLE_DEVICES": "-1"}}, NVIDIA, (CPU,)),
        ({"env": {"CUDA_VISIBLE_DEVICES": "1"}, "gpus": ("0",)}, NVIDIA, (nvidia(0),)),
        (
            {"workdir": "/opt/benchmark"},
            NVIDIA,
            (Lane("gpus", ("0000:00:00.0", "0000:01:00.0", "0000:02:00.0")),),
        ),
        (
            {"workdir": "/opt/benchmark", "gpus": ("1",)},
            NVIDIA,
            (Lane("gpus", ("0000:01:00.0",)),),
        ),
        ({"workdir": "/opt/benchmark"}, [], (CPU,)),
        (
            {"gpus": ("1",)},
            METAX,
            (Lane("gpu1", ("0000:01:00.0",), {"MACA_VISIBLE_DEVICES": "1"}, ("--device", "0")),),
        ),
        (
            {},
            [gpu(0, uuid=None)],
            (
                Lane(
                    "gpu0",
                    ("0000:00:00.0",),
                    {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
                    ("--device", "0"),
                ),
            ),
        ),
        (
            {},
            [gpu(0, pci=None)],
            (
                Lane(
                    "gpu0",
                    ("GPU-0aaa-bbbb",),
                    {"CUDA_VISIBLE_DEVICES": "GPU-0aaa-bbbb"},
                    ("--device", "0"),
                ),
            ),
        ),
    ],
)
def test_lanes(settings: dict[str, Any], gpus: list[Any], lanes: tuple[Lane, ...]) -> None:
    assert lanes_of(target(**settings), gpus) == lanes


@pytest.mark.parametrize("name", ["3", "GPU-", "GPU-9", "0000:09:00.0"])
def test_a_gpu_that_is_not_there(name: str) -> None:
    with pytest.raises(UnusableError, match=f"there is no GPU {name}; .*0000:01:00.0"):
        lanes_of(target(gpus=(name,)), NVIDIA)
