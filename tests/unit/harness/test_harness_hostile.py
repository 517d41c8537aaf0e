"""Runners that meddle with what surrounds them: files, descriptors, streams, texts, processes."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import csvmodes, csvtable, files, plain, record, worker
from harness.errors import ForeignFileError
from harness_tree import BENCHMARK, Tree, records_of, rows_of

# Meddles while it is verified, in the case with `step` 1; otherwise right.
RUNNER = """
import fcntl, json, os, signal, sys
import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase


def meddle():
    {meddle}


class Bad_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.step = config.get("step", 1)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        if self.step:
            state.add_summary("Shape", {shape})

    def prepare_and_get_launcher(self, dev_id, tc_s):
        x = torch.ones(4)
        return self.make_launcher(dev_id, torch.add, x, x)

    def run_verification(self, dev_id):
        if self.step:
            meddle()
        x = torch.ones(4)
        return self.check_diff(x + x, 2 * x)
"""
FORGED = {"outcome": {"status": "PASSED", "verification": None, "cos_dist": "0.00e+00"}}
STRAY = f"""
    line = json.dumps({FORGED!r}).encode() + b"\\n"
    for descriptor in range(3, 1024):
        try:
            os.write(descriptor, line)
        except OSError:
            pass
"""


def _add(tree: Tree, meddle: str = "pass", shape: str = "'(4)'", steps: Any = 1) -> None:
    source = RUNNER.replace("{meddle}", meddle.strip()).replace("{shape}", shape)
    tree.add("bad", {"step": steps, "dtype": "float32", "samples": 5}, source)


def _run(tree: Tree, *more: str) -> Any:
    return tree.run("--op", "bad", "--generate", "--csv", "t.csv", "--min-time", "0.01", *more)


# Each replaces a file by something that must be left alone.
REPLACED = [
    pytest.param("t.records.jsonl", "os.symlink('victim', NAME)", id="records-link"),
    pytest.param("t.records.jsonl", "os.mkfifo(NAME)", id="records-fifo"),
    pytest.param("t.csv", "os.symlink('victim', NAME)", id="csv-link"),
    pytest.param("t.csv", "os.mkfifo(NAME)", id="csv-fifo"),
    pytest.param("t.csv", "os.symlink(NAME, NAME)", id="csv-link-to-itself"),
    pytest.param(".t.csv.lock", "os.symlink('victim', NAME)", id="lock-link"),
    pytest.param(".t.csv.lock", "os.mkfifo(NAME)", id="lock-fifo"),
]


@pytest.mark.parametrize(("name", "put"), REPLACED)
def test_what_a_runner_puts_in_place_of_a_file_is_left_alone(
    tree: Tree, name: str, put: str
) -> None:
    victim = tree.root / "victim"
    victim.write_text("precious\n")
    remove = f"os.path.lexists({name!r}) and os.unlink({name!r})"
    _add(tree, f"{remove}; {put.replace('NAME', repr(name))}")
    ran = _run(tree)
    assert ran.code == 1, ran
    errors = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and name.removesuffix(".lock").strip(".") in errors[0], ran.err
    assert "Traceback" not in ran.err
    assert victim.read_text() == "precious\n"


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "folder"])
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | os.O_APPEND | os.O_CREAT])
def test_only_regular_files_are_opened(tmp_path: Path, kind: str, flags: int) -> None:
    path, other = tmp_path / "it", tmp_path / "other"
    if kind == "link":
        other.write_text("x")
    make: dict[str, Callable[[], Any]] = {
        "link": lambda: path.symlink_to(other),
        "dangling": lambda: path.symlink_to(other),
        "fifo": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }
    make[kind]()
    with pytest.raises((ForeignFileError, IsADirectoryError)):
        files.open_regular(path, flags)
    assert other.exists() is (kind == "link")


def test_lines_aside_and_compared_results_follow_no_link(tmp_path: Path, row: Any) -> None:
    victim, table = tmp_path / "victim", tmp_path / "t.csv"
    victim.write_text("precious\n")
    csvmodes.generate(table, [row()])
    with table.open("a") as file:
        file.write("too,short\n")
    csvtable.rejected_path(table).symlink_to(victim)
    with pytest.raises(ForeignFileError, match="is a link"):
        csvmodes.generate(table, [row(case="bbbb", SHAPE="(9)")])
    output = tmp_path / "compared.csv"
    output.symlink_to(victim)
    with pytest.raises(ForeignFileError, match="is a link"):
        csvmodes.compare(table, "my_op", [("Pass", row())], output)
    assert victim.read_text() == "precious\n" and "too,short" in table.read_text()


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param("os.write(HANDLE, b'garbage\\n')", id="garbage"),
        pytest.param('os.write(HANDLE, b\'{"status": "SPLENDID"}\\n\')', id="no-status"),
        pytest.param("os.unlink(OWN); os.mkfifo(OWN)", id="fifo"),
    ],
)
def test_testall_names_an_operator_that_spoils_its_records(tree: Tree, spoil: str) -> None:
    own = "sys.argv[sys.argv.index('--records') + 1]"
    handle = f"os.open({own}, os.O_WRONLY | os.O_APPEND)"
    _add(tree, spoil.replace("HANDLE", handle).replace("OWN", own))
    arguments = ("--ops", "bad,torch_softmax", "--csv", "t.csv", "--min-time", "0.01")
    ran = tree.run(*arguments, script="testall.py")
    assert ran.code == 1 and "Traceback" not in ran.err, ran
    assert "bad ... ERROR" in ran.out and "torch_softmax ... SUCCESS" in ran.out


@pytest.mark.parametrize(
    ("meddle", "message"),
    [
        pytest.param(f"{STRAY.strip()}\n    os._exit(0)", "something else", id="stray-and-exit"),
        pytest.param(STRAY, "something else", id="stray"),
        pytest.param("os.fork()", "reported twice", id="fork-returns"),
        pytest.param("os._exit(0)", "without a result", id="exit"),
    ],
)
def test_only_one_result_of_the_harness_own_counts(tree: Tree, meddle: str, message: str) -> None:
    _add(tree, meddle, steps=[1, 0])
    ran = _run(tree)
    first, second = records_of(tree.root / "t.records.jsonl")
    assert (first["status"], second["status"]) == ("ERROR", "PASSED"), ran
    assert message in first["error"]["message"] and first["timers"]["cpu"] is None
    assert ran.code == 1
    assert [row[-1] for row in rows_of(tree.root / "t.csv")[1:]] == [second["case_id"]]


def test_a_result_counts_only_when_the_process_ends_well(tree: Tree) -> None:
    # Killed while its output is brought out: the result has been sent by then.
    _add(tree, "sys.stderr.flush = lambda: os.kill(os.getpid(), signal.SIGKILL)")
    ran = _run(tree)
    (found,) = records_of(tree.root / "t.records.jsonl")
    assert found["status"] == "ERROR" and "SIGKILL" in found["error"]["message"]
    assert ran.out.count(" Done.") == 1
    assert not (tree.root / "t.csv").exists()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_closed_stream_does_not_let_the_child_into_the_parents_code(
    tree: Tree, stream: str
) -> None:
    _add(tree, f"sys.{stream}.close()", steps=[1, 0])
    ran = _run(tree)
    found = records_of(tree.root / "t.records.jsonl")
    assert [r["parameters"]["step"] for r in found] == [1, 0], ran
    assert found[1]["status"] == "PASSED"
    assert ran.out.count("[SUMMARY]") == 1


@pytest.mark.parametrize(
    "spoil", ["sys.stdout.close()", "sys.stderr.close()", "sys.stdout = sys.stderr = None"]
)
@pytest.mark.parametrize("then", ["pass", "raise ValueError('x')"])
def test_the_child_ends_whatever_flushing_does(spoil: str, then: str) -> None:
    script = (
        "import ctypes, os, sys\nfrom harness import worker\nparent = os.getpid()\n"
        "def work(send):\n    send({'a': 1})\n    ctypes.CDLL(None).puts(b'from C')\n"
        f"    {spoil}\n    {then}\n"
        "ended = worker.call(work)\nassert os.getpid() == parent\nprint(ended.messages)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=BENCHMARK,
        capture_output=True,
        text=True,
        # Unbuffered, C's own stdio would have nothing left to bring out.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": ""},
        timeout=120,
    )
    assert done.stdout == "from C\n[{'a': 1}]\n", done


@pytest.mark.parametrize("number", ["SIGKILL", "SIGTERM"])
def test_a_front_door_that_ends_early_forges_no_row(tree: Tree, number: str) -> None:
    forged = json.dumps({"status": "PASSED"})
    line = f"open('t.records.jsonl', 'a').write({forged!r} + chr(10)); "
    _add(tree, f"{line}os.kill(os.getppid(), signal.{number}); signal.pause()", steps=[0, 1])
    ran = _run(tree)
    assert ran.code < 0, ran
    # Told to end it still writes what was measured until then; killed it cannot.
    written = tree.root / "t.csv"
    assert written.exists() == (number == "SIGTERM")
    if number == "SIGTERM":
        assert len(rows_of(written)) == 2 and ran.out.count("[APPEND]") == 1, ran


def test_the_result_pipe_is_high_and_closed_on_exec() -> None:
    def pipes() -> dict[int, bool]:
        found = {}
        for descriptor in range(3, 1024):
            try:
                kind = str(Path(f"/proc/self/fd/{descriptor}").readlink())
            except FileNotFoundError:
                continue
            if kind.startswith("pipe:"):
                found[descriptor] = os.get_inheritable(descriptor)
        return found

    before = pipes()
    ended = worker.call(lambda send: send({"pipes": sorted(pipes().items())}))
    own = [pipe for pipe in ended.messages[0]["pipes"] if pipe[0] not in before]
    assert len(own) == 1 and own[0][0] >= 128 and own[0][1] is False


def test_messages_arrive_whole_or_not_at_all() -> None:
    ended = worker.Ended()
    frames = worker._Frames(b"n" * 16, ended)
    text = b'{"a":1}'
    whole = b"n" * 16 + len(text).to_bytes(8, "big") + text
    for at in range(len(whole)):
        frames.feed(whole[at : at + 1])
    assert ended.messages == [{"a": 1}]
    frames.feed(whole[:-1])
    frames.end()
    assert ended.messages == [{"a": 1}] and ended.foreign and ended.how() is not None


INF, HUGE = math.inf, 1 << 64


@pytest.mark.parametrize(
    ("dirty", "cleaned", "said"),
    [
        ({"op": "x\udcff"}, {"op": "x\\udcff"}, ["op: lone surrogates escaped"]),
        ({"error": {"\ud800": "\udfff"}}, {"error": {"\\ud800": "\\udfff"}}, ["error.\\ud800: l"]),
        ({"duration": math.nan}, {"duration": None}, ["duration: nan"]),
        ({"timers": {"cpu": [-INF]}}, {"timers": {"cpu": [None]}}, ["timers.cpu[0]: -inf"]),
        ({"parameters": {"a": INF}}, {"parameters": {"a": "inf"}}, ["parameters.a: inf"]),
        ({"bytes_read": HUGE}, {"bytes_read": None}, ["bytes_read: integer beyond"]),
        ({"summaries": {"n": HUGE}}, {"summaries": {"n": str(HUGE)}}, ["summaries.n: integer"]),
        (
            {"parameters": {"n": 10**5000}},
            {"parameters": {"n": hex(10**5000)}},
            ["parameters.n: integer"],
        ),
        ({"parameters": {"n": (1 << 63) - 1, "m": -(1 << 63), "t": True, "é": "\0"}}, None, []),
    ],
)
def test_clean(dirty: dict[str, Any], cleaned: dict[str, Any] | None, said: list[str]) -> None:
    result = plain.clean(dirty)
    assert plain.clean(result) == result
    places = result.pop("rewritten", [])
    assert result == (dirty if cleaned is None else cleaned)
    assert len(places) == len(said)
    assert all(place.startswith(start) for place, start in zip(places, said, strict=True))


def test_whatever_a_runner_says_the_record_is_utf8_and_strict_json(tree: Tree) -> None:
    _add(tree, "pass", "chr(0xdcff) + ' é'")
    ran = _run(tree, "--set", f"big={1 << 70}", "--set", "x=a\udcff")
    (found,) = records_of(tree.root / "t.records.jsonl")
    assert found["status"] == "PASSED", ran
    assert found["summaries"]["Shape"] == "\\udcff é"
    assert found["parameters"]["big"] == str(1 << 70) and found["parameters"]["x"] == "a\\udcff"
    assert sorted(place.split(":")[0] for place in found["rewritten"]) == [
        "parameters.big",
        "parameters.x",
        "summaries.Shape",
    ]
    assert "\\udc" not in (tree.root / "t.records.jsonl").read_text().replace("\\\\udc", "")
    assert rows_of(tree.root / "t.csv")[1][7] == "\\udcff é"


def test_an_error_with_lone_surrogates_is_readable(tree: Tree) -> None:
    _add(tree, "raise ValueError(chr(0xd800))")
    _run(tree)
    (found,) = records_of(tree.root / "t.records.jsonl")
    assert found["error"]["message"] == "\\ud800" and "\\ud800" in found["error"]["traceback"]


def test_a_declaration_that_json_cannot_carry_is_an_error_of_its_case(tree: Tree) -> None:
    _add(tree, "pass", "10 ** 5000", steps=[1, 0])
    ran = _run(tree)
    first, second = records_of(tree.root / "t.records.jsonl")
    assert (first["status"], second["status"]) == ("ERROR", "PASSED"), ran
    assert "cannot be written as JSON" in first["error"]["message"]


@pytest.mark.parametrize("digits", [5000])
def test_an_integer_that_python_does_not_read_is_one_line_of_error(tree: Tree, digits: int) -> None:
    _add(tree)
    (tree.root / "config" / "bad.json").write_text(f'{{"n": {"1" * 5000}}}')
    ran = _run(tree)
    assert ran.code == 2 and ran.err.startswith("error: config/bad.json: ")
    assert len(ran.err.splitlines()) == 1


def test_records_are_appended_beside_a_folder_that_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    record.append(tmp_path / "link" / "r.jsonl", {"a": 1})
    assert records_of(tmp_path / "real" / "r.jsonl") == [{"a": 1}]
