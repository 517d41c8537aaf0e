"""A run's folder takes names of any kind and keeps them apart."""

from __future__ import annotations

import fcntl
import os
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.events import Note, OutputLine
from orchestrator.execute.folder import RunFolder, safe_name

HOSTILE = [
    "",
    ".",
    "..",
    "...",
    "../../etc/passwd",
    "/etc/passwd",
    "a/b",
    "a_b",
    "a b",
    "a\0b",
    "a\nb",
    "-rf",
    ".hidden",
    "hidden",
    "host:container",
    "host_container",
    "x" * 300,
    "x" * 301,
    "\u4e2d\u6587",
    "\u6587\u4e2d",
    "\udcff",
    "*",
    "?",
]


def test_hostile_names_stay_inside_and_apart(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "run")
    paths = []
    for target in HOSTILE:
        for path in (
            folder.log(target, "op"),
            folder.records(target, "op"),
            folder.csv("t", target),
        ):
            path.write_bytes(b"x")
            assert path.resolve().is_relative_to(
                folder.path / path.relative_to(folder.path).parts[0]
            )
            paths.append(path)
    assert len(set(paths)) == len(paths)


@pytest.mark.parametrize("name", ["c500-01", "c500-01:vllm-dsv4", "torch_rms_norm", "a.b+c=d@e"])
def test_ordinary_names_stay_as_they_are(name: str) -> None:
    assert safe_name(name) == name


@given(st.text(), st.text())
def test_names_are_safe_and_distinct(one: str, two: str) -> None:
    for text in (one, two):
        name = safe_name(text)
        assert name and not name.startswith(".") and "/" not in name and len(name) < 200
    assert (safe_name(one) == safe_name(two)) is (one == two)


def test_attempts_have_logs_of_their_own(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "run")
    logs = [folder.log("t", "op", attempt) for attempt in (1, 2, 3)]
    assert all(a != b for a, b in pairwise(logs))


RUNS = ("20261130-100000-aaaaaa", "20261130-100000-aabbbb", "20261201-100000-cccccc")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, RUNS[2]),
        (RUNS[0], RUNS[0]),
        ("20261130-100000-aab", RUNS[1]),
        ("20261201", RUNS[2]),
        ("20261130", "names 2 runs"),
        ("2025", "no run '2025'"),
        ("../x", "no run '../x'"),
    ],
)
def test_opening(tmp_path: Path, asked: str | None, expected: str) -> None:
    for run in RUNS:
        RunFolder.create(tmp_path, run)
    if " " in expected:
        with pytest.raises(UsageError, match=expected):
            RunFolder.open(tmp_path, asked)
    else:
        assert RunFolder.open(tmp_path, asked).run == expected


def test_nothing_to_open(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run yet"):
        RunFolder.open(tmp_path / "runs", None)


def test_a_run_is_created_once(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, "run")
    with pytest.raises(UsageError, match="cannot make the run's folder"):
        RunFolder.create(tmp_path, "run")


@pytest.mark.parametrize("data", [None, b"", b"{", b"\xff"])
def test_what_cannot_be_read_back(tmp_path: Path, data: bytes | None) -> None:
    folder = RunFolder.create(tmp_path, "run")
    if data is not None:
        (folder.path / "plan.json").write_bytes(data)
    with pytest.raises(UsageError, match=r"plan\.json cannot be read"):
        folder.read_json("plan.json")


def test_json_survives(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "run")
    value = {"name": "\u4e2d\udcff", "list": [1, None]}
    folder.write_json("plan.json", value)
    assert folder.read_json("plan.json") == value
    folder.write_checkout("a:b", {"op": {"x": 1}})
    folder.write_checkout("nothing", {})
    assert folder.read_checkout("a:b") == {"op": {"x": 1}}
    assert folder.read_checkout("nothing") == {}


def test_events_without_the_output(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "run")
    folder.event(OutputLine("t", "op", "stdout", "in the log"))
    folder.event(Note("\u4e2d\udcff\n"))
    text = (folder.path / "events.jsonl").read_text()
    assert text.count("\n") == 1
    assert '"event":"note"' in text


def test_intents_tell_the_latest_attempt_of_each_job(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "run")
    assert folder.intended() == {}
    for target, op, attempt in (("a", "x", 1), ("b:c", "x", 1), ("a", "x", 2), ("a", "y", 1)):
        folder.intend(target, op, f"r.{target}.{op}.a{attempt}", attempt)
    assert folder.intended() == {
        ("a", "x"): ("r.a.x.a2", 2),
        ("b:c", "x"): ("r.b:c.x.a1", 1),
        ("a", "y"): ("r.a.y.a1", 1),
    }


@pytest.mark.parametrize("cut", range(1, 59))
def test_an_intent_that_was_cut_off_is_none_and_spoils_no_other(tmp_path: Path, cut: int) -> None:
    """Wherever the crash came in the last line: nothing was started for it."""
    folder = RunFolder.create(tmp_path, "run")
    folder.intend("a", "x", "r.a.x.a1", 1)
    path = folder.path / "attempts.jsonl"
    whole = path.read_bytes()
    folder.intend("a", "y", "r.a.y.a1", 1)
    path.write_bytes(whole + path.read_bytes()[len(whole) :][:cut])
    assert folder.intended() == {("a", "x"): ("r.a.x.a1", 1)}
    folder.intend("b", "x", "r.b.x.a1", 1)
    assert folder.intended().keys() == {("a", "x"), ("b", "x")}


@pytest.mark.parametrize("line", [b"[]", b"7", b"{}", b"\xff", b'{"target": "a", "op": "y"}', b""])
def test_lines_that_are_no_intents(tmp_path: Path, line: bytes) -> None:
    folder = RunFolder.create(tmp_path, "run")
    folder.intend("a", "x", "r.a.x.a1", 1)
    with (folder.path / "attempts.jsonl").open("ab") as stream:
        stream.write(line + b"\n")
    folder.intend("b", "x", "r.b.x.a1", 1)
    assert folder.intended().keys() == {("a", "x"), ("b", "x")}


def test_who_looks_whether_a_folder_is_held_keeps_nobody_from_holding_it(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "run")
    with folder.held():
        assert folder.holder() == os.getpid()
        with pytest.raises(UsageError, match="another mxfleet is at work"), folder.held():
            pass
    looking = os.open(folder.path / ".lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    timer = threading.Timer(0.1, os.close, (looking,))
    timer.start()
    with folder.held():
        assert folder.is_held()
    assert folder.holder() is None
    timer.join()


@pytest.mark.parametrize(
    "changes",
    [
        {"spec": 7},
        {"spec": {"env": 1e308}},
        {"spec": {"env": {"A": None}}},
        {"spec": {"argv": "word"}},
        {"spec": {"argv": [["word"]]}},
        {"spec": {"store": 5}},
        {"job": 5},
        {"attempt": "1"},
        {"attempt": 0},
        {"attempt": 10**9},
    ],
    ids=str,
)
def test_a_damaged_plan_is_told(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = RunFolder.create(tmp_path, "r")
    job = {"target": "h", "op": "o", "job": "j", "spec": {"env": {}, "store": None}, "attempt": 1}
    folder.write_json("plan.json", {"jobs": [job]})
    assert folder.planned("job", "spec", "attempt") == [job]
    folder.write_json("plan.json", {"jobs": [{**job, **changes}]})
    with pytest.raises(UsageError, match="damaged"):
        folder.planned("job", "spec", "attempt")
