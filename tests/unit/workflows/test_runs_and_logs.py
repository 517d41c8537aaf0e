"""What there is of runs, told from their folders: whole ones, cut-off ones, damaged ones."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.events import Event, JobEnded, Note, OutputLine, RunLine, Summary
from orchestrator.execute.folder import RunFolder
from orchestrator.inventory.model import Inventory
from orchestrator.show.plain import PlainRenderer
from orchestrator.show.runs import runs_table
from orchestrator.workflows.context import Context
from orchestrator.workflows.detached import kill
from orchestrator.workflows.logs import logs
from orchestrator.workflows.runs import runs

JOBS = [
    {"target": "a", "op": "gelu"},
    {"target": "a", "op": "rms_norm"},
    {"target": "b:box", "op": "gelu"},
]


class Heard:
    """A sink that keeps events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def runs(self) -> list[RunLine]:
        return [event for event in self.events if isinstance(event, RunLine)]

    def lines(self) -> list[tuple[str, str, str]]:
        found = [event for event in self.events if isinstance(event, OutputLine)]
        return [(line.target, line.op, line.text) for line in found]

    def summary(self) -> Summary:
        (found,) = [event for event in self.events if isinstance(event, Summary)]
        return found


@pytest.fixture
def heard() -> Heard:
    return Heard()


Make = Callable[..., RunFolder]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes the folder of a run, with a plan and a summary unless told otherwise."""

    def folder(
        run: str, *, plan: Any = "usual", summary: Any = None, jobs: list[Any] | None = None
    ) -> RunFolder:
        made = RunFolder.create(tmp_path, run)
        usual = {"run": run, "tree": "t", "mode": "generate", "jobs": jobs or JOBS}
        if plan is not None:
            made.write_json("plan.json", usual if plan == "usual" else plan)
        if summary is not None:
            made.write_json("run-summary.json", summary)
        return made

    return folder


ENDED = {"exit_code": 1, "counts": {"PASSED": 2, "FAILED": 1}, "seconds": 61.5}


def test_runs_come_latest_first_with_what_became_of_them(
    make: Make, tmp_path: Path, heard: Heard
) -> None:
    make("20260101-000000-aaaaaa", summary=ENDED)
    make("20260102-000000-bbbbbb")
    held = make("20260103-000000-cccccc", summary=ENDED)
    with held.held():
        assert runs(tmp_path, heard, None) == 0
    found = [(line.run[:8], line.state, line.exit_code) for line in heard.runs()]
    assert found == [
        ("20260103", "running", None),
        ("20260102", "unfinished", None),
        ("20260101", "ended", 1),
    ]
    last = heard.runs()[-1]
    assert last.ops == ("gelu", "rms_norm") and last.targets == ("a", "b:box")
    assert last.counts == {"PASSED": 2, "FAILED": 1} and last.seconds == 61.5
    assert heard.summary().counts == {"running": 1, "unfinished": 1, "ended": 1}


@pytest.mark.parametrize("command", ["verify", "testall"])
def test_runs_of_other_commands_have_their_own_summary(
    make: Make, tmp_path: Path, heard: Heard, command: str
) -> None:
    plan = {"run": "r", "tree": "t", "mode": "generate", "jobs": JOBS, "command": command}
    made = make("20260101-000000-aaaaaa", plan=plan)
    made.write_json("pull-summary.json", {**ENDED, "exit_code": 0})
    runs(tmp_path, heard, None)
    made.write_json(f"{command}-summary.json", ENDED)
    runs(tmp_path, heard, None)
    assert [(line.state, line.exit_code) for line in heard.runs()] == [
        ("unfinished", None),
        ("ended", 1),
    ]


def test_a_limit_says_what_it_leaves_out(make: Make, tmp_path: Path, heard: Heard) -> None:
    for day in range(1, 6):
        make(f"2026010{day}-000000-aaaaaa")
    runs(tmp_path, heard, 2)
    assert [line.run[:8] for line in heard.runs()] == ["20260105", "20260104"]
    assert heard.summary().message == "2 of 5 runs; --limit shows more"


def test_no_runs_are_no_error(tmp_path: Path, heard: Heard) -> None:
    assert runs(tmp_path / "none", heard, 20) == 0
    assert "no run in" in str(heard.summary().message)


@pytest.mark.parametrize(
    ("plan", "summary", "state", "words"),
    [
        (None, None, "unfinished", "plan.json cannot be read"),
        ([], None, "unfinished", "damaged"),
        ({"jobs": [{}]}, None, "unfinished", "damaged"),
        ({"jobs": 7}, ENDED, "ended", "damaged"),
        ("usual", {"exit_code": "x"}, "unfinished", None),
        ("usual", {"exit_code": 0, "counts": []}, "unfinished", None),
        ("usual", [], "unfinished", None),
    ],
)
def test_a_damaged_run_is_told_and_stops_no_other(
    make: Make, tmp_path: Path, heard: Heard, plan: Any, summary: Any, state: str, words: str | None
) -> None:
    make("20260102-000000-bbbbbb", plan=plan, summary=summary)
    make("20260101-000000-aaaaaa", summary=ENDED)
    runs(tmp_path, heard, None)
    odd, fine = heard.runs()
    assert (odd.state, fine.state) == (state, "ended")
    assert odd.message is None if words is None else words in str(odd.message)


def test_the_table_of_runs_stays_within_its_width() -> None:
    many = tuple(f"operator_{number}" for number in range(40))
    lines = [
        RunLine("20260101-000000-aaaaaa", "ended", "/r", many, ("a",), 0, {"PASSED": 40}, 3.0),
        RunLine("20260102-000000-bbbbbb", "unfinished", "/r", message="x\x1b[2J" * 90),
        RunLine(
            "20260103-000000-cccccc", "ended", "/r", ("a" * 60,), ("t" * 60,), 1, {"FAILED": 1}
        ),
    ]
    shown = runs_table(lines, 80)
    assert all(len(line) <= 80 for line in shown) and "\x1b" not in "".join(shown)
    assert "40 operators on a" in shown[2] and "40 PASSED" in shown[2]
    assert shown[-1].endswith("1 FAILED")
    assert runs_table([], 80) == []


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (None, "run command started state exit took jobs of rows"),
        (200, "run command started state exit took jobs of rows"),
        (105, "run command state exit took jobs of rows"),
        (80, "run state exit jobs of rows"),
    ],
)
def test_a_wide_table_of_runs_says_more(width: int | None, titles: str) -> None:
    line = RunLine(
        run="20260101-000000-aaaaaa",
        state="ended",
        folder="/r",
        ops=("a_long_name_of_an_operator",),
        targets=("h1", "h2"),
        exit_code=1,
        counts={"UNAVAILABLE": 2, "FAILED": 1, "PASSED": 3},
        seconds=61.5,
        command="testall",
        started=time.mktime((2026, 1, 1, 0, 0, 5, 0, 0, -1)),
    )
    head, _, row = runs_table([line], width)
    assert head.split() == titles.split()
    assert width is None or len(row) <= width
    if "started" in titles:
        assert "testall  2026-01-01 00:00  ended" in row
        assert row.endswith(
            "a_long_name_of_an_operator on 2 targets  3 PASSED, 1 FAILED, 2 UNAVAILABLE"
        )


def test_runs_in_a_pipe_are_not_cut(make: Make, tmp_path: Path) -> None:
    ops = [{"target": "t" * 40, "op": "o" * 90}, {"target": "t" * 40, "op": "p" * 90}]
    make("20260101-000005-aaaaaa", jobs=ops, summary=ENDED)
    out = io.StringIO()
    runs(tmp_path, PlainRenderer(out, color=False, width=80), None)
    assert f"{'o' * 90}, {'p' * 90} on {'t' * 40}  2 PASSED, 1 FAILED\n" in out.getvalue()
    assert "  run      2026-01-01 00:00  " in out.getvalue()


def write(folder: RunFolder, target: str, op: str, data: bytes, attempt: int = 1) -> Path:
    path = folder.log(target, op, attempt)
    path.write_bytes(data)
    return path


def tell(folder: RunFolder, heard: Heard, **chosen: Any) -> None:
    wanted = {"ops": [], "targets": None, "follow": False, **chosen}
    assert logs(folder, heard, **wanted) == 0


def test_logs_come_job_by_job_attempts_in_their_order(make: Make, heard: Heard) -> None:
    folder = make("r")
    write(folder, "b:box", "gelu", b"three\r\nlast line without end")
    for attempt in (10, 2, 1):
        write(folder, "a", "gelu", f"try {attempt}\n".encode(), attempt)
    write(folder, "a", "gelu_new", b"another operator\n")
    tell(folder, heard)
    assert heard.lines() == [
        ("a", "gelu", "try 1"),
        ("a", "gelu", "try 2"),
        ("a", "gelu", "try 10"),
        ("b:box", "gelu", "three"),
        ("b:box", "gelu", "last line without end"),
    ]
    assert heard.summary().run == "r"


def test_each_log_says_whose_it_is_and_how_that_ended(make: Make) -> None:
    folder = make("r")
    for attempt in (1, 2):
        path = write(folder, "a", "gelu", f"try {attempt}\n".encode(), attempt)
    write(folder, "b:box", "gelu", b"there\n")
    write(folder, "a", "rms_norm", b"")
    elsewhere = f"/moved/logs/{path.parent.name}/{path.name}"
    folder.event(JobEnded("a", "gelu", "j", "ERROR", 1, 3.0, message="boom", log=elsewhere))
    out, errors = io.StringIO(), io.StringIO()
    render = PlainRenderer(out, color=False, width=80, errors=errors)
    assert logs(folder, render, ops=[], targets=None, follow=False) == 0
    assert out.getvalue() == (
        "== gelu on a\na | try 1\n\n"
        "== gelu on a, attempt 2, ERROR: boom\na | try 2\n\n"
        "== gelu on b:box\nb:box | there\n"
    )
    # Who takes the logs from standard output gets nothing else.
    assert errors.getvalue() == "logs: done\n"


def test_bytes_of_any_kind_and_lines_of_any_length(make: Make, heard: Heard) -> None:
    folder = make("r")
    cut = "ü".encode()
    write(folder, "a", "gelu", b"\xff\x00" + cut + b"\n" + b"x" * 200_000 + b"\n" + cut[:1])
    tell(folder, heard)
    texts = [text for _, _, text in heard.lines()]
    assert texts[0] == "\ufffd\x00ü" and "".join(texts[1:-1]) == "x" * 200_000
    assert texts[-1] == "\ufffd"


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ({"ops": ["rms_norm"]}, [("a", "rms_norm")]),
        ({"ops": ["rms_*"]}, [("a", "rms_norm")]),
        ({"ops": ["*"], "targets": ["b:box"]}, [("b:box", "gelu")]),
        ({"targets": ["b:box"]}, [("b:box", "gelu")]),
        ({"ops": ["gelu"], "targets": ["a", "b:box"]}, [("a", "gelu"), ("b:box", "gelu")]),
    ],
)
def test_a_selection_of_jobs(
    make: Make, heard: Heard, chosen: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    folder = make("r")
    for job in JOBS:
        write(folder, job["target"], job["op"], b"x\n")
    tell(folder, heard, **chosen)
    assert [line[:2] for line in heard.lines()] == found


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"ops": ["nope"]}, "no operator 'nope'.*gelu, rms_norm"),
        ({"ops": ["rms_norm"], "targets": ["b:box"]}, "no such job"),
        ({"targets": []}, "no such job.*a, b:box"),
    ],
)
def test_a_selection_of_nothing_is_a_usage_error(
    make: Make, heard: Heard, chosen: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        tell(make("r"), heard, **chosen)


def test_a_run_that_printed_nothing_says_so_and_is_left_as_it_was(make: Make, heard: Heard) -> None:
    folder = make("r")
    before = sorted(folder.path.rglob("*"))
    tell(folder, heard)
    assert heard.summary().message == "none of the jobs has printed anything"
    assert sorted(folder.path.rglob("*")) == before


def test_following_tells_what_comes_until_the_run_has_ended(make: Make, heard: Heard) -> None:
    folder = make("r")
    path = write(folder, "a", "gelu", b"one\ntw")
    ready, told = threading.Event(), threading.Event()

    def at_work() -> None:
        with folder.held():
            ready.set()
            told.wait(20)
            with path.open("ab") as stream:
                stream.write(b"o\n")
            write(folder, "b:box", "gelu", b"elsewhere\nunfinished")

    thread = threading.Thread(target=at_work)
    thread.start()
    ready.wait(20)

    def sink(event: Event) -> None:
        heard(event)
        told.set()

    assert logs(folder, sink, ops=[], targets=None, follow=True) == 0
    thread.join()
    (said,) = [event.message for event in heard.events if isinstance(event, Note)]
    assert said == "following run r until it ends, or Ctrl-C; 0 of 3 jobs have ended"
    # Jobs side by side come as they print; each one's lines are in their order.
    assert [text for target, _, text in heard.lines() if target == "a"] == ["one", "two"]
    others = [text for target, _, text in heard.lines() if target == "b:box"]
    assert others == ["elsewhere", "unfinished"]


@pytest.mark.parametrize("code", [0, 1])
def test_to_kill_what_has_ended_changes_nothing(make: Make, heard: Heard, code: int) -> None:
    folder = make("r", summary={**ENDED, "exit_code": code})
    inventory = Inventory(folder.path.parent / "inventory.yaml", {}, (), {})
    (folder.path.parent / "runs").symlink_to(folder.path.parent)
    assert kill(Context(inventory, (), heard), "r") == 0
    assert heard.summary().message == f"run r has already ended (exit code {code})"
    assert heard.summary().counts == ENDED["counts"]


def test_a_folder_is_held_only_while_it_is(make: Make) -> None:
    folder = make("r")
    assert not folder.is_held()
    with folder.held():
        assert folder.is_held()
    assert not folder.is_held()
    # Looking takes nothing away: whoever comes next gets the folder.
    with folder.held():
        pass
