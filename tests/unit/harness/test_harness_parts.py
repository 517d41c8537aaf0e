"""The small parts: comparing, sweeping, identities, records, sampling, device models."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import absence, environment, record, sweep, timing, worker
from harness.base import OpBenchmarkBase
from harness.cases import CaseConfig, case_id
from harness.checks import compare
from harness.engines import Settings
from harness.engines.torch_cpu import TorchState, sample
from harness.errors import TreeError
from harness_tree import BENCHMARK, records_of

X = torch.linspace(-3, 4, 64)
BF16 = X.to(torch.bfloat16)


@pytest.mark.parametrize(
    ("out", "ref", "passed", "difference"),
    [
        pytest.param(X, X.clone(), True, 0.0, id="same"),
        pytest.param(X.double(), X, True, 0.0, id="other-dtype"),
        pytest.param(BF16, X, False, None, id="rounded-beyond-the-threshold"),
        pytest.param(X * 2, X, False, 0.0, id="scaled-by-2"),
        pytest.param(X * 1.009, X, True, 0.0, id="norm-within-1-percent"),
        pytest.param(X * 1.011, X, False, 0.0, id="norm-beyond-1-percent"),
        pytest.param(-X, X, False, 2.0, id="negated"),
        pytest.param(X[:-1], X, False, math.nan, id="shorter"),
        pytest.param(X.reshape(8, 8), X, False, math.nan, id="other-shape"),
        pytest.param(X.where(X < 3, math.nan), X, False, math.nan, id="nan"),
        pytest.param(X.where(X < 3, math.inf), X.where(X < 3, math.inf), False, math.nan, id="inf"),
        pytest.param(torch.zeros(4), torch.zeros(4), True, 0.0, id="both-zero"),
        pytest.param(torch.zeros(64), X, False, 1.0, id="output-zero"),
        pytest.param(X, torch.zeros(64), False, 1.0, id="reference-zero"),
        pytest.param(torch.empty(0), torch.empty(0), False, math.nan, id="empty"),
        pytest.param(torch.arange(9), torch.arange(9), True, 0.0, id="integers"),
        pytest.param(X.to(torch.float8_e4m3fn), X.to(torch.float8_e4m3fn), True, 0.0, id="fp8"),
        pytest.param(torch.tensor([1 + 2j]), torch.tensor([1 - 2j]), False, None, id="complex"),
    ],
)
def test_compare(
    out: torch.Tensor, ref: torch.Tensor, passed: bool, difference: float | None
) -> None:
    result = compare(out, ref, 0.999999)
    assert result.passed is passed and (result.reason is None) is passed
    if difference is not None:
        assert result.difference == pytest.approx(difference, abs=1e-9, nan_ok=True)


def test_compare_sees_what_float32_cannot() -> None:
    # 1 - cosine of about 2e-9 drowns in float32, where it comes out as 0 or even negative.
    ref = torch.ones(4096, dtype=torch.float64)
    out = ref.clone()
    out[0] += 4e-3
    assert 1e-9 < compare(out, ref, 0.999999).difference < 1e-8


def test_a_wrong_value_in_the_last_slice_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.checks._SLICE", 10)
    out = X.clone()
    out[-1] = math.nan
    assert "1 of 64" in str(compare(out, X, 0.9).reason)
    assert compare(X, X.clone(), 0.999999).passed


def test_check_diff_keeps_its_signature() -> None:
    runner = OpBenchmarkBase("op", {"dtype": "torch.bfloat16"})
    assert runner.dtype is torch.bfloat16 and OpBenchmarkBase("op", {}).dtype is torch.float16
    assert runner.check_diff(X, X.clone(), threshold=0.99) == (True, pytest.approx(0.0, abs=1e-12))
    passed, difference = runner.check_diff(X * 3, X)
    assert not passed and difference == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn, torch.int8, torch.bool])
def test_poison_makes_an_untouched_output_fail(dtype: torch.dtype) -> None:
    runner = OpBenchmarkBase("op", {})
    good = torch.tensor([0, 1, 1, 0]).to(dtype)
    out = good.clone()
    runner.poison(out)
    assert runner._noted.poisoned and not compare(out, good, 0.99).passed


@pytest.mark.parametrize("name", ["float17", "nn", "", "torch.Tensor"])
def test_an_unknown_dtype_is_named(name: str) -> None:
    with pytest.raises(ValueError, match="is no torch dtype"):
        OpBenchmarkBase("op", {"dtype": name})


@pytest.mark.parametrize(
    ("config", "cases"),
    [
        ({"a": 1}, [{"a": 1}]),
        (
            {"a": [1, 2], "b": "x", "c": [3, 4]},
            [{"a": a, "b": "x", "c": c} for a in (1, 2) for c in (3, 4)],
        ),
        (
            {"device_id": [0], "device_name": ["x", "y"], "samples": [1], "batch_size_list": [1]},
            [{"device_id": [0], "device_name": ["x", "y"], "samples": [1], "batch_size_list": [1]}],
        ),
        ({"block": [[1, 2], [3, 4]]}, [{"block": [1, 2]}, {"block": [3, 4]}]),
    ],
)
def test_expand(config: dict[str, Any], cases: list[dict[str, Any]]) -> None:
    assert sweep.expand(config, "config/x.json") == cases


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"a": 1}, [""]),
        ({"a": [1]}, [""]),
        ({"n": [8, 16], "b": "x", "dtype": ["half"]}, ["n=8", "n=16"]),
        (
            {"n": [8], "s": ["a\nb", "c"], "k": [[1, 2], [3]]},
            ["s=a b k=[1, 2]", "s=a b k=[3]", "s=c k=[1, 2]", "s=c k=[3]"],
        ),
    ],
)
def test_cases_are_named_by_what_is_swept(config: dict[str, Any], names: list[str]) -> None:
    assert sweep.names(sweep.expand(config, "config/x.json")) == names


def test_sweep_cases_share_nothing() -> None:
    first, second = sweep.expand({"a": [1, 2], "batch_size_list": [1]}, "config/x.json")
    first["batch_size_list"].append(2)
    assert second["batch_size_list"] == [1]


def test_case_config_counts_config_and_defaults_used() -> None:
    config = CaseConfig({"dtype": "float16", "n": 1, "samples": 9, "device_id": 0, "never": 2})
    assert (config.get("n", 5), config.get("m", 7), config["dtype"]) == (1, 7, "float16")
    config.get("scale", torch.float32)
    expected = {"dtype": "float16", "m": 7, "n": 1, "never": 2, "scale": "torch.float32"}
    assert config.parameters() == expected
    assert config.unread() == ["never"]
    assert dict(**config)["never"] == 2
    assert config.unread() == []


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda config: {**config}, id="unpacking"),
        pytest.param(lambda config: dict(config), id="dict"),
        pytest.param(lambda config: config.copy(), id="copy"),
        pytest.param(lambda config: list(config.items()), id="items"),
        pytest.param(lambda config: list(config.values()), id="values"),
        pytest.param(lambda config: json.dumps(config), id="json"),
        pytest.param(lambda config: [config.pop(key) for key in ("a", "b")], id="pop"),
        pytest.param(lambda config: [config.setdefault(key, 9) for key in ("a", "b")], id="set"),
    ],
)
def test_however_a_config_is_read_the_parameters_stay(read: Callable[[CaseConfig], Any]) -> None:
    config = CaseConfig({"a": 1, "b": 2})
    assert config.unread() == ["a", "b"]
    read(config)
    assert config.unread() == []
    config["a"] = 7
    assert config.parameters() == {"a": 1, "b": 2}


def test_case_id_ignores_order_and_measuring_but_no_value() -> None:
    one = case_id("op", {"a": 1, "b": "x", "samples": 5, "device_id": 0, "device_name": "y"})
    assert one == case_id("op", {"b": "x", "a": 1})
    others = [("op2", {"a": 1, "b": "x"}), ("op", {"a": 2, "b": "x"}), ("op", {"a": 1})]
    assert len({one, *(case_id(*other) for other in others)}) == 4
    assert len(one) == 16 and int(one, 16) >= 0


def test_definition_follows_runner_and_harness(tmp_path: Path) -> None:
    for name in ("runners", "harness"):
        (tmp_path / name).mkdir()
    runner = tmp_path / "runners/mcoplib_mxbenchmark_a_runners.py"
    part = tmp_path / "harness/gate.py"
    seen = set()
    for first, second in (("1", "2"), ("1", "3"), ("2", "2")):
        runner.write_text(first)
        part.write_text(second)
        seen.add(record.definition(tmp_path, "a"))
    (tmp_path / "mcoplib_mxbenchmark_ops.py").write_text("a longer whitelist")
    seen.add(record.definition(tmp_path, "a"))
    assert len(seen) == 3


def test_records_of_concurrent_writers_stay_whole(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from harness import record\n"
        "for i in range(20):\n"
        "    record.append(Path(sys.argv[1]), {'i': i, 'w': sys.argv[2], 'x': 'y' * 30000})\n"
    )
    path = tmp_path / "deep" / "r.jsonl"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(path), str(number)],
            cwd=BENCHMARK,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        for number in range(4)
    ]
    assert [writer.wait(120) for writer in writers] == [0] * 4
    assert len({(r["i"], r["w"]) for r in records_of(path)}) == 80


def test_a_record_is_strict_json_whatever_the_parameters(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    record.append(path, {"parameters": {"a": math.inf, "b": [math.nan], "c": "\udcff é"}})
    (read,) = records_of(path)
    assert read["parameters"]["a"] == "inf" and read["parameters"]["b"] == ["nan"]


def test_a_record_is_synced_before_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    real = os.fsync

    def fsync(handle: int) -> None:
        sizes.append(os.fstat(handle).st_size)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    record.append(tmp_path / "r.jsonl", {"a": 1})
    assert sizes == [(tmp_path / "r.jsonl").stat().st_size]


def test_timestamps_are_utc_with_milliseconds() -> None:
    assert record.timestamp(1796072400.1239) == "2026-11-30T21:00:00.123Z"


def test_summarise() -> None:
    timer = timing.summarise([4.0, 1.0, 2.0, 3.0, 5.0])
    assert timer == {
        "mean": 3.0,
        "median": 3.0,
        "min": 1.0,
        "max": 5.0,
        "q25": 2.0,
        "q75": 4.0,
        "noise": pytest.approx(math.sqrt(2.5) / 3),
        "samples": 5,
    }
    one = timing.summarise([2.0])
    assert (one["median"], one["noise"], one["q25"]) == (2.0, None, None)


@pytest.mark.parametrize(
    ("settings", "fewest", "most"),
    [
        pytest.param(Settings(samples=3, min_time=60), 3, 3, id="samples-bound"),
        pytest.param(Settings(samples=1000, min_time=0.05), 5, 999, id="time-bounds"),
        pytest.param(Settings(samples=1000, min_time=0.0), 5, 5, id="five-at-least"),
        pytest.param(Settings(samples=2, min_time=0.0), 2, 2, id="fewer-when-asked"),
        pytest.param(Settings(samples=1000, min_time=60, timeout=0.0), 1, 1, id="timeout"),
    ],
)
def test_sampling_on_the_cpu_is_bounded(settings: Settings, fewest: int, most: int) -> None:
    times = sample(lambda launch: time.sleep(0.01), settings)
    assert fewest <= len(times) <= most
    assert all(value >= 0.01 for value in times)


def test_the_cpu_keeps_the_callers_threads() -> None:
    seen = set()
    sample(lambda launch: seen.add(torch.get_num_threads()), Settings(samples=2, min_time=0.0))
    assert seen == {torch.get_num_threads()}


def test_knobs_of_nvbench_do_nothing_on_a_cpu_and_questions_fail() -> None:
    state = TorchState(0, Settings())
    state.set_blocking_kernel_timeout(-1)
    assert state.get_stream() is None and state.get_device() == 0
    with pytest.raises(AttributeError, match="get_axis_values"):
        state.get_axis_values()


def test_declarations_add_up() -> None:
    state = TorchState(0, Settings())
    assert (state.elements, state.bytes_read, state.bytes_written) == (None, None, None)
    for _ in range(2):
        state.add_element_count(3)
        state.add_global_memory_reads(5, "x")
        state.add_global_memory_writes(7)
    assert (state.elements, state.bytes_read, state.bytes_written) == (6, 10, 14)


@pytest.mark.parametrize(
    ("name", "kind", "model"),
    [
        ("MetaX C500", "maca", "C500"),
        ("C600u", "maca", "C600u"),
        ("NVIDIA H200", "cuda", "H200"),
        ("NVIDIA A100-SXM4-80GB", "cuda", "A100-SXM4-80GB"),
        ("AMD Instinct MI300X", "cuda", "Instinct_MI300X"),
        ("Intel(R) Xeon(R) Processor @ 2.10GHz", "cpu", "CPU_Intel_Xeon_Processor"),
        ("AMD EPYC 9654 96-Core Processor", "cpu", "CPU_AMD_EPYC_9654"),
        ("", "cpu", "CPU"),
    ],
)
def test_device_model_as_the_controller_has_it(name: str, kind: str, model: str) -> None:
    from orchestrator.results.model_name import model_name

    assert environment.device_model(name, kind) == model_name(name, kind) == model


@pytest.mark.parametrize(
    ("error", "absent"),
    [
        (NameError("y", name="y"), None),
        (ModuleNotFoundError("No module named 'mcoplib'"), "mcoplib"),
        (RuntimeError("Could not run '_C::a' with arguments from the 'CPU' backend"), "CPU"),
        (RuntimeError("CUDA out of memory"), None),
        (AssertionError("Torch not compiled with CUDA enabled"), "GPU"),
        (AssertionError("wrong layout"), None),
        (AttributeError("'Runner' object has no attribute 'x'"), None),
    ],
)
def test_absence_is_told_from_mistakes(error: Exception, absent: str | None) -> None:
    found = absence.absence(error)
    assert found is None if absent is None else absent in str(found)


def _talk(send: worker.Send) -> None:
    send({"text": "x" * 200_000})
    send({"last": True})


def test_a_child_may_say_more_than_a_pipe_holds() -> None:
    ended = worker.call(_talk)
    assert [len(m.get("text", "")) for m in ended.messages] == [200_000, 0]
    assert ended.how() is None


def test_a_child_that_closes_everything_is_still_waited_for() -> None:
    def work(send: worker.Send) -> None:
        send({"a": 1})
        os.closerange(3, 256)
        time.sleep(0.2)
        os._exit(7)

    ended = worker.call(work, limit=60)
    assert (ended.messages, ended.how()) == (
        [{"a": 1}],
        "the process ended early with exit code 7",
    )


def test_a_childs_grandchild_does_not_keep_the_parent_waiting() -> None:
    def work(send: worker.Send) -> None:
        send({"a": 1})
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)

    began = time.monotonic()
    assert worker.call(work).messages == [{"a": 1}]
    assert time.monotonic() - began < 25


def test_tree_errors_are_not_swallowed() -> None:
    with pytest.raises(TreeError, match="empty list"):
        sweep.expand({"a": []}, "config/x.json")


def test_a_value_that_a_sweep_names_twice_is_one_case(capsys: pytest.CaptureFixture[str]) -> None:
    cases = sweep.expand({"a": [2, 1, 2, 1.0, True], "b": 3}, "config/x.json")
    assert [case["a"] for case in cases] == [2, 1, 1.0, True]
    assert [type(case["a"]) for case in cases] == [int, int, float, bool]
    assert "config/x.json: 'a' names a value twice" in capsys.readouterr().err
