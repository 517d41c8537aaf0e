"""The nvbench engine without a GPU: its flags, and its results from the files nvbench writes.

``cuda.bench`` is played by a module that behaves as cuda-bench 0.3.0 does at this seam:
``register`` keeps the function, ``run_all_benchmarks`` calls it with a state and writes what its
flags ask for.
"""

from __future__ import annotations

import array
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from harness.engines import Settings, nvbench, nvbench_results
from harness.engines.nvbench import NvbenchEngine
from harness.engines.state import CaseState
from harness.errors import NotRunError, TreeError, UnusableError

CSV = (
    "Benchmark,Device,Device Name,Acc_Pass,Cos_Dist,Op,dtype,Shape,Samples,CPU Time (sec),Noise,"
    "GPU Time (sec),Noise,Elem/s (elem/sec),GlobalMem BW (bytes/sec),BWUtil,Samples,"
    "Batch GPU (sec)\n"
    "op,0,NVIDIA H200,Yes,0.00e+00,op,float16,(16 512),20256,0.00015,0.0089,7.4e-05,0.0021,"
    "608428594254.7,3650571565528.2,0.758,20300,7.1e-05\n"
)


def value(tag: str, number: float | int | str, kind: str = "float64") -> dict[str, Any]:
    """A summary as nvbench's JSON has it: numbers are strings."""
    return {
        "tag": tag,
        "name": "x",
        "data": [{"name": "value", "type": kind, "value": str(number)}],
    }


def document(*summaries: dict[str, Any], **state: Any) -> dict[str, Any]:
    """nvbench's JSON of one state."""
    states = [{"name": "Device=0", "summaries": list(summaries), "is_skipped": False, **state}]
    return {"meta": {}, "devices": [], "benchmarks": [{"name": "op", "states": states}]}


def full() -> dict[str, Any]:
    """A state as cuda-bench 0.3.0 reports it."""
    return document(
        value("nv/python/Op", "op", "string"),
        value("nv/cold/sample_size", 4, "int64"),
        value("nv/cold/time/cpu/mean", 2e-4),
        value("nv/cold/time/cpu/median", 1.9e-4),
        value("nv/cold/time/cpu/stdev/relative", 0.05),
        value("nv/cold/time/gpu/mean", 2.5e-5),
        value("nv/cold/time/gpu/median", 2.4e-5),
        value("nv/cold/time/gpu/min", 1e-5),
        value("nv/cold/time/gpu/max", 4e-5),
        value("nv/cold/time/gpu/q1", 1.8e-5),
        value("nv/cold/time/gpu/q3", 3.2e-5),
        value("nv/cold/time/gpu/stdev/relative", "inf"),
        value("nv/cold/bw/item_rate", 1e12),
        value("nv/cold/bw/global/bytes_per_second", 3e12),
        value("nv/cold/bw/global/utilization", 0.62),
        value("nv/batch/sample_size", 5, "int64"),
        value("nv/batch/time/gpu/mean", 2.2e-5),
    )


class RawState:
    """nvbench's State as far as the engine uses it; keeps the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.skipped: str | None = None

    def get_stream(self) -> str:
        return "stream"

    def skip(self, reason: str) -> None:
        self.skipped = reason

    def exec(self, launcher: Callable[[Any], None], /, *, batched: bool, sync: bool) -> None:
        self.calls.append(("exec", batched, sync))
        launcher("launch")

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: self.calls.append((name, *args))


class Played(ModuleType):
    """``cuda.bench``; ``wrote`` is the JSON it answers with (None: this port has no JSON)."""

    def __init__(self, wrote: dict[str, Any] | None) -> None:
        super().__init__("cuda.bench")
        self.wrote = wrote
        self.runs: list[list[str]] = []
        self.raw = RawState()

    def register(self, function: Callable[[Any], None]) -> None:
        self.function = function

    def run_all_benchmarks(self, argv: list[str]) -> None:
        self.runs.append(argv)
        if "--bad" in argv or (self.wrote is None and "--jsonbin" in argv):
            raise RuntimeError("Unrecognized command-line argument")
        self.function(self.raw)
        files = dict(itertools.pairwise(argv))
        if self.wrote is not None:
            Path(files["--jsonbin"]).write_text(json.dumps(self.wrote))
        elif "--csv" in files:
            Path(files["--csv"]).write_text(CSV)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any] | None], Played]:
    def start(wrote: dict[str, Any] | None) -> Played:
        played = Played(wrote)
        monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
        monkeypatch.setitem(sys.modules, "cuda.bench", played)
        return played

    return start


Play = Callable[["dict[str, Any] | None"], Played]


def good(state: CaseState) -> None:
    """What the gate does with a state."""
    state.show_verdict("Yes", "0.00e+00")
    state.add_summary("Shape", "(1 2)")
    state.add_element_count(3)
    state.add_global_memory_reads(5, "x")
    state.add_global_memory_writes(7)
    state.set_blocking_kernel_timeout(60)  # type: ignore[attr-defined]
    state.exec(lambda launch: None, batched=True, sync=False)


def test_a_full_result(play: Play) -> None:
    played = play(full())
    found = NvbenchEngine(Settings(samples=100)).measure("op", 0, good)
    assert found.cold_gpu == {
        "mean": 2.5e-5,
        "median": 2.4e-5,
        "min": 1e-5,
        "max": 4e-5,
        "q25": 1.8e-5,
        "q75": 3.2e-5,
        "noise": None,
        "samples": 4,
    }
    assert found.cpu is not None and (found.cpu["median"], found.cpu["max"]) == (1.9e-4, None)
    assert found.batch_gpu is not None
    assert (found.batch_gpu["mean"], found.batch_gpu["samples"]) == (2.2e-5, 5)
    assert found.elements_per_second == 1e12 and found.bandwidth_utilisation == 0.62
    state = found.state
    assert state.summaries == {"Shape": "(1 2)"}
    assert (state.elements, state.bytes_read, state.bytes_written) == (3, 5, 7)
    assert played.raw.calls == [
        ("add_summary", "Acc_Pass", "Yes"),
        ("add_summary", "Cos_Dist", "0.00e+00"),
        ("add_summary", "Shape", "(1 2)"),
        ("add_element_count", 3),
        ("add_global_memory_reads", 5, "x"),
        ("add_global_memory_writes", 7),
        ("set_blocking_kernel_timeout", 60),
        ("exec", True, False),
    ]


@pytest.mark.parametrize("name", ["result.json-bin/0.bin", "{folder}/result.json-bin/0.bin"])
def test_quantiles_come_from_the_samples_where_nvbench_gives_none(
    tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "result.json-bin"
    folder.mkdir()
    (folder / "0.bin").write_bytes(array.array("f", [4.0, 1.0, 2.0, 3.0]).tobytes())
    filename = name.format(folder=tmp_path)
    files = [{"name": "filename", "type": "string", "value": filename}]
    summary = {"tag": "nv/json/bin:nv/cold/sample_times", "data": files}
    mean = value("nv/cold/time/gpu/mean", 2.6)
    (tmp_path / "result.json").write_text(json.dumps(document(mean, summary)))
    cold = nvbench_results.collect(CaseState(0), tmp_path).cold_gpu
    assert cold is not None
    assert (cold["mean"], cold["median"], cold["min"], cold["q25"]) == (2.6, 2.5, 1.0, 1.75)


def test_a_port_without_json_gives_its_csv(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    played = play(None)
    found = NvbenchEngine(Settings()).measure("op", 0, good)
    assert len(played.runs) == 2 and "--jsonbin" not in played.runs[1]
    assert found.cold_gpu is not None and found.cpu is not None and found.batch_gpu is not None
    assert (found.cold_gpu["mean"], found.cold_gpu["noise"]) == (7.4e-05, 0.0021)
    assert (found.cpu["mean"], found.cpu["noise"]) == (0.00015, 0.0089)
    assert (found.cold_gpu["samples"], found.batch_gpu["samples"]) == (20256, 20300)
    assert found.cold_gpu["median"] is None and found.bandwidth_utilisation == 0.758
    assert "did not start with --device 0 --timeout 600" in capsys.readouterr().err


def test_a_runners_exception_comes_out_as_it_was(play: Play) -> None:
    played = play(full())

    def bad(state: CaseState) -> None:
        raise KeyError("layout")

    with pytest.raises(KeyError, match="layout"):
        NvbenchEngine(Settings()).measure("op", 0, bad)
    assert "KeyError" in str(played.raw.skipped) and len(played.runs) == 1


def test_a_runners_skip_is_no_success(play: Play) -> None:
    play(full())
    with pytest.raises(NotRunError, match="too small"):
        NvbenchEngine(Settings()).measure("op", 0, lambda state: state.skip("too small"))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (document(is_skipped=True, skip_reason="no room"), "no room"),
        (document(), "no cold sample"),
        ({"benchmarks": [{"name": "op", "states": []}]}, "0 states"),
    ],
)
def test_a_result_without_a_time_is_an_error(
    play: Play, answer: dict[str, Any], words: str
) -> None:
    play(answer)
    with pytest.raises(RuntimeError, match=words):
        NvbenchEngine(Settings()).measure("op", 0, good)


def test_flags_that_nvbench_refuses_are_the_callers_fault(play: Play) -> None:
    play(full())
    with pytest.raises(TreeError, match=r"--bad.*Unrecognized"):
        NvbenchEngine(Settings(nvbench_flags=("--bad",))).measure("op", 0, good)


def test_an_nvbench_that_does_not_start_is_the_machines(play: Play) -> None:
    play(None).wrote = None
    sys.modules["cuda.bench"].run_all_benchmarks = lambda argv: None  # type: ignore[attr-defined]
    with pytest.raises(UnusableError, match="did not start"):
        NvbenchEngine(Settings()).measure("op", 0, good)


def test_no_nvbench_is_the_machines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bench", None)
    with pytest.raises(UnusableError, match="cannot be loaded"):
        nvbench.load()


def test_mxbench_offers_the_same_in_a_module_below(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = play(full())
    package = ModuleType("cuda.bench")
    package.__path__ = []
    monkeypatch.setitem(sys.modules, "cuda.bench", package)
    monkeypatch.setitem(sys.modules, "cuda.bench._nvbench", played)
    assert nvbench.load() is played


HEAD = "--device 1 --timeout 600 --throttle-threshold 0"
ESTABLISHED = f"{HEAD} --min-samples 84 --min-time 1.5"
SHORT = "--device 1 --timeout 5 --throttle-threshold 0"
ENTROPY = "--stopping-criterion entropy --batch-target-time 0.1"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Settings(samples=100), [ESTABLISHED]),
        (Settings(samples=3), [ESTABLISHED.replace("84", "1")]),
        (Settings(samples=100, min_time=0.25), [ESTABLISHED.replace("1.5", "0.25")]),
        (Settings(samples=100, timeout=9), [ESTABLISHED.replace("600", "9")]),
        (
            Settings(samples=100, nvbench_flags=("--min-samples", "7")),
            [f"{HEAD} --min-time 1.5 --min-samples 7"],
        ),
        (
            Settings(samples=100, nvbench_flags=("--stopping-criterion", "entropy")),
            [f"{HEAD} --min-samples 84 --stopping-criterion entropy"],
        ),
        (
            Settings(samples=100, nvbench_flags=("--throttle-threshold=75", "--no-batch")),
            [
                "--device 1 --timeout 600 --min-samples 84 --min-time 1.5 "
                "--throttle-threshold=75 --no-batch"
            ],
        ),
        (Settings("adaptive"), [f"{SHORT} {ENTROPY}", f"{SHORT} --min-time 0.1"]),
        (Settings("adaptive", min_time=0.3), [f"{SHORT} --min-time 0.3"]),
        (
            Settings("adaptive", timeout=2),
            [
                f"{SHORT} {ENTROPY}".replace("5", "2", 1),
                f"{SHORT} --min-time 0.1".replace("5", "2", 1),
            ],
        ),
        (
            Settings("adaptive", nvbench_flags=("--stopping-criterion=sample-count",)),
            [f"{SHORT} --stopping-criterion=sample-count"],
        ),
    ],
)
def test_flags(settings: Settings, expected: list[str]) -> None:
    assert nvbench.flags(settings, 1) == [words.split() for words in expected]


@pytest.mark.parametrize(
    ("settings", "criterion"),
    [
        (Settings(), "stdrel"),
        (Settings("adaptive"), "entropy"),
        (Settings("adaptive", min_time=1.0), "stdrel"),
        (Settings(nvbench_flags=("--stopping-criterion=sample-count",)), "sample-count"),
    ],
)
def test_a_measurement_says_what_ended_its_sampling(
    play: Play, settings: Settings, criterion: str
) -> None:
    play(full())
    assert NvbenchEngine(settings).measure("op", 0, good).criterion == criterion


@pytest.mark.parametrize("wrote", [full(), None])
def test_a_port_without_the_entropy_criterion_samples_a_short_time(
    play: Play, wrote: dict[str, Any] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    played = play(wrote)
    run = played.run_all_benchmarks

    def older(argv: list[str]) -> None:
        if "entropy" in argv:
            raise RuntimeError("No such stopping criterion")
        run(argv)

    played.run_all_benchmarks = older  # type: ignore[method-assign]
    found = NvbenchEngine(Settings("adaptive")).measure("op", 0, good)
    assert found.criterion == "stdrel" and found.cold_gpu is not None
    assert "did not start" in capsys.readouterr().err
