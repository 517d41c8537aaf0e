"""A GPU's state as NVML tells it, by a scripted library: also an old one, a broken one, none."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_nvml import GPU, Script, build, scripted
from harness import board, nvml, worker

CPU = {"kind": "cpu", "name": "some CPU", "index": 0, "uuid": None}
NOTHING = {"source": None, **dict.fromkeys(board._FIELDS)}
GIB = 1 << 30


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nvml")


@pytest.fixture
def told(builds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    return scripted(tmp_path, monkeypatch, build(builds))


@pytest.fixture
def using(builds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Script]:
    def use(define: str) -> Script:
        return scripted(tmp_path, monkeypatch, build(builds, define))

    return use


def test_snapshot_says_what_nvml_says(told: Script) -> None:
    told(reasons=0x4 | 0x20 | 1 << 40, power_ns=5, thermal_ns=7, used=GIB, limit=400_000)
    assert board.snapshot(GPU) == {
        "source": "nvml",
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 3201,
        "temperature_c": 41,
        "power_w": 130.304,
        "power_limit_w": 400.0,
        "default_power_limit_w": 700.0,
        "throttle_reasons": ["sw_power_cap", "sw_thermal_slowdown", hex(1 << 40)],
        "power_throttled_ns": 5,
        "thermally_throttled_ns": 7,
        "memory_used_bytes": GIB,
        "driver": "580.1.2",
    }


@pytest.mark.parametrize(
    ("function", "field"),
    [
        ("nvmlDeviceGetTemperature", "temperature_c"),
        ("nvmlDeviceGetPowerUsage", "power_w"),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", "throttle_reasons"),
        ("nvmlSystemGetDriverVersion", "driver"),
    ],
)
@pytest.mark.parametrize("status", [3, 4, 15, 999])
def test_what_nvml_refuses_is_null(told: Script, function: str, field: str, status: int) -> None:
    told(**{function: status})
    seen = board.snapshot(GPU)
    assert seen is not None
    assert [name for name, value in seen.items() if value is None] == [field]


@pytest.mark.parametrize(
    ("define", "missing"),
    [
        ("OLD", {"power_throttled_ns", "thermally_throttled_ns"}),
        ("RENAMED", set()),
        ("BARE", set(board._FIELDS)),
    ],
)
def test_older_and_thinner_libraries(
    using: Callable[[str], Script], define: str, missing: set[str]
) -> None:
    using(define)(reasons=0x40, used=GIB)
    seen = board.snapshot(GPU)
    assert seen is not None
    assert {name for name, value in seen.items() if value is None} == missing
    if define == "RENAMED":
        assert seen["throttle_reasons"] == ["hw_thermal_slowdown"]
    if define == "OLD":  # all that is in use, the driver's own included
        assert seen["memory_used_bytes"] == GIB + (600 << 20)


@pytest.mark.parametrize("device", [{**GPU, "uuid": "GPU-other"}, {**GPU, "uuid": None}])
def test_a_gpu_that_nvml_does_not_know(told: Script, device: dict[str, Any]) -> None:
    assert board.snapshot(device) == NOTHING
    assert board.idle(device).foreign is None
    assert board.idle(device).used_bytes is None


def test_without_nvml_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(tmp_path, monkeypatch, "libnvidia-ml-that-is-not-there.so.1")
    assert board.snapshot(GPU) == NOTHING
    assert board.idle(GPU).foreign is None
    assert board.idle(GPU).used_bytes is None
    assert board.driver() is None
    assert board.idle(GPU, 0, limit=0.1).settled is False


def test_a_library_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.so").write_text("not a library")
    scripted(tmp_path, monkeypatch, tmp_path / "text.so")
    assert board.snapshot(GPU) == NOTHING


def test_a_driver_that_is_not_loaded(
    builds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = build(builds, "STOPPED")
    scripted(tmp_path, monkeypatch, library)(nvmlInit_v2=9)
    assert board.snapshot(GPU) == NOTHING
    assert board.driver() is None


def test_a_cpu_has_no_board(told: Script) -> None:
    assert board.snapshot(CPU) is None
    assert board.idle(CPU).foreign is None
    assert board.answers(CPU) is None


@pytest.mark.parametrize("define", ["NEW", "OLD"])
@pytest.mark.parametrize("count", [0, 1, 64, 65, 4096])
def test_all_processes_are_counted(using: Callable[[str], Script], define: str, count: int) -> None:
    using(define)(processes=count, process_memory=123, used=GIB)
    found = board.idle(GPU).foreign
    assert found is not None
    if count:
        pids = [process["pid"] for process in found]
        assert pids == list(range(4000000, 4000000 + count))
        assert {process["memory_bytes"] for process in found} == {123}


def test_a_list_that_grows_for_ever_is_not_known(told: Script) -> None:
    told(processes=1, grows=1)
    assert board.idle(GPU).foreign is None


def test_memory_that_nvml_does_not_tell_is_null(told: Script) -> None:
    told(processes=1, process_memory=-1)
    assert board.idle(GPU).foreign == [{"pid": 4000000, "name": None, "memory_bytes": None}]


def test_names_are_given_where_pids_are_the_hosts(
    told: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(processes=1, pid=os.getpid())
    monkeypatch.setattr(board, "_HOST_PIDS", str(Path("/proc/self/ns/pid").readlink()))
    (found,) = board.idle(GPU).foreign or []
    assert found["name"] == Path("/proc/self/comm").read_text().strip()
    # In a container the same number is another process.
    monkeypatch.setattr(board, "_HOST_PIDS", "pid:[1]")
    (found,) = board.idle(GPU).foreign or []
    assert (found["pid"], found["name"]) == (os.getpid(), None)


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        (0, []),
        (100 << 20, []),
        (2 * GIB, [{"pid": None, "name": None, "memory_bytes": 2 * GIB}]),
    ],
)
def test_memory_without_a_process_is_somebodys(
    told: Script, used: int, expected: list[dict[str, Any]]
) -> None:
    told(used=used)
    assert board.idle(GPU).foreign == expected


@pytest.mark.parametrize("behaviour", [-1, -2, 999])
def test_a_sick_driver_is_not_known_and_does_not_hold_us(told: Script, behaviour: int) -> None:
    told(nvmlDeviceGetHandleByUUID=behaviour)
    assert board.idle(GPU, limit=0.5).foreign is None
    assert board.idle(GPU, limit=0.5).used_bytes is None


def test_questions_of_the_parent_load_nothing_into_it(
    told: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("NVML was loaded in the parent")

    parent = os.getpid()
    real = nvml.library
    monkeypatch.setattr(nvml, "library", lambda: refuse() if os.getpid() == parent else real())
    told(processes=1, used=GIB)
    assert board.driver() == "580.1.2"
    assert len(board.idle(GPU).foreign or []) == 1
    assert board.idle(GPU).used_bytes == GIB
    assert board.idle(GPU, GIB).settled


@pytest.mark.parametrize(
    ("used", "drop", "settled"),
    [
        (GIB, 0, True),
        (GIB + (32 << 20), 0, True),  # what the driver keeps a while is no process
        (4 * GIB, GIB, True),
        (4 * GIB, 0, False),
    ],
)
def test_memory_settles(told: Script, used: int, drop: int, settled: bool) -> None:
    told(used=used, **({"drop__used": drop} if drop else {}))
    assert board.idle(GPU, GIB, limit=0.3).settled is settled


def _hang(*_: Any) -> None:
    import time

    time.sleep(60)


def _raise(*_: Any) -> None:
    raise RuntimeError("CUDA error: an illegal\nmemory access")


def _crash(*_: Any) -> None:
    os.abort()


def _wrong(*_: Any) -> str:
    return "a small computation gave 1.0, not 2.0"


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (_hang, "hangs, no answer within 0.5 s"),
        (_raise, "RuntimeError: CUDA error: an illegal memory access"),
        (_crash, "killed by SIGABRT"),
        (_wrong, "gave 1.0"),
    ],
)
def test_a_device_that_does_not_answer_says_why(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[..., Any], why: str
) -> None:
    monkeypatch.setattr(board, "_computes", fault)
    assert why in (board.answers(CPU, limit=0.5 if fault is _hang else 60.0) or "")


def test_a_device_that_computes_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.arange
    monkeypatch.setattr(torch, "arange", lambda *a, **k: real(*a, **k).fill_(1))
    assert "12288.0, not 16777216.0" in (board.answers(CPU) or "")


METAX = {"kind": "maca", "name": "MetaX C500", "index": 3, "uuid": None}


def test_metax_without_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("clock_rate", "temperature", "power_draw", "mem_get_info"):
        monkeypatch.setattr(torch.cuda, name, _raise)
    assert board.snapshot(METAX) == NOTHING
    assert board.idle(METAX).used_bytes is None
    assert board.idle(METAX).foreign is None


def test_metax_with_what_torch_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch.cuda, "temperature", lambda index: asked.append(index) or 50)
    monkeypatch.setattr(torch.cuda, "power_draw", lambda index: 250_500)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (3 * GIB, 4 * GIB))
    monkeypatch.delattr(torch.cuda, "clock_rate")
    known = {"temperature_c": 50, "power_w": 250.5, "memory_used_bytes": GIB}
    assert board.snapshot(METAX) == {**NOTHING, "source": "torch", **known}
    assert asked == [3]
    assert board.idle(METAX).used_bytes == GIB


def test_a_fork_of_a_process_with_nvml_starts_its_own(told: Script) -> None:
    assert board.snapshot(GPU) is not None
    mine = nvml.library()
    ended = worker.call(lambda send: send({"same": nvml.library() is mine}))
    assert ended.messages == [{"same": False}]
