"""Clocks held and boards cooled, with a scripted nvidia-smi and a scripted NVML."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import GPU, build, scripted
from harness import clocks
from harness_tree import BENCHMARK

LOCK, RELEASE = "-i GPU-fake -lgc 1500,1500", "-i GPU-fake -rgc"


class Smi:
    """A nvidia-smi on PATH that notes how it was called; ``lock`` and ``release`` are shell."""

    def __init__(self, folder: Path) -> None:
        self._calls = folder / "calls"
        self.folder = folder / "bin"
        self.folder.mkdir()
        self.script()

    def script(self, *, lock: str = "echo 'GPU clocks set'", release: str = "echo done") -> None:
        tool = self.folder / "nvidia-smi"
        tool.write_text(
            f'#!/bin/sh\necho "$@" >> {self._calls}\n'
            f'case "$*" in *-rgc*) {release};; *) {lock};; esac\n'
        )
        tool.chmod(0o755)

    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines() if self._calls.exists() else []


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Smi:
    made = Smi(tmp_path)
    monkeypatch.setenv("PATH", f"{made.folder}:{os.environ['PATH']}")
    return made


def test_nothing_is_done_unasked(smi: Smi) -> None:
    with clocks.locked(GPU, None) as done:
        assert done is None
    assert smi.calls() == []


def test_locked_and_released(smi: Smi, capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with clocks.locked(GPU, 1500) as done:
        assert smi.calls() == [LOCK]
        assert done == {"requested_mhz": 1500, "locked": True, "reason": None, "released": None}
    assert smi.calls() == [LOCK, RELEASE]
    assert done is not None
    assert done["released"] is True
    assert signal.getsignal(signal.SIGTERM) is before
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("lock", "reason"),
    [
        ("echo 'no permission to change clocks for GPU 1'; exit 4", "no permission"),
        # The tool says so and ends with 0.
        ("echo 'Setting locked GPU clocks is not supported for GPU 1.'", "is not supported"),
        ("echo 'Treating as warning and moving on.'; echo 'All done.'", "Treating as warning"),
        ("exit 9", "ended with 9"),
        ("kill -9 $$", "ended with -9"),
        ("head -c 100000 /dev/urandom; exit 1", ""),
    ],
)
def test_a_refusal_is_a_warning_and_a_fact(
    smi: Smi, capfd: pytest.CaptureFixture[str], lock: str, reason: str
) -> None:
    smi.script(lock=lock)
    with clocks.locked(GPU, 1500) as done:
        assert done is not None
        assert done["locked"] is False
        assert reason in done["reason"]
        assert len(done["reason"]) <= 300
    assert smi.calls() == [LOCK]
    assert capfd.readouterr().err.startswith("warning: the clock of NVIDIA H200 is not locked: ")


def test_a_tool_that_hangs(smi: Smi, monkeypatch: pytest.MonkeyPatch) -> None:
    smi.script(lock="exec sleep 60")
    monkeypatch.setattr(clocks, "_TOOL_SECONDS", 0.3)
    with clocks.locked(GPU, 1500) as done:
        assert done is not None
        assert "did not end within 0.3 s" in done["reason"]


def test_a_lock_that_stays_is_told(smi: Smi, capfd: pytest.CaptureFixture[str]) -> None:
    smi.script(release="echo 'Unable to reset'; exit 1")
    with clocks.locked(GPU, 1500) as done:
        pass
    assert done is not None
    assert (done["locked"], done["released"]) == (True, False)
    assert "still locked, run nvidia-smi -rgc there: Unable to reset" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ({**GPU, "kind": "cpu"}, "it is a CPU"),
        ({**GPU, "uuid": None}, "UUID"),
    ],
)
def test_devices_that_have_no_clock_to_lock(smi: Smi, device: dict[str, Any], reason: str) -> None:
    with clocks.locked(device, 1500) as done:
        assert done is not None
        assert reason in done["reason"]
    assert smi.calls() == []


def test_without_the_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with clocks.locked(GPU, 1500) as done:
        assert done is not None
        assert done["reason"] == "there is no nvidia-smi on PATH"


def test_an_error_in_the_block_releases_and_passes(smi: Smi) -> None:
    with pytest.raises(ValueError, match="mine"), clocks.locked(GPU, 1500):
        raise ValueError("mine")
    assert smi.calls() == [LOCK, RELEASE]


PROGRAM = """
import sys
sys.path.insert(0, {benchmark!r})
from harness import clocks, worker
def work(send):
    import time
    time.sleep(60)
with clocks.locked({gpu!r}, 1500) as done:
    print("in", flush=True)
    worker.call(work)
print("after", flush=True)
"""


@pytest.fixture
def program(smi: Smi) -> Callable[[], subprocess.Popen[str]]:
    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(benchmark=str(BENCHMARK), gpu=GPU)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def wait_for(smi: Smi, call: str) -> None:
    deadline = time.monotonic() + 60
    while call not in smi.calls():
        assert time.monotonic() < deadline, f"nvidia-smi {call} was never called"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, -signal.SIGINT)]
)
@pytest.mark.parametrize("times", [1, 3])
def test_signals_release_the_clock(
    smi: Smi,
    program: Callable[[], subprocess.Popen[str]],
    number: signal.Signals,
    code: int,
    times: int,
) -> None:
    smi.script(release="sleep 0.5; echo done")
    process = program()
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"
    process.send_signal(number)
    wait_for(smi, RELEASE)
    for _ in range(times - 1):  # an impatient user, while the tool works
        process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert smi.calls() == [LOCK, RELEASE]
    assert process.returncode == code
    assert out == ""


def test_a_signal_while_locking_releases_too(
    smi: Smi, program: Callable[[], subprocess.Popen[str]]
) -> None:
    smi.script(lock="exec sleep 30")
    process = program()
    wait_for(smi, LOCK)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert smi.calls() == [LOCK, RELEASE]
    assert process.returncode == -signal.SIGTERM
    assert out == ""


@pytest.fixture
def temperatures(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    monkeypatch.setattr(clocks, "_POLL_SECONDS", 0.01)
    return scripted(tmp_path, monkeypatch, build(tmp_path_factory.mktemp("nvml")))


@pytest.mark.parametrize(
    ("answers", "limit", "first", "last", "reached"),
    [
        ({"temperature": 45}, 60, 45, 45, True),
        ({"temperature": 80, "drop__temperature": 10}, 60, 80, 50, True),
        ({"temperature": 80}, 0.1, 80, 80, False),
        ({"nvmlDeviceGetTemperature": 3}, 60, None, None, None),
        ({"nvmlDeviceGetTemperature": -2}, 60, None, None, None),
    ],
)
def test_cool_down(
    temperatures: Callable[..., None],
    capfd: pytest.CaptureFixture[str],
    answers: dict[str, int],
    limit: float,
    first: int | None,
    last: int | None,
    reached: bool | None,
) -> None:
    temperatures(**answers)
    found = clocks.cool_down(GPU, 50, limit=limit)
    assert found.pop("seconds") >= 0
    assert found == {"target_c": 50, "from_c": first, "to_c": last, "reached": reached}
    assert ("warning" in capfd.readouterr().err) is (reached is not True)
