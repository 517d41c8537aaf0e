"""Runs in the background: they outlive their terminal, their process, and this machine's sleep."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import LoopbackFleet
from .many import Many, many
from .workbench import MXFLEET, Result, Running, wait_until

LONG = 240.0


@pytest.fixture
def site(fleet: LoopbackFleet, tmp_path: Path) -> Iterator[Many]:
    with many(fleet, tmp_path, 2) as made:
        made.ops(op_a={"lines": 60, "pause": 0.1, "early": 1})
        yield made
        for run in made.bench.runs():
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((run / ".lock").read_text()), signal.SIGKILL)


def detached(site: Many, *words: str) -> Path:
    """Start a run in the background; return its folder."""
    command = words or ("testall", "--cold")
    result = site.bench.mxfleet(*command, "--detach", "--output", "json", seconds=LONG)
    (summary,) = result.events()
    assert (summary["event"], summary["command"], summary["exit_code"]) == ("summary", "detach", 0)
    return Path(summary["folder"])


def process(run: Path) -> int:
    return int((run / ".lock").read_text())


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def attached(site: Many, *words: str, code: int | None = 0) -> Result:
    return site.bench.mxfleet("attach", *words, code=code, seconds=LONG)


def lines_of(events: list[dict[str, Any]], target: str) -> list[str]:
    return [e["text"] for e in events if e["event"] == "output" and e["target"] == target]


def said(op: str, count: int) -> list[str]:
    return [f"{op} line {number}" for number in range(count)] + [f"[SUMMARY] {op} done"]


def test_it_returns_at_once_and_attach_shows_all_from_the_first_line(site: Many) -> None:
    run = detached(site)
    assert site.noted("done") == Counter()
    first, second = site.bench.start("attach", "--output", "json"), attached(site, run.name)
    result = first.result(LONG)
    assert result.code == 0, result
    events = result.events()
    for host in site.sshds:
        assert lines_of(events, host) == said("op_a", 60)
        assert second.said(host)[-len(said("op_a", 60)) - 1 :][:-1] == said("op_a", 60)
    assert [e["event"] for e in events].count("summary") == 1
    assert events[-1]["command"] == "testall" and events[-1]["run"] == run.name
    # Once more, after its end.
    assert attached(site, "--output", "json").events() == events


@pytest.mark.parametrize("code", [1, 4])
def test_attach_ends_with_the_runs_code(site: Many, tmp_path: Path, code: int) -> None:
    site.ops(op_a={"wrong": True} if code == 1 else {"hangs": str(tmp_path / "hung")})
    detached(site, "run", "--op", "op_a", "--silence", "2")
    assert attached(site, code=code).code == code
    assert attached(site, "--output", "json", code=code).events()[-1]["exit_code"] == code


@pytest.mark.parametrize("words", [("run", "--op", "nope"), ("testall", "--ops", "nope")])
def test_a_mistake_is_told_where_it_was_made(site: Many, words: tuple[str, ...]) -> None:
    result = site.bench.mxfleet(*words, "--detach", code=2, seconds=LONG)
    assert "unknown operator 'nope'" in result.stderr + result.stdout
    assert site.bench.runs() == []
    told = site.bench.mxfleet(*words, "--detach", "--output", "json", code=2, seconds=LONG)
    assert told.events()[-1]["exit_code"] == 2
    assert "unknown operator" in told.events()[-1]["message"]


def test_it_outlives_its_terminal(site: Many) -> None:
    """Started in a terminal that is closed right then: SIGHUP and no tty any more."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(site.bench.folder)
        os.execv(MXFLEET, ["mxfleet", "testall", "--cold", "--detach"])
    with contextlib.suppress(OSError):
        while os.read(terminal, 4096):
            pass
    os.close(terminal)
    assert os.waitpid(child, 0)[1] == 0
    (run,) = site.bench.runs()
    pid = process(run)
    assert alive(pid) and os.getsid(pid) == pid
    result = attached(site)
    assert all(host in result.stdout for host in site.sshds)
    assert site.noted("done") == Counter({"op_a": 2})


def test_started_by_a_script_with_an_ampersand(site: Many) -> None:
    """Where SIGINT is ignored; it is ended all the same."""
    script = f"{MXFLEET} testall --cold --detach & wait $!"
    subprocess.run(["sh", "-c", script], cwd=site.bench.folder, check=True, timeout=LONG)
    (run,) = site.bench.runs()
    site.bench.mxfleet("kill", seconds=LONG)
    assert wait_until(lambda: not alive(process(run)), 10)


def test_ctrl_c_of_attach_leaves_the_run(site: Many) -> None:
    run = detached(site)
    looking = site.bench.start("attach")
    looking.wait_for("h1 | op_a line 3", seconds=LONG)
    looking.signal_group(signal.SIGINT)
    watched = looking.result(LONG)
    assert watched.code == 130 and "the run goes on; attach again, or end it" in watched.stderr
    assert alive(process(run))
    attached(site)
    assert site.noted("begin") == site.noted("done") == Counter({"op_a": 2})


def test_kill_ends_it_orderly(site: Many, tmp_path: Path) -> None:
    site.ops(op_a={}, op_b={"early": 1, "lines": 1, "until": str(tmp_path / "never")})
    run = detached(site)
    looking = site.bench.start("attach")
    for host in site.sshds:
        looking.wait_for(f"{host} | op_b line 0", seconds=LONG)
    result = site.bench.mxfleet("kill", "--output", "json", seconds=LONG)
    assert result.events()[-1]["exit_code"] == 0
    assert site.alive() == [] and wait_until(lambda: not alive(process(run)), 10)
    assert looking.result(LONG).code == 130
    # What was measured is merged.
    assert sorted(site.csv_rows()) == ["op_a", "op_b"]
    assert json.loads((run / "testall-summary.json").read_text())["message"] == "interrupted"
    again = site.bench.mxfleet("kill", seconds=LONG)
    assert "already over" in again.stdout


def test_kill_after_the_process_was_killed(site: Many, tmp_path: Path) -> None:
    """Its jobs are held for long; they are ended on the hosts, proven."""
    site.ops(op_a={"lines": 1, "until": str(tmp_path / "never")})
    run = detached(site)
    looking = site.bench.start("attach")
    for host in site.sshds:
        looking.wait_for(f"{host} | op_a line 0", seconds=LONG)
    os.kill(process(run), signal.SIGKILL)
    ended = looking.result(LONG)
    assert ended.code == 3 and "went away before the run's end" in ended.stderr
    time.sleep(5)
    assert len(site.alive()) >= 2  # held
    result = site.bench.mxfleet("kill", "--output", "json", seconds=LONG)
    assert site.alive() == []
    assert result.events()[-1]["counts"] == {"ended": 2, "already over": 0}
    assert result.events()[-1]["targets"] == {"h1": "OK", "h2": "OK"}
    site.bench.mxfleet("pull", code=None, seconds=LONG)
    assert {status for _, _, status in site.rows(run)} == {"NOT_RUN"}


def test_attach_goes_on_with_a_run_whose_process_was_killed(site: Many) -> None:
    run = detached(site)
    looking = site.bench.start("attach")
    looking.wait_for("h1 | op_a line 5", seconds=LONG)
    os.kill(process(run), signal.SIGKILL)
    assert looking.result(LONG).code == 3
    result = attached(site, "--output", "json")
    assert any("going on with it" in str(e.get("message")) for e in result.events())
    # Every line: of the first process, then from the start of the job again.
    for host in site.sshds:
        assert lines_of(result.events(), host)[-len(said("op_a", 60)) :] == said("op_a", 60)
    assert [e["event"] for e in result.events()].count("summary") == 1
    assert site.noted("begin") == site.noted("done") == Counter({"op_a": 2})
    assert {status for _, _, status in site.rows(run)} == {"PASSED"}


@pytest.mark.parametrize("link", ["cut", "black hole"])
def test_a_laptop_that_sleeps(site: Many, link: str) -> None:
    """Its process stands still and its connections die meanwhile; no line is missed."""
    site.ops(op_a={"lines": 150, "pause": 0.1, "early": 1})
    site.inventory(timeouts={"dead_link": 3, "reattach": 1})
    run = detached(site)
    looking = site.bench.start("attach")
    for host in site.sshds:
        looking.wait_for(f"{host} | op_a line 10", seconds=LONG)
    pid = process(run)
    os.kill(pid, signal.SIGSTOP)
    stopped: list[int] = []
    for host in site.sshds:
        if link == "cut":
            site.cut(host)
        else:
            stopped += site.signal_carriers(host, signal.SIGSTOP)
    time.sleep(8)  # far beyond dead_link and reattach
    os.kill(pid, signal.SIGCONT)
    result = looking.result(LONG)
    for number in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    assert result.code == 0, result
    for host in site.sshds:
        mine = [line for line in result.said(host) if line.startswith("op_a line ")]
        assert mine == said("op_a", 150)[:-1]
        assert site.jobs(host) == ["op_a.a1"]
        log = (run / "logs" / host / "op_a.log").read_text().splitlines()
        assert log == said("op_a", 150)
    assert site.noted("begin") == site.noted("done") == Counter({"op_a": 2})


def test_a_stopped_process_is_ended_as_well(site: Many) -> None:
    run = detached(site)
    os.kill(process(run), signal.SIGSTOP)
    site.bench.mxfleet("kill", seconds=LONG)
    assert wait_until(lambda: not alive(process(run)), 10)
    assert wait_until(lambda: not site.alive(), 30)


def test_a_run_in_the_foreground_is_told_from_one_in_the_background(site: Many) -> None:
    running: Running = site.bench.start("testall", "--cold")
    running.wait_for("h1 | op_a line 0", seconds=LONG)
    result = attached(site, code=2)
    assert "this run was not detached" in result.stderr and "mxfleet logs" in result.stderr
    site.bench.mxfleet("kill", seconds=LONG)
    assert running.result(LONG).code == 130


def test_resuming_in_the_background(site: Many) -> None:
    running = site.bench.start("testall", "--cold")
    running.wait_for("h1 | op_a line 5", seconds=LONG)
    running.signal_group(signal.SIGINT)
    assert running.result(LONG).code == 130
    name = site.bench.runs()[-1].name
    run = detached(site, "testall", "--resume", name)
    assert run.name == name
    result = attached(site, "--output", "json")
    assert [e["event"] for e in result.events()].count("summary") == 1
    assert {status for _, _, status in site.rows(run)} == {"PASSED"}
    assert site.noted("done") == Counter({"op_a": 2})


def test_nothing_in_the_working_folder_is_taken_for_a_part_of_mxfleet(site: Many) -> None:
    (site.bench.folder / "json.py").write_text("raise SystemExit('not mine')\n")
    (site.bench.folder / "orchestrator").mkdir()
    (site.bench.folder / "orchestrator" / "__init__.py").write_text("raise SystemExit('no')\n")
    detached(site)
    attached(site)
