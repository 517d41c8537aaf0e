"""Established runners run unchanged: names of ours may be theirs, ``__init__`` may be too."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import harness_tree
import pytest
import torch
from harness import cli, gate, verification
from harness.base import OpBenchmarkBase, hook

# Everything that our base has and the established one has not, used for something else.
OWN_NAMES = """
import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

class Own_runner(OpBenchmarkBase):
    poison = moves = None

    def __init__(self, name, config):
        self.name, self.config, self.dtype = name, config, torch.float32
        self.rows = config.get("rows", 4)
        self.flops = 2 * self.rows
        self.compute_dtype = torch.float32
        self.device = torch.device("cpu")
        self.stream = self.generator = self.synchronize = None
        self.comparisons = self.poisoned = 3
        self.verify_timed = False

    def verify(self, out, ref):
        return self.check_diff(out, ref)

    def define_metrics(self, state):
        state.set_blocking_kernel_timeout(60)
        state.add_summary("Op", self.name)
        state.add_summary("dtype", self.config.get("dtype", str(self.dtype)))
        state.add_summary("Shape", f"({self.rows} 8)")
        state.add_element_count(self.rows * 8, "Elements")

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with torch.cuda.stream(tc_s):
            x = torch.randn(self.rows, 8)
        return self.make_launcher(dev_id, torch.neg, x)

    def run_verification(self, dev_id):
        x = torch.randn(self.rows, 8)
        passed, diff = self.verify(torch.neg(x), x * FACTOR)
        return [passed, diff]
"""

NEEDS_GPU = """
import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

class Cuda_runner(OpBenchmarkBase):
    def run_verification(self, dev_id):
        return self.check_diff(WHAT, torch.zeros(3))
"""


@pytest.mark.parametrize(("factor", "status", "code"), [(-1, "PASSED", 0), (-2, "FAILED", 1)])
def test_a_runner_may_use_our_names_for_its_own(
    tmp_path: Path, factor: int, status: str, code: int
) -> None:
    tree = harness_tree.make_tree(tmp_path / "tree")
    config = {"dtype": "float32", "rows": 4, "samples": 20}
    tree.add("own", config, OWN_NAMES.replace("FACTOR", str(factor)))
    path = tmp_path / "own.jsonl"
    ran = tree.run("--op", "own", "--engine", "torch", "--repeats", "2", "--records", str(path))
    (record,) = harness_tree.records_of(path)
    assert (record["status"], ran.code) == (status, code), ran.err
    assert record["flops"] is None
    assert record["verification"]["poisoned"] is False
    if status == "PASSED":
        assert "'flops' of its own" in ran.err and "'verify_timed' of its own" in ran.err


@pytest.mark.parametrize(
    "what",
    [
        "torch.randn(3, generator=torch.Generator(device=f'cuda:{dev_id}').manual_seed(1))",
        "torch.randn(3, device=f'cuda:{dev_id}')",
        "torch.cuda.set_device(dev_id) or torch.zeros(3)",
        "torch.cuda.Event(enable_timing=True)",
        "torch.cuda.Stream()",
        "torch.zeros(3).pin_memory()",
        "torch.cuda.FloatTensor(3)",
    ],
)
def test_whatever_needs_a_gpu_is_unavailable_without_one(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    (tmp_path / "runners").mkdir()
    source = NEEDS_GPU.replace("WHAT", what)
    (tmp_path / "runners" / "mcoplib_mxbenchmark_cuda_runners.py").write_text(source)
    device = {"kind": "cpu", "name": "X", "index": 0}
    task = gate.Task(tmp_path, "cuda", source, {}, device, "torch", gate.Settings())
    said: dict[str, Any] = {}
    monkeypatch.setattr(gate.preload, "restore_threads", lambda: None)
    gate.run(task, said.update)
    outcome = said["outcome"]
    assert outcome["status"] == "UNAVAILABLE", outcome["error"]
    assert "needs a GPU" in outcome["error"]["message"]


class Timed(OpBenchmarkBase):
    """Answers what the test wants of it when it is asked for the timed buffers."""

    device_type = "cpu"
    answer: Any = None

    def verify_timed(self, dev_id: int) -> Any:
        return self.answer(self)


X = torch.arange(1.0, 9.0)


@pytest.mark.parametrize(
    ("answer", "passed", "reason"),
    [
        (lambda runner: None, None, None),
        (lambda runner: runner.verify.exact(X, X.clone()), True, None),
        (lambda runner: runner.verify.exact(X, X + 1), False, "8 of 8 values differ"),
        (lambda runner: (True, math.nan), False, "nan a pass"),
        (lambda runner: (False, 0.5), False, "own check refused it"),
    ],
)
def test_timed_buffers_are_judged_as_the_others(
    answer: Any, passed: bool | None, reason: str | None
) -> None:
    runner = type("Asked", (Timed,), {"answer": staticmethod(answer)})("op", {})
    verdict = verification.verify_timed(runner, "op", 0)
    assert verdict.passed is passed
    assert verdict.reason is None if reason is None else reason in str(verdict.reason)


@pytest.mark.parametrize("answer", [True, (1, 0.0), ("True", 0.0), (True, "0"), (True,)])
def test_an_answer_of_another_kind_is_no_pass(answer: Any) -> None:
    runner = type("Asked", (Timed,), {"answer": staticmethod(lambda _: answer)})("op", {})
    with pytest.raises(TypeError, match="verify_timed returned"):
        verification.verify_timed(runner, "op", 0)


def test_what_the_timed_buffers_are_held_to_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(runner: OpBenchmarkBase) -> tuple[bool, float]:
        runner.verify.close(X, X + 1)
        return runner.verify.cosine(X, X.clone(), 0.5)

    runner = type("Asked", (Timed,), {"answer": staticmethod(answer)})("op", {})
    told = verification.as_record(verification.verify_timed(runner, "op", 0))["verification"]
    first = {**told, "thresholds": [], "overruled": [], "metrics": {"one_minus_cosine": 0.1}}
    assert [limit["threshold"] for limit in told["thresholds"]] == [0.5]
    together = verification.merged([first, told, told])
    assert together["thresholds"] == told["thresholds"]
    assert together["overruled"] == told["overruled"] != []
    assert together["metrics"]["one_minus_cosine"] == 0.1
    assert "looser than the rules" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["12", True, -1, math.nan, math.inf, 1.5, 10**400])
def test_what_is_no_count_of_operations_is_an_error(wrong: Any) -> None:
    runner = type("Counts", (Timed,), {"flops": lambda self: wrong})("op", {})
    with pytest.raises(TypeError, match="no count of operations"):
        gate._flops(runner)


def test_a_count_of_operations_may_be_a_float() -> None:
    runner = type("Counts", (Timed,), {"flops": lambda self: 2e9})("op", {})
    assert gate._flops(runner) == 2_000_000_000


def test_a_method_with_other_arguments_is_the_runners_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runner = type("Counts", (Timed,), {"flops": lambda self, m, n: m * n})("op", {})
    assert hook(runner, "flops") is None
    assert "'flops' of its own" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--min-time", "--timeout", "--case-timeout", "--cool-down"])
@pytest.mark.parametrize("value", ["nan", "inf", "x"])
def test_a_time_that_never_ends_is_refused(flag: str, value: str) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.parser().parse_args([f"{flag}={value}"])
    assert caught.value.code == 2


@pytest.mark.parametrize("flags", ["csv output", "csv records", "output records"])
def test_one_file_is_not_written_as_two(
    tmp_path: Path, flags: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link.csv").symlink_to(tmp_path / "t.csv")
    words = ["--op", "own", "--compare"]
    if "csv" not in flags:
        words += ["--csv", str(tmp_path / "other.csv")]
    for flag, name in zip(flags.split(), ("t.csv", "link.csv"), strict=True):
        words += [f"--{flag}", str(tmp_path / name)]
    assert cli.main(words, ["own"], str(tmp_path)) == 2
    assert "name another" in capsys.readouterr().err
    assert not (tmp_path / "t.csv").exists()
