"""Every way a case can end, decided by the real front door with real torch on the CPU.

One run sweeps an operator over kernels that are right or wrong in one way each; nothing that a
bad one does may touch its neighbours.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from harness_tree import Ran, Tree, make_tree, records_of, rows_of

from orchestrator.records import Record, parse_line

ZOO = """
import math, os, signal, sys, time
import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib.op
    from mcoplib import op
except ImportError:
    pass


def double(x, out):
    torch.mul(x, 2, out=out)


class Zoo_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.kernel = config.get("kernel")
        self.size = config.get("size", 16)
        if self.kernel == "bad_init":
            raise KeyError("size")

    def define_metrics(self, state):
        state.set_blocking_kernel_timeout(60)
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype))
        state.add_summary("Shape", f"({self.size}, 1)")
        state.add_element_count(self.size)
        state.add_global_memory_reads(4 * self.size)
        state.add_global_memory_writes(4 * self.size)
        if self.kernel == "skips":
            state.skip("not today")

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with torch.cuda.stream(tc_s):
            x, out = torch.ones(self.size), torch.empty(self.size)
        if self.kernel == "segfault":
            return self.make_launcher(dev_id, os.kill, os.getpid(), signal.SIGSEGV)
        if self.kernel == "hangs":
            return self.make_launcher(dev_id, time.sleep, 1000)
        if self.kernel == "leaves":
            return self.make_launcher(dev_id, os._exit, 0)
        if self.kernel == "raises_late":
            return self.make_launcher(dev_id, torch.mm, x, out)
        return self.make_launcher(dev_id, double, x, out)

    def run_verification(self, dev_id):
        kernel = self.kernel
        x = torch.linspace(1, 2, self.size)
        out, ref = torch.empty(self.size), 2 * x
        self.poison(out)
        if kernel not in ("untouched", "half"):
            double(x, out)
        if kernel == "half":
            out[: self.size // 2] = ref[: self.size // 2]
        if kernel == "scaled":
            out *= 2
        if kernel == "nan":
            out[3] = math.nan
        if kernel == "inf":
            out[3] = math.inf
        if kernel == "shape":
            out = out.reshape(self.size, 1)
        if kernel == "zero":
            out.zero_()
        if kernel == "permuted":
            out = out.flip(0)
        if kernel == "both_zero":
            out, ref = torch.zeros(4), torch.zeros(4)
        if kernel == "raises":
            raise ValueError("no such layout")
        if kernel == "exits":
            sys.exit(0)
        if kernel == "no_reference":
            return None
        if kernel == "bad_answer":
            return True
        if kernel == "nan_is_fine":
            return True, math.nan
        if kernel == "own_check":
            return False, 1.0
        if kernel == "no_operator":
            torch.ops._C.my_op(x, out)
        if kernel == "no_library":
            op.my_op(x, out)
        if kernel == "cuda_only":
            torch.ones(2, device="cuda:0")
        return self.check_diff(out, ref)
"""

# kernel, status, words in the error's message
ZOO_CASES = [
    ("right", "PASSED", None),
    ("both_zero", "PASSED", None),
    ("scaled", "FAILED", "2 times the reference's"),
    ("nan", "FAILED", "1 of 16 output values"),
    ("inf", "FAILED", "not finite"),
    ("untouched", "FAILED", "16 of 16 output values"),
    ("half", "FAILED", "8 of 16 output values"),
    ("shape", "FAILED", "shape (16, 1) where the reference has (16,)"),
    ("zero", "FAILED", "the output is all zero"),
    ("permuted", "FAILED", "1 - cosine is"),
    ("nan_is_fine", "FAILED", "difference of nan"),
    ("own_check", "FAILED", "own check"),
    ("raises", "ERROR", "no such layout"),
    ("raises_late", "ERROR", "must be"),
    ("bad_init", "ERROR", "size"),
    ("exits", "ERROR", "exit(0)"),
    ("bad_answer", "ERROR", "not (passed, difference)"),
    ("segfault", "ERROR", "SIGSEGV"),
    ("leaves", "ERROR", "without a result"),
    ("skips", "NOT_RUN", "not today"),
    ("no_operator", "UNAVAILABLE", "torch.ops._C.my_op"),
    ("no_library", "UNAVAILABLE", "mcoplib.op"),
    ("cuda_only", "UNAVAILABLE", "needs a GPU"),
    ("no_reference", "UNVERIFIED", None),
]


class Zoo:
    """The one run that all tests here look at."""

    def __init__(self, root: Path) -> None:
        tree: Tree = make_tree(root / "benchmark")
        kernels = [kernel for kernel, _, _ in ZOO_CASES]
        tree.add("zoo", {"kernel": kernels, "dtype": "float32", "samples": 20}, ZOO)
        self.csv = root / "out" / "result.csv"
        arguments = ("--op", "zoo", "--csv", str(self.csv), "--generate", "--min-time", "0.01")
        self.ran: Ran = tree.run(*arguments)
        found = records_of(root / "out" / "result.records.jsonl")
        self.records = {record["parameters"]["kernel"]: record for record in found}
        self.order = [record["parameters"]["kernel"] for record in found]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    return Zoo(tmp_path_factory.mktemp("zoo"))


def test_every_case_of_the_sweep_has_a_record_in_order(zoo: Zoo) -> None:
    assert zoo.order == [kernel for kernel, _, _ in ZOO_CASES]


@pytest.mark.parametrize(("kernel", "status", "message"), ZOO_CASES)
def test_outcome(zoo: Zoo, kernel: str, status: str, message: str | None) -> None:
    record = zoo.records[kernel]
    assert record["status"] == status
    assert (record["error"] is None) == (message is None)
    if message is not None:
        assert message in record["error"]["message"]
    measured = record["timers"]["cpu"] is not None
    assert measured == (status in ("PASSED", "UNVERIFIED"))


def test_an_exception_keeps_its_traceback_in_record_and_log(zoo: Zoo) -> None:
    trace = zoo.records["raises"]["error"]["traceback"]
    assert "run_verification" in trace and "ValueError: no such layout" in trace
    assert "ValueError: no such layout" in zoo.ran.err


def test_exit_code_is_the_lowest_of_the_bad_ones(zoo: Zoo) -> None:
    assert zoo.ran.code == 1


def test_markers_are_the_established_ones(zoo: Zoo) -> None:
    lines = zoo.ran.out.splitlines()
    assert "[VERIFY] zoo -> PASS (1-CosSim: 0.00e+00)" in lines
    assert "[VERIFY] zoo -> FAIL (1-CosSim: nan)" in lines
    assert "  >> [WARMUP] Running 10 iterations... Done." in lines
    assert lines.count("[APPEND] zoo") == 2
    assert lines[-1] == "[SUMMARY] Appended: 2, Skipped: 0"
    assert sum(line.startswith("[FATAL] zoo: ") for line in lines) == 21, zoo.ran.out


def test_each_case_is_announced_by_what_is_swept(zoo: Zoo) -> None:
    said = [line for line in zoo.ran.out.splitlines() if line.startswith("[CASE]")]
    total = len(zoo.order)
    assert said == [
        f"[CASE] zoo {number}/{total} kernel={kernel}"
        for number, kernel in enumerate(zoo.order, start=1)
    ]


def test_nothing_is_sampled_after_a_failed_verification(zoo: Zoo) -> None:
    for block in zoo.ran.out.split("[CASE] zoo ")[1:]:
        if "-> FAIL" in block:
            assert "[FATAL]" in block and "[WARMUP]" not in block


def test_only_verified_rows_enter_the_csv(zoo: Zoo) -> None:
    header, *rows = rows_of(zoo.csv)
    at = header.index("case_id")
    assert [row[at] for row in rows] == [zoo.records[k]["case_id"] for k in ("right", "both_zero")]


def test_a_comma_in_the_shape_shifts_no_column(zoo: Zoo) -> None:
    _, *rows = rows_of(zoo.csv)
    assert [row[7] for row in rows] == ["(16, 1)"] * 2
    assert {len(row) for row in rows} == {24}


def test_the_cpu_pretends_no_gpu_time(zoo: Zoo) -> None:
    record = zoo.records["right"]
    assert record["timers"]["cold_gpu"] is None and record["timers"]["batch_gpu"] is None
    assert record["device"]["kind"] == "cpu" and record["engine"] == "torch"
    assert record["rates"]["bandwidth_utilisation"] is None
    row = rows_of(zoo.csv)[1]
    assert [row[at] for at in (11, 12, 15, 16, 17, 18)] == [""] * 6
    assert float(row[9]) == record["timers"]["cpu"]["mean"]


def test_declared_work_and_rates(zoo: Zoo) -> None:
    record = zoo.records["right"]
    assert (record["elements"], record["bytes_read"], record["bytes_written"]) == (16, 64, 64)
    mean = record["timers"]["cpu"]["mean"]
    assert record["rates"]["elements_per_second"] == pytest.approx(16 / mean)
    assert record["rates"]["bytes_per_second"] == pytest.approx(128 / mean)


def test_parameters_hold_the_runners_defaults_and_nothing_of_measuring(zoo: Zoo) -> None:
    expected = {"dtype": "float32", "kernel": "right", "size": 16}
    assert zoo.records["right"]["parameters"] == expected


def test_a_case_keeps_its_identity_when_it_crashes(zoo: Zoo) -> None:
    from harness.cases import case_id

    parameters = {"dtype": "float32", "kernel": "segfault", "size": 16}
    assert zoo.records["segfault"]["case_id"] == case_id("zoo", parameters)


def test_verification_metrics_and_poison_are_recorded(zoo: Zoo) -> None:
    scaled = zoo.records["scaled"]["verification"]
    assert scaled["passed"] is False and scaled["poisoned"] is True
    assert scaled["metrics"]["norm_ratio"] == pytest.approx(2.0)
    assert zoo.records["nan"]["verification"]["metrics"]["one_minus_cosine"] is None
    assert zoo.records["no_reference"]["verification"] is None


def test_records_are_what_the_controller_reads(zoo: Zoo) -> None:
    for record in zoo.records.values():
        parsed: Record = parse_line(json.dumps(record))
        again: dict[str, Any] = json.loads(parsed.to_line())
        assert {key: again[key] for key in record} == record


def test_the_tables_shown_on_a_cpu_have_the_established_names(zoo: Zoo) -> None:
    line = next(line for line in zoo.ran.out.splitlines() if line.startswith("| Acc_Pass"))
    names = [name.strip() for name in next(csv.reader(io.StringIO(line), delimiter="|"))][1:-1]
    assert names[:5] == ["Acc_Pass", "Cos_Dist", "Op", "dtype", "Shape"]


def test_a_hanging_case_times_out_and_the_next_one_runs(tree: Tree) -> None:
    tree.add("zoo", {"kernel": ["hangs", "right"], "dtype": "float32"}, ZOO)
    out = tree.root / "r.jsonl"
    ran = tree.run(
        *("--op", "zoo", "--records", str(out), "--case-timeout", "10", "--min-time", "0.01")
    )
    assert [record["status"] for record in records_of(out)] == ["TIMEOUT", "PASSED"]
    assert ran.code == 4


def test_unavailable_alone_exits_with_3(tree: Tree) -> None:
    tree.add("gone", {"dtype": "float16"}, "import torch\nimport no_such_library.op\n" + ZOO)
    out = tree.root / "r.jsonl"
    ran = tree.run("--op", "gone", "--records", str(out))
    (record,) = records_of(out)
    assert (ran.code, record["status"]) == (3, "UNAVAILABLE")
    assert "runners/mcoplib_mxbenchmark_gone_runners.py:2" in record["error"]["message"]
    assert record["parameters"] == {"dtype": "float16"}
