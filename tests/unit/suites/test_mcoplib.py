"""Bad trees, found on this side within a second: what is wrong, in which line, what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import ExitCode, MxfleetError
from orchestrator.suites.markers import ABSENT
from orchestrator.suites.mcoplib import SCRIPT, McoplibSuite
from orchestrator.suites.measuring import Measuring

RUNNER = "runners/mcoplib_mxbenchmark_{op}_runners.py"
GOOD = (
    "from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase\nclass R(OpBenchmarkBase): pass\n"
)
OPS = ("rms_norm", "rms_norm_static", "softmax")


@pytest.fixture
def suite(tmp_path: Path) -> McoplibSuite:
    folder = tmp_path / "benchmark"
    (folder / "config").mkdir(parents=True)
    (folder / "runners").mkdir()
    names = "".join(f'    "{op}",\n' for op in OPS)
    (folder / SCRIPT).write_text(f"SUPPORTED_OPERATORS = [\n{names}]\n")
    for op in OPS:
        (folder / "config" / f"{op}.json").write_text('{"dtype": "float16"}')
        (folder / RUNNER.format(op=op)).write_text(GOOD)
    return McoplibSuite(folder)


def write(name: str, data: str | bytes | None) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        path = folder / name.format(op="softmax")
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data.encode() if isinstance(data, str) else data)

    return act


def folder_instead(name: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        path = folder / name.format(op="softmax")
        path.unlink()
        path.mkdir()

    return act


CONFIG = "config/{op}.json"
BAD = [
    ("missing config", write(CONFIG, None), CONFIG, "the config of 'softmax' is missing"),
    ("config is a folder", folder_instead(CONFIG), CONFIG, "the config of 'softmax' is missing"),
    ("broken JSON", write(CONFIG, '{\n  "a": 1,\n  "b": oops\n}'), CONFIG + ":3", "broken JSON"),
    ("cut JSON", write(CONFIG, '{"a":\n'), CONFIG + ":2", "broken JSON"),
    ("empty config", write(CONFIG, ""), CONFIG + ":1", "broken JSON"),
    ("config is a list", write(CONFIG, "[1]"), CONFIG + ":1", "not a JSON object"),
    ("config is not UTF-8", write(CONFIG, b'{\n"a": "\xff"}'), CONFIG + ":2", "not UTF-8"),
    ("endless config", write(CONFIG, "[" * 200_000), CONFIG + ":1", "nested too deeply"),
    ("missing runner", write(RUNNER, None), RUNNER, "the runner of 'softmax' is missing"),
    ("syntax error", write(RUNNER, "import os\nclass A(:\n"), RUNNER + ":2", "syntax error"),
    ("empty runner", write(RUNNER, ""), RUNNER + ":1", "no subclass of OpBenchmarkBase"),
    ("no class", write(RUNNER, "x = 1\n"), RUNNER + ":1", "no subclass of OpBenchmarkBase"),
    ("plain class", write(RUNNER, "class A: pass\n"), RUNNER + ":1", "no subclass"),
    (
        "another base",
        write(RUNNER, "import torch\nclass A(torch.nn.Module): pass\n"),
        RUNNER + ":1",
        "no subclass",
    ),
    ("NUL bytes", write(RUNNER, GOOD + "\0"), RUNNER + ":1", ""),
    ("runner is not UTF-8", write(RUNNER, b"# ok\n# \xe9\n"), RUNNER + ":2", "not UTF-8"),
    ("endless runner", write(RUNNER, "x = " + "(" * 5000), RUNNER + ":1", ""),
    ("front door missing", write(SCRIPT, None), SCRIPT, "the file is missing"),
    ("front door without list", write(SCRIPT, "pass\n"), SCRIPT, "there is no SUPPORTED_OPERATORS"),
    (
        "computed list",
        write(SCRIPT, "import os\nSUPPORTED_OPERATORS = os.listdir()\n"),
        SCRIPT + ":2",
        "not a literal list",
    ),
]


@pytest.mark.parametrize(
    ("spoil", "where", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD]
)
def test_bad_trees(
    suite: McoplibSuite, spoil: Callable[[Path], None], where: str, message: str
) -> None:
    spoil(suite.folder)
    with pytest.raises(MxfleetError) as caught:
        suite.check(["softmax"])
    error = caught.value
    assert error.where == f"{suite.folder}/{where.format(op='softmax')}"
    assert message in error.message
    assert error.hint
    assert error.code is ExitCode.USAGE
    assert "\n" not in str(error)


def test_other_operators_are_not_looked_at(suite: McoplibSuite) -> None:
    suite.config_path("softmax").write_text("{")
    suite.check(["rms_norm"])


@pytest.mark.parametrize(
    ("asked", "suggested"),
    [
        ("rmsnorm", "rms_norm"),
        ("rms_norm_statik", "rms_norm_static"),
        ("Softmax", "softmax"),
        ("rms_nor", "rms_norm or rms_norm_static"),
        ("completely_other", None),
        ("", None),
        ("../softmax", "softmax"),
    ],
)
def test_unknown_operators(suite: McoplibSuite, asked: str, suggested: str | None) -> None:
    """Exact names only; near ones are suggested, never taken."""
    with pytest.raises(MxfleetError) as caught:
        suite.check([asked])
    assert caught.value.message == f"unknown operator {asked!r}"
    if suggested is None:
        assert caught.value.hint == "write its config and runner and add it to SUPPORTED_OPERATORS"
    else:
        assert caught.value.hint is not None
        assert caught.value.hint.startswith(f"did you mean {suggested}")


def test_a_file_of_nearly_the_name_is_suggested(suite: McoplibSuite) -> None:
    suite.config_path("softmax").rename(suite.folder / "config" / "soft_max.json")
    with pytest.raises(MxfleetError, match=r"did you mean soft_max\.json"):
        suite.check(["softmax"])


@pytest.mark.parametrize(
    "source",
    [
        GOOD,
        "import mcoplib_mxbenchmark_op_wrapper as w\nclass R(w.OpBenchmarkBase): pass\n",
        "from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase as B\nclass R(B): pass\n",
        "from mcoplib_mxbenchmark_op_wrapper import *\nclass R(OpBenchmarkBase): pass\n",
        "from runners.mcoplib_mxbenchmark_rms_norm_runners import Rms\nclass R(Rms): pass\n",
        "try:\n    from mcoplib import op\nexcept ImportError:\n    op = None\n" + GOOD,
        "if True:\n    class R(object, OpBenchmarkBase): pass\n",
        "\ufeff" + GOOD,
    ],
)
def test_runners_as_people_write_them(suite: McoplibSuite, source: str) -> None:
    suite.runner_path("softmax").write_text(source, encoding="utf-8")
    suite.check(["softmax"])


def test_the_command() -> None:
    suite = McoplibSuite(Path("/x"))
    base = [SCRIPT, "--op", "a b", "--csv", "@JOB@/result.csv", "--generate"]
    asked = Measuring(samples=5, repeats=2)
    assert suite.command("a b", measuring=Measuring(), established=True) == base
    assert suite.command("a b", measuring=asked, established=True) == base
    ours = [*base, "--records", "@JOB@/records.jsonl"]
    assert suite.command("a b", measuring=Measuring(), established=False) == ours
    assert suite.command("a b", measuring=asked, established=False) == [*ours, *asked.words()]
    peaks = {"C600": {"bandwidth": 2e12}}
    told = suite.command("a b", measuring=asked, established=False, gpu_specs=peaks)
    assert told[:-1] == [*ours, *asked.words(), "--specs"]
    assert json.loads(told[-1]) == peaks
    assert suite.command("a b", measuring=asked, established=True, gpu_specs=peaks) == base
    libraries = ["vllm", "_C=/x y.so"]
    told = suite.command("a b", measuring=Measuring(), established=False, library=libraries)
    assert told == [*ours, "--library", "vllm", "--library", "_C=/x y.so"]
    assert suite.command("a b", measuring=asked, established=True, library=libraries) == base
    only = Measuring(cases=("a=1",), strict=True, verify_only=True)
    records = ["--records", "@JOB@/records.jsonl"]
    told = suite.command("a b", measuring=only, established=False)
    assert told == [SCRIPT, "--op", "a b", *records, *only.words()]
    program, *arguments = suite.command("a b", measuring=only, established=True)[1:]
    assert "run_verification" in program
    assert arguments == ["a b", records[1], ABSENT, "a=1"]
