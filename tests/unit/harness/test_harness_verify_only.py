"""``--verify``: the real front door decides cases by their accuracy alone, and nothing is timed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from harness_tree import Ran, Tree, make_tree, records_of

from orchestrator.records import judged, parse_line

RUNNER = """
import math, os, signal
import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

class Judged_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.fault = config.get("fault")
        self.check = config.get("check", "close")
        self.rows = config.get("rows", 8)

    def define_metrics(self, state):
        state.add_summary("Shape", f"({self.rows} 16)")

    def prepare_and_get_launcher(self, dev_id, tc_s):
        if self.fault != "timed":
            raise AssertionError("nothing is to be measured")
        self.x = self.data()
        self.out = torch.empty_like(self.x)
        return self.make_launcher(dev_id, torch.mul, self.x, 3.0, out=self.out)

    def verify_timed(self, dev_id):
        return self.verify.exact(self.out, 2.0 * self.x, name="timed")

    def data(self):
        return torch.linspace(1, 2, self.rows * 16, dtype=self.dtype).reshape(self.rows, 16)

    def run_verification(self, dev_id):
        ref = 2 * self.data()
        out = ref.clone()
        fault = self.fault
        if fault == "no reference":
            return None
        if fault == "raises":
            raise RuntimeError("no kernel image is available")
        if fault == "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == "leaves":
            os._exit(0)
        if fault == "wrong":
            out[3, 7] = -5.0
        if fault == "nan":
            out[6, 1] = math.nan
        if fault == "scaled":
            out *= 2
        if fault == "row":
            out[5] = 1.0
        if fault == "shape":
            out = out[:, :-1]
        if fault == "own":
            return (bool(torch.equal(out, out + 1)), 1.0)
        if fault == "two":
            self.verify.exact(torch.full_like(ref, 9.0), ref, name="first")
            self.verify.exact(out - 1, ref, name="second")
            return self.verify.verdict()
        return getattr(self.verify, self.check)(out, ref, name="out")
"""

FAULTS = [
    # fault, status, index of the worst element
    ("none", "PASSED", None),
    ("no reference", "UNVERIFIED", None),
    ("wrong", "FAILED", [3, 7]),
    ("nan", "FAILED", [6, 1]),
    ("scaled", "FAILED", [0, 15]),
    ("row", "FAILED", [5, 15]),
    ("shape", "FAILED", None),
    ("own", "FAILED", None),
    ("raises", "ERROR", None),
    ("crashes", "ERROR", None),
    ("leaves", "ERROR", None),
    ("two", "FAILED", [0, 0]),
]


def add(tree: Tree, **config: Any) -> None:
    values = {"device_id": 0, "dtype": "float32", "samples": 20, "rows": 8, **config}
    tree.add("judged", values, RUNNER)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tree, Ran]:
    tree = make_tree(tmp_path_factory.mktemp("verify") / "benchmark")
    add(tree, fault=[fault for fault, *_ in FAULTS])
    return tree, tree.run("--op", "judged", "--verify", "--csv", "out/table.csv")


def record_of(swept: tuple[Tree, Ran], fault: str) -> dict[str, Any]:
    records = records_of(swept[0].root / "out" / "table.records.jsonl")
    (found,) = [record for record in records if record["parameters"]["fault"] == fault]
    return found


def test_every_case_is_decided_and_no_table_is_made(swept: tuple[Tree, Ran]) -> None:
    tree, ran = swept
    assert ran.code == 1
    assert not (tree.root / "out" / "table.csv").exists()
    assert len(records_of(tree.root / "out" / "table.records.jsonl")) == len(FAULTS)
    assert "[WARMUP]" not in ran.out
    assert "[REPEAT]" not in ran.out


@pytest.mark.parametrize(("fault", "status", "index"), FAULTS)
def test_each_fault(swept: tuple[Tree, Ran], fault: str, status: str, index: list[int]) -> None:
    record = record_of(swept, fault)
    assert (record["status"], record["measured"]) == (status, False)
    assert record["timers"] == {"cold_gpu": None, "cpu": None, "batch_gpu": None}
    assert (record["engine"], record["sampling"], record["summaries"]) == (None, None, {})
    outputs = (record["verification"] or {}).get("worst", [])
    elements = [element for output in outputs for element in output["elements"]]
    assert [element["index"] for element in elements[:1]] == ([] if index is None else [index])
    # What comes of it on the controller: the same, though there is no time.
    assert judged(parse_line(json.dumps(record))).status.value == status


def test_what_was_got_and_what_was_expected(swept: tuple[Tree, Ran]) -> None:
    (wrong,) = record_of(swept, "wrong")["verification"]["worst"]
    (element,) = wrong["elements"]
    expected = 2 * (1 + (3 * 16 + 7) / (8 * 16 - 1))
    assert (wrong["output"], wrong["shape"], wrong["dtype"]) == ("out", [8, 16], "float32")
    assert element["got"] == -5.0
    assert element["expected"] == pytest.approx(expected)
    assert element["abs_error"] == pytest.approx(expected + 5)
    assert element["rel_error"] == pytest.approx((expected + 5) / expected)


def test_a_nan_is_told_as_text(swept: tuple[Tree, Ran]) -> None:
    (nan,) = record_of(swept, "nan")["verification"]["worst"]
    (element,) = nan["elements"]
    assert (element["got"], element["abs_error"]) == ("nan", None)
    assert math.isfinite(element["expected"])


def test_another_shape_is_told_without_elements(swept: tuple[Tree, Ran]) -> None:
    (shape,) = record_of(swept, "shape")["verification"]["worst"]
    assert (shape["shape"], shape["expected_shape"]) == ([8, 15], [8, 16])
    assert shape["elements"] == []


def test_each_output_has_its_own(swept: tuple[Tree, Ran]) -> None:
    two = record_of(swept, "two")["verification"]["worst"]
    assert [output["output"] for output in two] == ["first", "second"]
    assert [len(output["elements"]) for output in two] == [10, 10]


def test_people_see_them_beneath_the_verdict(swept: tuple[Tree, Ran]) -> None:
    lines = swept[1].out.splitlines()
    start = next(i for i, line in enumerate(lines) if "fault=nan" in line)
    verify, worst, titles, element, fatal = lines[start + 1 : start + 6]
    assert verify == "[VERIFY] judged -> FAIL (1-CosSim: nan)"
    assert worst.startswith("  >> [WORST] out (8, 16) float32: ")
    assert titles.split() == ["index", "got", "expected", "abs", "error", "rel", "error"]
    assert element.split()[:3] == ["[6,", "1]", "nan"]
    assert fatal.startswith("[FATAL] judged: verification failed")


@pytest.mark.parametrize(
    ("flags", "code"),
    [((), 0), (("--strict",), 6), (("--case", "fault=wrong"), 1)],
)
def test_exit_codes(tmp_path: Path, flags: tuple[str, ...], code: int) -> None:
    tree = make_tree(tmp_path / "benchmark")
    add(tree, fault=["none", "no reference", *(["wrong"] if "--case" in flags else [])])
    assert tree.run("--op", "judged", "--verify", *flags).code == code


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--generate", "--csv", "t.csv"), "not allowed with argument"),
        (("--repeats", "3"), "--repeats is of no use"),
        (("--min-time", "1"), "--min-time is of no use"),
        (("--timeout", "1"), "--timeout is of no use"),
        (("--lock-clocks", "900"), "--lock-clocks is of no use"),
        (("--cool-down", "40"), "--cool-down is of no use"),
    ],
)
def test_flags_that_say_how_to_measure_are_refused(
    shared_tree: Tree, flags: tuple[str, ...], said: str
) -> None:
    ran = shared_tree.run("--op", "torch_rms_norm", "--verify", *flags)
    assert ran.code == 2
    assert said in ran.err


def test_a_case_is_the_same_one_as_when_it_is_measured(tree: Tree) -> None:
    common = ("--op", "torch_rms_norm", "--set", "num_tokens=8", "--records", "r.jsonl")
    assert tree.run(*common, "--verify").code == 0
    assert tree.run(*common, "--repeats", "1", "--set", "samples=5").code == 0
    verified, measured = records_of(tree.root / "r.jsonl")
    assert verified["case_id"] == measured["case_id"]
    assert (verified["measured"], measured["measured"]) == (False, True)
    assert verified["verification"]["metrics"] == measured["verification"]["metrics"]


def test_a_normal_run_tells_them_too(tree: Tree) -> None:
    """Of the verification, and of the buffers that were timed."""
    add(tree, fault=["scaled", "timed"])
    ran = tree.run("--op", "judged", "--records", "r.jsonl", "--repeats", "2")
    assert ran.code == 1
    scaled, timed = records_of(tree.root / "r.jsonl")
    for record in (scaled, timed):
        assert (record["status"], record["measured"]) == ("FAILED", True)
        assert record["verification"]["passed"] is False
    assert scaled["verification"]["worst"][0]["output"] == "out"
    (output,) = timed["verification"]["worst"]
    assert (output["output"], len(output["elements"])) == ("timed", 10)
    assert "  >> [WORST] timed (8, 16) float32: " in ran.out


def test_no_more_outputs_than_a_record_keeps(tree: Tree) -> None:
    runner = RUNNER.replace(
        'if fault == "own":',
        """if fault == "many":
            for number in range(100):
                self.verify.exact(out + 1, ref, name=str(number))
            return self.verify.verdict()
        if fault == "own":""",
    )
    tree.add("judged", {"dtype": "float32", "rows": 8, "fault": "many"}, runner)
    assert tree.run("--op", "judged", "--verify", "--records", "r.jsonl").code == 1
    (record,) = records_of(tree.root / "r.jsonl")
    names = [output["output"] for output in record["verification"]["worst"]]
    assert names == [str(number) for number in range(16)]
