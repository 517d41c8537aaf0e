"""`mxfleet verify`: only the accuracy step, in containers behind ssh; no table changes by it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from .checkout import Site
from .conftest import LoopbackFleet
from .workbench import Bench, snapshot, workbench

RUNNER = '''
"""Doubles its input, wrongly where the config says so."""
import math

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase


class Doubles_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.fault = config.get("fault", "none")

    def prepare_and_get_launcher(self, dev_id, tc_s):
        x = torch.linspace(1, 2, 128, dtype=self.dtype)
        return self.make_launcher(dev_id, torch.mul, x, 2)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)

    def run_verification(self, dev_id):
        x = torch.linspace(1, 2, 128, dtype=self.dtype).reshape(8, 16)
        out, ref = 2 * x, 2 * x
        if self.fault == "no reference":
            return None
        if self.fault == "one value":
            out[3, 7] = -5.0
        if self.fault == "nan":
            out[6, 1] = math.nan
        return self.verify.close(out, ref, name="doubled")
'''
FAULTS = ["none", "one value", "nan"]


@pytest.fixture(scope="module")
def suite(fleet: LoopbackFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A working folder with our suite, an operator that can be wrong, and loop1."""
    folder = tmp_path_factory.mktemp("verify")
    with workbench(fleet, folder, suite=None) as bench:
        bench.mxfleet("init")
        bench.inventory(
            hosts={"loop1": {"user": "root"}}, python=fleet.python, env_script="../env/env.sh"
        )
        benchmark = folder / "benchmark"
        (benchmark / "config" / "doubles.json").write_text('{"dtype": "float32"}')
        path = benchmark / "runners" / "mcoplib_mxbenchmark_doubles_runners.py"
        path.write_text(RUNNER)
        script = benchmark / "mcoplib_mxbenchmark_ops.py"
        start = "SUPPORTED_OPERATORS = ["
        script.write_text(script.read_text().replace(start, f'{start}\n    "doubles",', 1))
        bench.config("torch_softmax", num_rows=64, row_size=256)
        yield bench


def statistics(bench: Bench) -> dict[str, bytes]:
    folder = bench.folder / "benchmark" / "statistics"
    return snapshot(folder) if folder.is_dir() else {}


def last(bench: Bench) -> Path:
    return bench.runs()[-1]


def test_a_right_one_is_only_verified(suite: Bench) -> None:
    before = statistics(suite)
    result = suite.mxfleet("verify", "--op", "torch_softmax,doubles")
    assert "[VERIFY] torch_softmax -> PASS" in "\n".join(result.said("loop1"))
    assert "[WARMUP]" not in result.stdout
    assert "verify: 2 PASSED" in result.stdout.splitlines()[-1]
    assert "merged" not in result.stdout
    assert statistics(suite) == before
    run = last(suite)
    for op in ("torch_softmax", "doubles"):
        (record,) = suite.records(run, "loop1", op)
        assert (record["status"], record["measured"]) == ("PASSED", False)
        assert record["timers"] == {"cold_gpu": None, "cpu": None, "batch_gpu": None}
        assert (record["host"], record["run"]) == ("loop1", run.name)
    assert not list(run.glob("csv/**/*.csv"))


def test_what_is_wrong_shows_its_worst_elements(suite: Bench) -> None:
    suite.config("doubles", fault=FAULTS)
    before = statistics(suite)
    result = suite.mxfleet("verify", "--op", "doubles", code=1)
    shown = [line.split() for line in result.stdout.splitlines()]
    at = next(i for i, words in enumerate(shown) if words == ["doubled", "(8", "16)", "float32:"])
    assert shown[at + 1] == ["index", "got", "expected", "abs", "error", "rel", "error"]
    assert shown[at + 2][:4] == ["[3", "7]", "-5", "2.86614"]
    assert any(words[:3] == ["[6", "1]", "nan"] for words in shown)
    assert "1 PASSED, 2 FAILED" in result.stdout.splitlines()[-1]
    assert statistics(suite) == before


def test_the_same_for_scripts(suite: Bench) -> None:
    suite.config("doubles", fault=FAULTS)
    arguments = ("--case", "fault=one value", "--case", "fault=none", "--output", "json")
    events = suite.mxfleet("verify", "--op", "doubles", *arguments, code=1).events()
    rows = {event["parameters"]["fault"]: event for event in events if event["event"] == "row"}
    assert {fault: row["status"] for fault, row in rows.items()} == {
        "none": "PASSED",
        "one value": "FAILED",
    }
    assert rows["none"]["worst"] == []
    (output,) = rows["one value"]["worst"]
    (element,) = output["elements"]
    assert (output["output"], element["index"], element["got"]) == ("doubled", [3, 7], -5.0)
    assert rows["one value"]["seconds"] is None
    summary = events[-1]
    assert (summary["event"], summary["command"], summary["exit_code"]) == ("summary", "verify", 1)
    assert summary["counts"] == {"PASSED": 1, "FAILED": 1}
    assert summary["files"] == []
    # Taken in again it says the same, and is no measurement then either.
    before = statistics(suite)
    pulled = suite.mxfleet("pull", "--output", "json", code=1).events()
    assert [e["worst"] for e in pulled if e["event"] == "row" and e["worst"]] == [[output]]
    assert statistics(suite) == before


@pytest.mark.parametrize(("flags", "code"), [((), 0), (("--strict",), 6)])
def test_without_a_reference_it_is_undecided(
    suite: Bench, flags: tuple[str, ...], code: int
) -> None:
    suite.config("doubles", fault="no reference")
    result = suite.mxfleet("verify", "--op", "doubles", *flags, code=code)
    assert "1 UNVERIFIED" in result.stdout.splitlines()[-1]


def test_a_run_afterwards_is_merged_as_ever(suite: Bench) -> None:
    """A failed verification from before speaks against none of its rows."""
    suite.config("doubles", fault=["one value"])
    suite.mxfleet("verify", "--op", "doubles", code=1)
    suite.config("doubles", fault="none")
    suite.mxfleet("verify", "--op", "doubles")
    result = suite.mxfleet("run", "--op", "doubles", "--repeats", "1")
    assert "1 appended" in result.stdout
    stored = [
        json.loads(line)["run"]
        for name, text in statistics(suite).items()
        if name.endswith(".jsonl")
        for line in text.decode().splitlines()
    ]
    assert stored == [last(suite).name]


def test_a_mistake_starts_nothing(suite: Bench) -> None:
    suite.config("doubles", fault=FAULTS)
    runs = len(suite.runs())
    result = suite.mxfleet("verify", "--op", "doubles", "--case", "fault=nothing", code=2)
    assert "no case has fault=nothing" in result.stderr
    assert "unknown operator" in suite.mxfleet("verify", "--op", "doubled", code=2).stderr
    assert len(suite.runs()) == runs


def test_dry_run_shows_the_command(suite: Bench) -> None:
    suite.config("doubles", fault=FAULTS)
    result = suite.mxfleet("verify", "--op", "doubles", "--dry-run")
    (line,) = result.said("loop1")
    assert line.endswith("records.jsonl' --verify")
    assert "--csv" not in line


ESTABLISHED = [
    # operator, status, exit code
    ("est_axpy", "PASSED", 0),
    ("est_raises", "PASSED", 0),  # raises only where it would be measured
    ("est_wrong", "FAILED", 1),
]


@pytest.mark.parametrize(("op", "status", "code"), ESTABLISHED)
def test_a_checkout_by_its_documented_way(site: Site, op: str, status: str, code: int) -> None:
    """Its scripts cannot: the runner is made by hand there, and none of its files changes."""
    bench = site.bench
    bench.inventory(
        hosts={"loop1": {"user": "root"}}, workdir=site.workdir, python=bench.fleet.python
    )
    before = site.files("loop1")
    result = bench.mxfleet("verify", "--op", op, code=code)
    word = "PASS" if status == "PASSED" else "FAIL"
    assert f"[VERIFY] {op} -> {word}" in "\n".join(result.said("loop1"))
    (record,) = bench.records(last(bench), "loop1", op)
    assert (record["status"], record["measured"], record["tree"]) == (status, False, None)
    assert not bench.tables()
    after = {name for name, text in site.files("loop1").items() if before.get(name) != text}
    assert all("__pycache__" in name for name in after)
    if status == "FAILED":
        (output,) = record["verification"]["worst"]
        assert len(output["elements"]) == 10
        # 2x + y where x - 3y was expected: x is 16 and y 4 at most.
        assert output["elements"][0]["abs_error"] == 32.0


def test_cases_of_a_checkout(site: Site) -> None:
    """Which its scripts cannot choose from, but this can."""
    bench = site.bench
    bench.inventory(
        hosts={"loop1": {"user": "root"}}, workdir=site.workdir, python=bench.fleet.python
    )
    bench.config("est_axpy", length=[20, 30])
    bench.mxfleet("push")
    bench.mxfleet("verify", "--op", "est_axpy", "--case", "length=30")
    (record,) = bench.records(last(bench), "loop1", "est_axpy")
    assert record["parameters"] == {"dtype": "float32", "length": 30}
