"""The nvbench engine on a real GPU: our own operators and runners written for the old scripts.

``python -m pytest tests/gpu`` where torch, a GPU and cuda-bench (or mxbench) are. To see figures:
``python benchmark/testall.py --csv /tmp/gpu.csv``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from harness_tree import BENCHMARK, Tree, records_of, rows_of

pytestmark = pytest.mark.gpu

OWN = sorted(path.stem for path in (BENCHMARK / "config").glob("torch_*.json"))
QUICK = ("--sampling", "established", "--min-time", "0.05", "--set", "samples=30")

# The runner that the working description shows, kept as it stands there.
SKELETON = """
import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C          # 或 mcoplib._moe_C / mcoplib.sgl_kernel / mcoplib.op
except ImportError:
    pass


def _ref_my_op(x, y):
    wide = x.float()
    return wide + y.float()


class My_op_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 4096)
        self.hidden_size = config.get("hidden_size", 4096)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", self.config.get("dtype", str(self.dtype)))
        # 注意：Shape 字符串中不要包含逗号，用空格分隔
        state.add_summary("Shape", f"({self.num_tokens} {self.hidden_size})")
        elems = self.num_tokens * self.hidden_size
        state.add_element_count(elems * 2)            # 读 x + 写 out
        es = 2 if self.dtype in (torch.float16, torch.bfloat16) else 4
        state.add_global_memory_reads(elems * es)
        state.add_global_memory_writes(elems * es)

    def _prepare(self, dev_id, seed=42):
        dev = f'cuda:{dev_id}'
        gen = torch.Generator(device=dev).manual_seed(seed)
        x = torch.randn(self.num_tokens, self.hidden_size,
                        dtype=self.dtype, device=dev, generator=gen)
        y = torch.randn_like(x)
        out = torch.empty_like(x)
        return x, y, out

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with torch.cuda.stream(tc_s):
            x, y, out = self._prepare(dev_id)
        return self.make_launcher(dev_id, torch.ops._C.my_op, x, y, out)

    def run_verification(self, dev_id):
        x, y, out = self._prepare(dev_id, seed=7)        # 用与 benchmark 不同的 seed
        torch.ops._C.my_op(x, y, out)
        torch.cuda.synchronize()
        out_ref = _ref_my_op(x, y).to(out.dtype)
        return self.check_diff(out, out_ref, threshold=0.999999)
"""

# An operator library as far as the skeleton needs one.
LIBRARY = """
import torch

torch.library.define("_C::my_op", "(Tensor x, Tensor y, Tensor(a!) out) -> ()")


@torch.library.impl("_C::my_op", "CUDA")
def my_op(x, y, out):
    torch.add(x, y, out=out)
"""
CONFIG: dict[str, Any] = {
    "device_id": 0,
    "device_name": "MetaX C500",
    "num_tokens": 512,
    "hidden_size": 4096,
    "dtype": "bfloat16",
    "samples": 30,
}

# Two ways to be right, and the ways to go wrong.
ZOO = """
import ctypes

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase


class Zoo_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.kernel = config.get("kernel")
        self._force_sync = self.kernel == "synchronous"

    def define_metrics(self, state):
        state.add_summary("Op", self.name)

    def _data(self, dev_id):
        x = torch.randn(4096, 1024, device=f"cuda:{dev_id}")
        return x, torch.empty_like(x)

    def _call(self, x, out):
        if self.kernel == "untouched":
            return
        torch.mul(x, 2 if self.kernel == "scaled" else 1, out=out)
        if self.kernel == "wrong":
            out.copy_(x.flip(0))
        elif self.kernel == "nan":
            out[7, 7] = float("nan")
        elif self.kernel == "one_wrong_row":
            out[4000] = x[3999]
        elif self.kernel == "out_of_bounds":
            index = torch.full((64,), (1 << 30) - 1, device=x.device)
            out[0, :64] = x.view(-1)[index]
        elif self.kernel == "out_of_memory":
            torch.empty(1 << 50, device=x.device)
        elif self.kernel == "hanging":
            torch.cuda._sleep(1 << 60)
        elif self.kernel == "segfaulting":
            ctypes.string_at(0)
        elif self.kernel == "synchronous":
            torch.cuda.synchronize()

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with torch.cuda.stream(tc_s):
            self.x, self.out = self._data(dev_id)
        return self.make_launcher(dev_id, self._call, self.x, self.out)

    def run_verification(self, dev_id):
        x, out = self._data(dev_id)
        self.poison(out)
        self._call(x, out)
        return self.check_diff(out, x)

    def verify_timed(self, dev_id):
        if self.kernel == "wrong_when_timed":
            self.out[5] = 0
        return self.check_diff(self.out, self.x)
"""
ZOO_SAYS = {
    "right": ("PASSED", ""),
    "wrong": ("FAILED", "cosine"),
    "nan": ("FAILED", "1 of 4194304 output values"),
    "scaled": ("FAILED", "norm is 2 times"),
    "untouched": ("FAILED", "not finite"),
    "one_wrong_row": ("FAILED", "cosine"),
    "wrong_when_timed": ("FAILED", "what was timed is wrong"),
    "out_of_bounds": ("ERROR", "device-side assert|illegal memory access"),
    "out_of_memory": ("ERROR", "out of memory|Invalid|too large|overflow"),
    "hanging": ("TIMEOUT", "killed after"),
    "segfaulting": ("ERROR", "SIGSEGV"),
    "synchronous": ("PASSED", ""),
}


def test_device_and_timers_of_own_operators(gpu_tree: Tree, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    own = ("--ops", ",".join(OWN))
    ran = gpu_tree.run("--csv", str(table), *own, *QUICK, script="testall.py")
    assert ran.code == 0, ran
    records = {r["op"]: r for r in records_of(tmp_path / "t.records.jsonl")}
    assert sorted(records) == OWN
    for record in records.values():
        assert record["engine"] == "nvbench" and record["device"]["kind"] in ("cuda", "maca")
        assert record["environment"]["nvbench"]["version"]
        cold, cpu = record["timers"]["cold_gpu"], record["timers"]["cpu"]
        assert all(cold[key] is not None for key in cold), cold
        assert cold["min"] <= cold["q25"] <= cold["median"] <= cold["q75"] <= cold["max"]
        assert cold["samples"] >= 14 and cpu["mean"] > cold["mean"]
        assert record["timers"]["batch_gpu"]["mean"] > 0
        assert 0 < record["rates"]["bandwidth_utilisation"] < 1.5
        moved = record["bytes_read"] + record["bytes_written"]
        assert record["rates"]["bytes_per_second"] == pytest.approx(moved / cold["mean"], rel=0.01)
    header, *rows = rows_of(table)
    assert sorted(row[0] for row in rows) == OWN
    for row in rows:
        cold = records[row[0]]["timers"]["cold_gpu"]
        assert float(row[11]) == cold["mean"]
        assert float(row[header.index("GPU Median (sec)")]) == cold["median"]


def test_the_skeleton_of_the_working_description_runs_unchanged(
    gpu_tree: Tree, tmp_path: Path
) -> None:
    gpu_tree.add("my_op", CONFIG, SKELETON)
    (gpu_tree.root / "mcoplib").mkdir()
    (gpu_tree.root / "mcoplib/_C.py").write_text(LIBRARY)
    table = tmp_path / "t.csv"
    ran = gpu_tree.run("--op", "my_op", "--csv", str(table), "--generate", "--min-time", "0.05")
    assert ran.code == 0, ran
    for marker in (
        "[VERIFY] my_op -> PASS (1-CosSim: 0.00e+00)",
        "  >> [WARMUP] Running 10 iterations... Done.",
        "[APPEND] my_op",
        "[SUMMARY] Appended: 1, Skipped: 0",
    ):
        assert marker in ran.out
    (record,) = records_of(tmp_path / "t.records.jsonl")
    assert record["library"]["name"] == "mcoplib" and len(record["library"]["sha256"]) == 64
    assert record["verification"]["passed"] and not record["verification"]["poisoned"]
    assert record["parameters"] == {"dtype": "bfloat16", "hidden_size": 4096, "num_tokens": 512}


def test_the_skeleton_without_its_library_is_unavailable(gpu_tree: Tree, tmp_path: Path) -> None:
    gpu_tree.add("my_op", CONFIG, SKELETON)
    out = tmp_path / "r.jsonl"
    ran = gpu_tree.run("--op", "my_op", "--records", str(out))
    (record,) = records_of(out)
    assert (ran.code, record["status"]) == (3, "UNAVAILABLE")
    assert "torch.ops._C.my_op" in record["error"]["message"]


def test_each_fault_is_named_and_the_gpu_answers_again(gpu_tree: Tree, tmp_path: Path) -> None:
    gpu_tree.add("zoo", {"kernel": list(ZOO_SAYS), "dtype": "float32"}, ZOO)
    out = tmp_path / "r.jsonl"
    limits = ("--case-timeout", "20", "--repeats", "2")
    ran = gpu_tree.run("--op", "zoo", "--records", str(out), *limits)
    found = {r["parameters"]["kernel"]: r for r in records_of(out)}
    statuses = {kernel: record["status"] for kernel, record in found.items()}
    assert statuses == {kernel: status for kernel, (status, _) in ZOO_SAYS.items()}, ran
    assert ran.code == 1
    for kernel, (status, words) in ZOO_SAYS.items():
        if status != "PASSED":
            assert re.search(words, found[kernel]["error"]["message"]), found[kernel]["error"]
    assert found["synchronous"]["timers"]["batch_gpu"] is None
    assert found["right"]["timers"]["batch_gpu"] is not None


def test_several_processes_and_what_is_said_of_them(gpu_tree: Tree, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    ran = gpu_tree.run("--op", "torch_softmax", "--records", str(out))
    (record,) = records_of(out)
    assert ran.code == 0, ran
    medians = record["sampling"]["medians"]
    assert record["sampling"] == {
        "mode": "adaptive",
        "criterion": "entropy",
        "repeats": 5,
        "medians": medians,
    }
    assert len(medians) == 5 == record["repeats"]
    assert record["timers"]["cold_gpu"]["median"] == sorted(medians)[2]
    assert 0 <= record["repeat_spread"] < 0.2
    board = record["environment"]["board"]
    assert board["after"]["sm_clock_mhz"] > 0 and board["after"]["temperature_c"] > 0
    assert board["foreign"] == [[], []] and record["environment"]["driver"]
    assert 0 < record["roofline"]["fraction"] < 1.05


@pytest.mark.parametrize("flags", [[], ["--cold"]])
def test_warm_and_cold_testall_measure_the_same(
    gpu_tree: Tree, tmp_path: Path, flags: list[str]
) -> None:
    table = tmp_path / "t.csv"
    args = ("--csv", str(table), "--ops", "torch_softmax,torch_rms_norm", "--repeats", "1")
    ran = gpu_tree.run(*args, *flags, script="testall.py")
    assert ran.code == 0 and "success=2" in ran.out, ran
    assert "not forked" not in ran.out + ran.err


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--stopping-criterion", "entropy"], 0, "[VERIFY]"),
        (["--no-batch"], 0, "[VERIFY]"),
        (["--no-such-flag"], 2, "--no-such-flag"),
        (["--device", "99"], 3, "no GPU 99"),
    ],
)
def test_flags_reach_nvbench(gpu_tree: Tree, flags: list[str], code: int, words: str) -> None:
    ran = gpu_tree.run("--op", "torch_softmax", "--set", "samples=30", *flags)
    assert ran.code == code, ran
    assert words in ran.out + ran.err


def test_the_torch_engine_stays_on_the_cpu(gpu_tree: Tree, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    args = ("--op", "torch_softmax", "--engine", "torch", "--records", str(out))
    ran = gpu_tree.run(*args, "--set", "samples=3")
    (record,) = records_of(out)
    assert ran.code == 0 and record["device"]["kind"] == "cpu"
    assert record["timers"]["cold_gpu"] is None
