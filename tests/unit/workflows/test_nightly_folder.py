"""What nights leave: who is at work, logs and which of them stay, runs that are known as nights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import ExitCode, UsageError
from orchestrator.execute.folder import RunFolder
from orchestrator.workflows.nightly_folder import LOGS_KEPT, Mark, NightFolder


def logs(folder: NightFolder, count: int) -> list[str]:
    folder.path.mkdir()
    names = [f"202601{day:02}-020000.log" for day in range(1, 32)]
    names += [f"202602{day:02}-020000.log" for day in range(1, 29)]
    names += [f"202603{day:02}-020000.log" for day in range(1, 32)]
    for name in names[:count]:
        (folder.path / name).write_text("x\n")
    return names[:count]


def test_the_second_says_who_is_at_work_and_disturbs_nothing(tmp_path: Path) -> None:
    first, second = NightFolder(tmp_path), NightFolder(tmp_path)
    with first.held():
        held = (first.path / ".lock").read_bytes()
        with pytest.raises(UsageError) as raised, second.held():
            pass
        assert raised.value.code == ExitCode.USAGE
        since = json.loads(held)["since"]
        assert f"at work already since {since} (" in str(raised.value)
        assert f"process {os.getpid()} on " in str(raised.value)
        assert (first.path / ".lock").read_bytes() == held
        assert second.running() == json.loads(held)
        with pytest.raises(UsageError), second.held():
            pass  # refused still: asking did not take it away
    assert second.running() is None
    with second.held():
        pass


def test_a_killed_night_leaves_no_lock(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path;"
        "from orchestrator.workflows.nightly_folder import NightFolder\n"
        "with NightFolder(Path(sys.argv[1])).held(): os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path], check=False)
    assert done.returncode == -9
    folder = NightFolder(tmp_path)
    assert folder.running() is None
    with folder.held():
        assert folder.running() is not None


@pytest.mark.parametrize("good", [None, 3, 80])
def test_old_logs_go_but_never_that_of_the_last_good_night(
    tmp_path: Path, good: int | None
) -> None:
    folder = NightFolder(tmp_path)
    names = logs(folder, 85)
    others = ["cron.sh", ".lock", "20260101-020000.log.txt", "mine.log"]
    for name in others:
        (folder.path / name).touch()
    for number in (1, 2, 80):
        if number != good:
            run = f"20260101-{number:06}-aaaaaa"
            RunFolder.create(folder.runs, run)
            Mark(run, names[number], 1, {}).write(folder.runs)
    if good is not None:
        run = "20260109-000000-bbbbbb"
        RunFolder.create(folder.runs, run)
        Mark(run, names[good], 0, {}).write(folder.runs)
    folder.prune()
    kept = names[-LOGS_KEPT:]
    wanted = {*kept, *others, *([names[good]] if good is not None else [])}
    assert {path.name for path in folder.path.iterdir()} == wanted


def test_two_logs_of_one_second_are_two(tmp_path: Path) -> None:
    folder = NightFolder(tmp_path)
    folder.path.mkdir()
    names = []
    for _ in range(3):
        with folder.new_log() as stream:
            names.append(Path(stream.name).name)
    assert len(set(names)) == 3
    assert [path.name for path in folder.logs()] == sorted(names, reverse=True)


def test_only_marked_runs_with_results_are_nights(tmp_path: Path) -> None:
    folder = NightFolder(tmp_path)
    record = {
        "schema": "mxfleet-result/1",
        "suite": "mcoplib",
        "op": "gelu",
        "case_id": "c",
        "target": "a",
    }
    stories = {
        "20260101-000000-aaaaaa": (b'{"log": "x.log", "exit_code": 0}', "PASSED"),
        "20260102-000000-bbbbbb": (b'{"log": "x.log"}', "FAILED"),  # cut off
        "20260103-000000-cccccc": (b'{"log": "x.log", "exit_code": 3}', "NOT_RUN"),
        "20260104-000000-dddddd": (b'{"log": "x', "PASSED"),  # damaged
        "20260105-000000-eeeeee": (None, "PASSED"),  # somebody's run in between
        "20260106-000000-ffffff": (b'{"log": "x.log", "exit_code": 0}', None),
        "20260107-000000-999999": (b"[1]", "PASSED"),
    }
    for number, (run, (mark, status)) in enumerate(stories.items()):
        made = RunFolder.create(folder.runs, run)
        if mark is not None:
            (made.path / "nightly.json").write_bytes(mark)
        if status is not None:
            line = json.dumps({**record, "record_id": str(number), "status": status})
            made.records("a", "gelu").write_text(f"{line}\n" + "broken line\n")
    found = [night.run for night in folder.earlier("20260107-000000-999999")]
    assert [run[:8] for run in found] == ["20260102", "20260101"]
    assert [night.run[:8] for night in folder.earlier("20260102-000000-bbbbbb")] == ["20260101"]
