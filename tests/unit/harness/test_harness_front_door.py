"""The front doors' answers to good and bad input, each from a process of its own."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from harness_tree import BENCHMARK, Tree, records_of, rows_of

GOOD = """
import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase


class Good_runner(OpBenchmarkBase):
    def define_metrics(self, state):
        state.add_summary("Op", self.name)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        x = torch.ones(4)
        return self.make_launcher(dev_id, torch.add, x, x)

    def run_verification(self, dev_id):
        x = torch.ones(4)
        return self.check_diff(x + x, 2 * x)
"""
NO_TORCH = "sys.modules['torch'] = None"
OWN = sorted(path.stem for path in (BENCHMARK / "config").glob("torch_*.json"))
EVERY = sorted(path.stem for path in (BENCHMARK / "config").glob("*.json"))


def test_list_is_sorted_and_does_not_import_torch(shared_tree: Tree) -> None:
    ran = shared_tree.run("--list", before=NO_TORCH)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [f"  * {name}" for name in EVERY]


def test_the_whitelist_is_a_literal_in_the_order_of_the_alphabet() -> None:
    source = (BENCHMARK / "mcoplib_mxbenchmark_ops.py").read_text()
    (value,) = [
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SUPPORTED_OPERATORS"
    ]
    assert ast.literal_eval(value) == EVERY


# What is wrong with the operator `bad`, the arguments, and what the one line has to say.
BAD_TREES = [
    pytest.param("{}", GOOD, ["--op", "torch_sofmax"], ["did you mean torch_softmax"], id="op"),
    pytest.param("{}", GOOD, [], ["--op NAME", "--list"], id="no-op"),
    pytest.param(None, GOOD, ["--op", "bad"], ["config/bad.json: no such file"], id="no-config"),
    pytest.param(
        '{\n "a": 1,\n "b" 2\n}', GOOD, ["--op", "bad"], ["config/bad.json:3", "JSON"], id="json"
    ),
    pytest.param("[1]", GOOD, ["--op", "bad"], ["config/bad.json:1"], id="not-an-object"),
    pytest.param(
        '{\n "a": 1,\n "a": 2\n}', GOOD, ["--op", "bad"], ["config/bad.json:3", "'a'"], id="twice"
    ),
    pytest.param('{"a": []}', GOOD, ["--op", "bad"], ["'a'", "empty list"], id="empty-sweep"),
    pytest.param('{"samples": "x"}', GOOD, ["--op", "bad"], ["samples 'x'"], id="samples"),
    pytest.param("{}", None, ["--op", "bad"], ["bad_runners.py: no such file"], id="no-runner"),
    pytest.param(
        "{}", "x = 1\nif:\n", ["--op", "bad"], ["bad_runners.py:2", "syntax"], id="syntax"
    ),
    pytest.param("{}", "x = 1\n", ["--op", "bad"], ["no subclass of OpBenchmarkBase"], id="class"),
    pytest.param(
        "{}", "x = 1\nx.y\n", ["--op", "bad"], ["bad_runners.py:2", "AttributeError"], id="import"
    ),
    pytest.param("{}", GOOD, ["--op", "bad", "--set", "x"], ["KEY=VALUE"], id="set"),
    pytest.param("{}", GOOD, ["--op", "bad", "--generate"], ["--csv"], id="mode-without-csv"),
    pytest.param("{}", GOOD, ["--op", "bad", "--output", "x"], ["--compare"], id="output"),
    pytest.param(
        "{}",
        GOOD,
        ["--op", "bad", "--records", "config/bad.json/r.jsonl"],
        ["r.jsonl", "records cannot be written"],
        id="records",
    ),
    pytest.param(
        "{}", GOOD, ["--op", "bad", "--csv", "config/bad.json"], ["bad.json:1", "--csv"], id="csv"
    ),
]


@pytest.mark.parametrize(("config", "runner", "args", "words"), BAD_TREES)
def test_bad_tree(
    tree: Tree, config: str | None, runner: str | None, args: list[str], words: list[str]
) -> None:
    tree.add("bad", config or "{}", runner or "")
    if config is None:
        (tree.root / "config/bad.json").unlink()
    if runner is None:
        (tree.root / "runners/mcoplib_mxbenchmark_bad_runners.py").unlink()
    ran = tree.run(*args)
    assert ran.code == 2, ran
    lines = ran.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: "), ran.err
    for word in words:
        assert word in lines[0]


def test_a_missing_file_suggests_near_ones_and_never_takes_one(tree: Tree) -> None:
    tree.list("torch_softmaxx")
    ran = tree.run("--op", "torch_softmaxx")
    assert ran.code == 2
    assert "did you mean torch_softmax?" in ran.err


OLD = "sys.version_info = (3, 9, 1)"
OPS, ALL = "mcoplib_mxbenchmark_ops.py", "testall.py"


@pytest.mark.parametrize(
    ("script", "args", "before", "words"),
    [
        (OPS, ["--op", "torch_softmax"], NO_TORCH, ["cannot import torch", "install torch"]),
        (OPS, ["--op", "torch_softmax"], OLD, ["is Python 3.9", "3.10 or later"]),
        (ALL, ["--ops", "torch_softmax"], OLD, ["is Python 3.9", "3.10 or later"]),
    ],
)
def test_an_unusable_python_exits_with_3_and_one_line(
    shared_tree: Tree, script: str, args: list[str], before: str, words: list[str]
) -> None:
    ran = shared_tree.run(*args, script=script, before=before)
    assert ran.code == 3
    assert len(ran.err.splitlines()) == 1
    for word in words:
        assert word in ran.err


def test_no_gpu_for_the_nvbench_engine_exits_with_3(shared_tree: Tree) -> None:
    ran = shared_tree.run("--op", "torch_softmax", "--engine", "nvbench")
    assert ran.code == 3
    assert "needs a GPU" in ran.err


@pytest.mark.parametrize("script", ["mcoplib_mxbenchmark_ops.py", "testall.py"])
def test_the_front_doors_parse_on_python_3_6(script: str) -> None:
    source = (BENCHMARK / script).read_text()
    ast.parse(source, feature_version=(3, 6))
    assert "from __future__ import annotations" not in source  # 3.7


def test_set_overlays_the_config_and_changes_no_file(tree: Tree) -> None:
    config = tree.root / "config/torch_softmax.json"
    before = config.read_bytes()
    out = tree.root / "r.jsonl"
    sets = ["--set", "num_rows=8", "--set", "row_size=[16, 32]", "--set", "dtype=float32"]
    ran = tree.run("--op", "torch_softmax", *sets, "--set", "samples=3", "--records", str(out))
    assert ran.code == 0, ran
    records = records_of(out)
    assert [r["parameters"] for r in records] == [
        {"dtype": "float32", "num_rows": 8, "row_size": size} for size in (16, 32)
    ]
    assert all(r["timers"]["cpu"]["samples"] == 5 * 3 for r in records)
    assert config.read_bytes() == before


def test_flags_for_nvbench_are_named_and_left_out_on_a_cpu(shared_tree: Tree) -> None:
    args = ["--op", "torch_softmax", "--set", "samples=2", "--set", "num_rows=4"]
    ran = shared_tree.run(*args, "--stopping-criterion", "entropy", "--min-time", "0.01")
    assert ran.code == 0
    assert "no use for --stopping-criterion entropy" in ran.err


def test_a_parameter_nobody_reads_is_named(tree: Tree) -> None:
    tree.add("good", {"dtype": "float32", "samples": 2, "hiden_size": 4}, GOOD)
    ran = tree.run("--op", "good", "--min-time", "0.01")
    assert ran.code == 0
    assert "never reads 'hiden_size'" in ran.err


def test_several_runner_classes_the_first_runs_with_a_warning(tree: Tree) -> None:
    tree.add("good", {"samples": 2}, GOOD + "\n\nclass Other(OpBenchmarkBase):\n    pass\n")
    ran = tree.run("--op", "good", "--min-time", "0.01")
    assert ran.code == 0
    assert "Good_runner runs, not Other" in ran.err


@pytest.mark.parametrize("op", OWN)
def test_own_operators_run_on_the_cpu(shared_tree: Tree, tmp_path: Path, op: str) -> None:
    table = tmp_path / "t.csv"
    ran = shared_tree.run("--op", op, "--csv", str(table), "--generate", "--set", "samples=5")
    assert ran.code == 0, ran
    (record,) = records_of(tmp_path / "t.records.jsonl")
    assert record["status"] == "PASSED" and record["library"]["name"] == "torch"
    assert record["elements"] > 0 and record["bytes_read"] > 0 and record["bytes_written"] > 0
    assert "," not in record["summaries"]["Shape"]
    config = json.loads((BENCHMARK / "config" / f"{op}.json").read_text())
    shown = {key: config[key] for key in config if key not in ("device_id", "samples")}
    assert record["parameters"] == shown, "a default of the runner is missing in the config"
    header, row = rows_of(table)
    assert (row[0], row[3]) == (op, "Yes") and len(row) == len(header)


def test_generate_twice_doubles_nothing(tree: Tree, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    tree.add("good", {"samples": 2}, GOOD)
    args = ("--op", "good", "--csv", str(table), "--generate", "--min-time", "0.01")
    first, before = tree.run(*args), table.read_bytes()
    second = tree.run(*args)
    assert "[APPEND] good" in first.out and "[SUMMARY] Appended: 1, Skipped: 0" in first.out
    assert "[SKIP] good" in second.out and "(Exists)" in second.out
    assert table.read_bytes() == before
    records = records_of(tmp_path / "t.records.jsonl")
    assert len({record["record_id"] for record in records}) == 2


def test_the_runner_alone_answers_as_the_working_description_shows(shared_tree: Tree) -> None:
    script = (
        "import json; from runners.mcoplib_mxbenchmark_torch_softmax_runners import *; "
        "cfg = json.load(open('config/torch_softmax.json')); "
        "r = Torch_softmax_runner('torch_softmax', cfg); print('VERIFY:', *r.run_verification(0))"
    )
    ran = shared_tree.run(before=script + "; sys.exit()")
    assert ran.out.startswith("VERIFY: True ")


class TestAll:
    """``testall.py``"""

    def test_each_operator_is_told_apart(self, tree: Tree, tmp_path: Path) -> None:
        crash = GOOD.replace("x + x", "__import__('os').kill(__import__('os').getpid(), 11)")
        wrong = GOOD.replace("x + x", "4 * x")
        absent = GOOD.replace("x + x", "torch.ops._C.nothing(x)")
        runners = {"a_crash": crash, "b_good": GOOD, "d_wrong": wrong}
        for name, runner in {**runners, "e_absent": absent}.items():
            tree.add(name, {"samples": 2, "dtype": "float32"}, runner)
        tree.add("f_broken", "{", GOOD)
        table = tmp_path / "t.csv"
        ops = "a_crash,b_good,d_wrong,e_absent,f_broken"
        args = ("--csv", str(table), "--ops", ops, "--min-time", "0.01")
        ran = tree.run(*args, script="testall.py")
        heads = [line for line in ran.out.splitlines() if line.startswith("[") and " ... " in line]
        shown = [line.split(" ... ")[1].split(" ")[0] for line in heads]
        assert shown == ["ERROR", "SUCCESS", "FAILED", "UNAVAILABLE", "ERROR"]
        assert heads[1].startswith("[2/5] b_good ... SUCCESS (appended) [")
        assert "SUMMARY | mode=generate | total=5 success=1 failed=1 skipped=0 | " in ran.out
        assert "error=2 timeout=0 unavailable=1" in ran.out
        assert "SIGSEGV" in ran.out and "config/f_broken.json:1" in ran.out
        assert ran.code == 1
        assert [row[0] for row in rows_of(table)[1:]] == ["b_good"]
        kept = [r["status"] for r in records_of(tmp_path / "t.records.jsonl")]
        assert kept == ["ERROR", "PASSED", "FAILED", "UNAVAILABLE"]

    def test_a_hang_is_ended_with_all_its_processes(self, tree: Tree, tmp_path: Path) -> None:
        pids = tmp_path / "pids"
        stubborn = (
            f"(__import__('signal').signal(15, 1), open({str(pids)!r}, 'w')"
            ".write(str(__import__('os').getpid())), __import__('time').sleep(1000))"
        )
        tree.add("c_hang", {"samples": 2}, GOOD.replace("x + x", stubborn))
        args = ("--csv", str(tmp_path / "t.csv"), "--ops", "c_hang", "--op-timeout", "10")
        ran = tree.run(*args, script="testall.py")
        assert "[1/1] c_hang ... TIMEOUT (killed after 10 s) [" in ran.out and ran.code == 4
        assert pids.exists() and not Path("/proc", pids.read_text()).exists()

    def test_dry_run_runs_nothing(self, shared_tree: Tree, tmp_path: Path) -> None:
        table = tmp_path / "t.csv"
        ran = shared_tree.run("--dry-run", "--csv", str(table), "--update", script="testall.py")
        assert ran.code == 0 and not table.exists()
        lines = ran.out.splitlines()
        assert [line.split("--op ")[1].split(" ")[0] for line in lines] == EVERY
        assert all(f"--update --csv {table}" in line for line in lines)

    def test_unknown_operator(self, shared_tree: Tree, tmp_path: Path) -> None:
        args = ("--csv", str(tmp_path / "t.csv"), "--ops", "torch_sofmax")
        ran = shared_tree.run(*args, script="testall.py")
        assert (ran.code, len(ran.err.splitlines())) == (2, 1)
        assert "did you mean torch_softmax" in ran.err


@pytest.mark.parametrize("script", ["mcoplib_mxbenchmark_ops.py", "testall.py"])
def test_a_comparison_with_a_table_that_is_not_there_is_a_mistake(
    shared_tree: Tree, tmp_path: Path, script: str
) -> None:
    which = ["--op" if script.startswith("mcoplib") else "--ops", "torch_softmax"]
    args = (*which, "--compare", "--csv", str(tmp_path / "none.csv"))
    ran = shared_tree.run(*args, script=script)
    assert ran.code == 2 and "there is no such table; make it with --generate" in ran.err
    assert not list(tmp_path.iterdir())


def test_a_workbook_is_testalls_to_write(shared_tree: Tree, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    args = ("--op", "torch_softmax", "--compare", "--csv", str(table))
    ran = shared_tree.run(*args, "--output", str(tmp_path / "o.xlsx"))
    assert ran.code == 2 and "testall.py writes a workbook" in ran.err


def test_what_the_machine_prevents_was_not_run(tree: Tree) -> None:
    config = tree.root / "config/torch_softmax.json"
    config.write_text(json.dumps({"num_rows": 4, "device_name": "MetaX C500"}))
    args = ("--csv", str(tree.root / "t.csv"), "--ops", "torch_softmax", "--strict")
    ran = tree.run(*args, script="testall.py")
    assert ran.code == 3 and "torch_softmax ... NOT_RUN (config/torch_softmax.json:" in ran.out, ran
    assert "not_run=1" in ran.out and "error=0" in ran.out
