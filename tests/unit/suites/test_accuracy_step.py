"""The accuracy step in an established checkout, as the real command runs it there."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.records import judged, parse_line
from orchestrator.results.case_id import case_id
from orchestrator.suites.mcoplib import JOB, McoplibSuite
from orchestrator.suites.measuring import Measuring

WRAPPER = """
import torch

class OpBenchmarkBase:
    def __init__(self, name, config):
        self.name, self.config = name, config

    def check_diff(self, out, ref, threshold=0.999999):
        a, b = out.double().flatten(), ref.double().flatten()
        cosine = torch.dot(a, b) / (a.norm() * b.norm())
        return bool(cosine >= threshold), float(1 - cosine)
"""
RUNNER = """
import os, signal, sys
import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

class Helper:
    pass

class My_op_runner(OpBenchmarkBase):
    def run_verification(self, dev_id):
        assert dev_id == 0
        fault, rows = self.config["fault"], self.config["rows"]
        ref = torch.arange(1.0, 1 + rows * 4).reshape(rows, 4)
        out = ref.clone()
        if fault == "wrong":
            out[1, 2] = -100.0
        if fault == "nan":
            out[0, 3] = float("nan")
        if fault == "raises":
            raise ValueError("missing value for argument 'eps'")
        if fault == "absent":
            import mcoplib._C
        if fault == "no operator":
            torch.ops._C.my_op(out)
        if fault == "killed":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == "leaves":
            os._exit(0)
        if fault == "exits":
            sys.exit(0)
        if fault == "none":
            return None
        if fault == "text":
            return "False", 0.0
        if fault == "nan passes":
            return True, float("nan")
        if fault == "equal":
            return torch.equal(out, ref + 1), 1.0
        if fault == "tensor":
            return (out == ref).all(), torch.tensor(0.0)
        return self.check_diff(out, ref)
"""
CASES = [
    # fault, status, in the message
    ("no", "PASSED", None),
    ("tensor", "PASSED", None),
    ("none", "UNVERIFIED", None),
    ("wrong", "FAILED", "check refused it"),
    ("nan", "FAILED", "check refused it (nan)"),
    ("equal", "FAILED", "check refused it (1.00e+00)"),
    ("nan passes", "FAILED", "calls a difference of nan a pass"),
    ("raises", "ERROR", "missing value for argument 'eps'"),
    ("text", "ERROR", "which is no bool"),
    ("killed", "ERROR", "ended with signal 11"),
    ("leaves", "ERROR", "ended with exit code 0 before it was decided"),
    ("exits", "ERROR", "0"),
    ("absent", "UNAVAILABLE", "No module named 'mcoplib'"),
    ("no operator", "UNAVAILABLE", "object has no attribute"),
]


@dataclass
class Checkout:
    folder: Path
    jobs: Path

    def run(
        self, config: dict[str, Any], *cases: str, runner: str = RUNNER
    ) -> subprocess.CompletedProcess[str]:
        """Verify `my_op` with the words that mxfleet sends; no script of the checkout is there."""
        for folder in ("config", "runners"):
            (self.folder / folder).mkdir(exist_ok=True)
        (self.folder / "config" / "my_op.json").write_text(json.dumps(config))
        path = self.folder / "runners" / "mcoplib_mxbenchmark_my_op_runners.py"
        path.write_text(runner)
        (self.folder / "mcoplib_mxbenchmark_op_wrapper.py").write_text(WRAPPER)
        measuring = Measuring(cases=cases, verify_only=True)
        words = McoplibSuite(self.folder).command("my_op", measuring=measuring, established=True)
        return subprocess.run(
            [sys.executable, "-u", *(word.replace(JOB, str(self.jobs)) for word in words)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def records(self) -> list[dict[str, Any]]:
        path = self.jobs / "records.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


def checkout_in(folder: Path) -> Checkout:
    made = Checkout(folder / "benchmark", folder / "job")
    made.folder.mkdir()
    made.jobs.mkdir()
    return made


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return checkout_in(tmp_path)


CONFIG = {"device_id": 0, "device_name": "MetaX C500", "samples": 1000, "rows": 3}


@pytest.fixture(scope="module")
def swept(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    made = checkout_in(tmp_path_factory.mktemp("swept"))
    done = made.run({**CONFIG, "fault": [fault for fault, *_ in CASES]})
    return done, made.records()


@pytest.mark.parametrize(("fault", "status", "message"), CASES)
def test_every_case_is_decided_by_itself(
    swept: tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]],
    fault: str,
    status: str,
    message: str | None,
) -> None:
    (record,) = [r for r in swept[1] if r["parameters"]["fault"] == fault]
    assert record["status"] == status
    if message is None:
        assert record["error"] is None
    else:
        assert message in record["error"]["message"]
    assert record["case_id"] == case_id("my_op", {**CONFIG, "fault": fault})
    assert record["parameters"] == {"rows": 3, "fault": fault}
    # The controller believes it, and reads what it needs.
    read = judged(parse_line(json.dumps(record)))
    assert (read.status.value, read.measured, read.headline) == (status, False, None)


def test_exit_code_and_markers(
    swept: tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]],
) -> None:
    done, records = swept
    assert done.returncode == 1
    assert len(records) == len(CASES)
    assert "[VERIFY] my_op -> PASS (1-CosSim: " in done.stdout
    assert "[VERIFY] my_op -> FAIL (1-CosSim: nan)" in done.stdout
    assert "Traceback" in done.stderr


def test_the_worst_elements(
    swept: tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]],
) -> None:
    by_fault = {record["parameters"]["fault"]: record for record in swept[1]}
    (wrong,) = by_fault["wrong"]["verification"]["worst"]
    assert (wrong["shape"], wrong["dtype"]) == ([3, 4], "float32")
    assert wrong["elements"] == [
        {
            "index": [1, 2],
            "got": -100.0,
            "expected": 7.0,
            "abs_error": 107.0,
            "rel_error": 107 / 7,
        }
    ]
    (nan,) = by_fault["nan"]["verification"]["worst"]
    assert [(e["index"], e["got"], e["abs_error"]) for e in nan["elements"]] == [
        ([0, 3], "nan", None)
    ]


@pytest.mark.parametrize(
    ("fault", "code"),
    [("no", 0), ("none", 0), ("wrong", 1), ("raises", 1), ("absent", 3), ("killed", 1)],
)
def test_exit_code_of_one_case(checkout: Checkout, fault: str, code: int) -> None:
    assert checkout.run({**CONFIG, "fault": fault}).returncode == code


def test_only_the_cases_that_were_asked_for(checkout: Checkout) -> None:
    config = {**CONFIG, "fault": ["no", "wrong"], "rows": [2, 3], "batch_size_list": [1, 2]}
    assert checkout.run(config, "fault=no", "rows=2", "rows=3").returncode == 0
    assert [r["parameters"] for r in checkout.records()] == [
        {"rows": rows, "fault": "no", "batch_size_list": [1, 2]} for rows in (2, 3)
    ]


@pytest.mark.parametrize("case", ["rows=9", "nothing=1", "samples=1000"])
def test_no_such_case_is_a_mistake(checkout: Checkout, case: str) -> None:
    done = checkout.run({**CONFIG, "fault": "no"}, case)
    assert done.returncode == 2
    assert f"config/my_op.json: no case is {case}" in done.stderr.splitlines()[-1]


def test_a_runner_of_another_class_is_named(checkout: Checkout) -> None:
    done = checkout.run({**CONFIG, "fault": "no"}, runner="class Lonely: pass\n")
    assert done.returncode == 1
    (record,) = checkout.records()
    assert "defines no subclass of OpBenchmarkBase" in record["error"]["message"]


def test_the_command_is_one_line() -> None:
    """So that a person can paste it, and a terminal shows it as it is."""
    measuring = Measuring(verify_only=True)
    words = McoplibSuite(Path("x")).command("my_op", measuring=measuring, established=True)
    assert not any("\n" in word for word in words)
    assert "--csv" not in words
