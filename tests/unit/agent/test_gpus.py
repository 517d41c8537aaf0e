"""GPUs as the vendors' tools tell of them: stand-ins on the PATH that print what they print."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from agent_kit import Agents

from orchestrator.transport.agent.gpus import metax_of, normal_pci, nvidia_of_driver

UUIDS = (
    "GPU-3f1b2c44-9f0e-4d3a-8a55-0c1d2e3f4a5b",
    "GPU-9a8b7c6d-1111-2222-3333-444455556666",
)
NVIDIA = f"""
0, {UUIDS[0]}, 00000000:3B:00.0, NVIDIA H200
1, {UUIDS[1]}, 00000000:AF:00.0, NVIDIA A100-SXM4-80GB, a name with a comma
"""
# Pieced together from what is known of mx-smi; its real output is not to be had here.  # inferred
METAX_TABLE = """
mx-smi  version: 2.2.3
=================== MetaX System Management Interface Log ===================
+---------------------------------------------------------------------------------+
| MX-SMI 2.2.3                        Kernel Mode Driver Version: 2.9.8           |
|------------------------------------+---------------------+----------------------+
| GPU         NAME                   | Bus-id              | GPU-Util             |
|====================================+=====================+======================|
| 0           MetaX C500             | 0000:08:00.0        | 0%                   |
| 36C         57W / 350W             | 858/65536 MiB       |                      |
+------------------------------------+---------------------+----------------------+
| 1           MetaX C500             | 0000:09:00.0        | 0%                   |
+---------------------------------------------------------------------------------+
"""
METAX_LIST = """
GPU#0  MXC500  0000:08:00.0 (UUID: GPU-12345678-aaaa-bbbb-cccc-1234567890ab)
GPU#1  MXC500  0000:09:00.0 (UUID: GPU-12345678-aaaa-bbbb-cccc-1234567890ac)
"""


def stand_in(folder: Path, name: str, said: str, code: int = 0) -> None:
    script = folder / name
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{said.strip()}\nEND\nexit {code}\n")
    script.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def test_nvidia(tools: Path, agents: Agents) -> None:
    stand_in(tools, "nvidia-smi", NVIDIA)
    told = agents.start().call("gpus")
    assert told["problems"] == []
    assert told["gpus"] == [
        {
            "index": 0,
            "uuid": UUIDS[0],
            "pci": "0000:3b:00.0",
            "name": "NVIDIA H200",
            "vendor": "nvidia",
        },
        {
            "index": 1,
            "uuid": UUIDS[1],
            "pci": "0000:af:00.0",
            "name": "NVIDIA A100-SXM4-80GB, a name with a comma",
            "vendor": "nvidia",
        },
    ]


@pytest.mark.parametrize(
    ("said", "code", "problem"),
    [
        ("No devices were found", 6, None),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9, "has"),
        ("Failed to initialize NVML: Driver/library version mismatch", 18, "mismatch"),
    ],
)
def test_a_tool_that_sees_none(
    tools: Path, agents: Agents, said: str, code: int, problem: str | None
) -> None:
    stand_in(tools, "nvidia-smi", said, code)
    told = agents.start().call("gpus")
    assert told["gpus"] == []
    assert [problem in text for text in told["problems"]] == ([True] if problem else [])


def test_no_tool(agents: Agents) -> None:
    assert agents.start().call("gpus") == {"type": "result", "gpus": [], "problems": []}


@pytest.mark.parametrize("said", [METAX_TABLE, METAX_LIST], ids=["table", "list"])
def test_metax(tools: Path, agents: Agents, said: str) -> None:
    stand_in(tools, "mx-smi", said)
    gpus = agents.start().call("gpus")["gpus"]
    assert [(g["index"], g["pci"], g["vendor"]) for g in gpus] == [
        (0, "0000:08:00.0", "metax"),
        (1, "0000:09:00.0", "metax"),
    ]
    assert all("C500" in gpu["name"] for gpu in gpus)
    assert all(str(gpu["uuid"]).startswith("GPU-") for gpu in gpus) == (said is METAX_LIST)


def test_metax_output_without_any_gpu() -> None:
    assert metax_of("mx-smi: no device\nversion 2.2.3\n12:30:01 driver not loaded") == []


def test_the_drivers_folder(tmp_path: Path) -> None:
    told = """Model: \t\t NVIDIA H200
IRQ:   \t\t 25
GPU UUID: \t {uuid}
Video BIOS: \t ??.??.??.??.??
Bus Type: \t PCIe
Bus Location: \t 0000:3b:00.0
"""
    unseen = told.replace("3b", "5e")
    for name, text in (
        ("0000:3b:00.0", told.format(uuid=UUIDS[0])),
        ("0000:5e:00.0", unseen.format(uuid="GPU-????????-????-????-????-????????????")),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "information").write_text(text)
    found = nvidia_of_driver(str(tmp_path))
    assert [(g["index"], g["uuid"], g["pci"]) for g in found] == [
        (0, UUIDS[0], "0000:3b:00.0"),
        (1, None, "0000:5e:00.0"),
    ]
    assert nvidia_of_driver(str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("3B:00.0", "0000:3b:00.0"),
        ("00010000:01:1f.7", "10000:01:1f.7"),
        ("GPU-1", None),
        ("0", None),
        ("12:30:01", None),
    ],
)
def test_pci_ids(text: str, normal: str | None) -> None:
    assert normal_pci(text) == normal
