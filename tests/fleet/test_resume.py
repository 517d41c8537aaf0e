"""A controller that is killed at any point: going on repeats nothing that was done, misses nothing.

What really ran is told by the operators' ledger and by the job folders on the hosts.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import LoopbackFleet
from .many import Many, many
from .workbench import Result, Running, wait_until

LONG = 240.0
OPS = ("op_a", "op_b", "op_c")
HELD = {"dead_link": 5, "reattach": 120}  # longer than a busy machine needs to go on


@pytest.fixture
def site(fleet: LoopbackFleet, tmp_path: Path) -> Iterator[Many]:
    with many(fleet, tmp_path, 2) as made:
        made.ops(**{op: {"lines": 12, "pause": 0.1, "early": 1} for op in OPS})
        made.inventory(timeouts=HELD)
        yield made


def folder_of(site: Many) -> Path:
    return site.bench.runs()[-1]


def diary(run: Path, kind: str) -> list[dict[str, Any]]:
    path = run / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    found = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event["event"] == kind:
            found.append(event)
    return found


def killed_when(running: Running, seen: Callable[[], bool]) -> None:
    """Let it run in short steps until something is seen, then kill it right there."""
    limit = time.monotonic() + LONG
    while time.monotonic() < limit and running.process.poll() is None:
        time.sleep(0.02)
        running.process.send_signal(signal.SIGSTOP)
        if seen():
            break
        running.process.send_signal(signal.SIGCONT)
    running.process.kill()
    assert running.result().code == -signal.SIGKILL, running.result()


def resumed(site: Many, *arguments: str, code: int = 0) -> Result:
    words = ("testall", "--resume", folder_of(site).name, *arguments)
    return site.bench.mxfleet(*words, code=code, seconds=LONG)


def planned(run: Path) -> bool:
    return (run / "plan.json").exists()


def intended(run: Path) -> bool:
    path = run / "attempts.jsonl"
    return path.exists() and path.stat().st_size > 0


def talks(run: Path) -> bool:
    return any(path.stat().st_size > 30 for path in run.glob("logs/*/op_b.log"))


def one_ended(run: Path) -> bool:
    return len(diary(run, "job_ended")) >= 1


def runs_on(run: Path, host: str) -> bool:
    """Whether a job of the host has begun and not ended."""
    begun = {e["op"] for e in diary(run, "job_started") if e["target"] == host}
    return bool(begun - {e["op"] for e in diary(run, "job_ended") if e["target"] == host})


def brought_back(run: Path) -> bool:
    """Its records are here, whether or not they have been judged."""
    return any(run.glob("raw/*/op_b.jsonl"))


def all_ended(run: Path) -> bool:
    return len(diary(run, "job_ended")) == 2 * len(OPS)


def merging(run: Path) -> bool:
    return any((run.parents[1] / "benchmark" / "statistics").glob("**/*"))


POINTS = [planned, intended, talks, one_ended, brought_back, all_ended, merging]


def assert_whole(site: Many, run: Path) -> None:
    """Every case of every operator on every host, each once."""
    rows = site.rows(run)
    assert rows == Counter({(host, op, "PASSED"): 2 for host in ("h1", "h2") for op in OPS}), rows
    assert sorted(site.csv_rows()) == sorted([*OPS, *OPS])
    store = site.bench.folder / "benchmark" / "statistics" / "records"
    lines = [line for path in store.glob("*.jsonl") for line in path.read_text().splitlines()]
    # That a job could not be run at some time stays known beside what was measured later.
    records = [record for record in map(json.loads, lines) if record["status"] == "PASSED"]
    assert len({record["record_id"] for record in records}) == len(records) == 2 * 2 * len(OPS)


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.__name__)
def test_a_killed_controller(site: Many, point: Callable[[Path], bool]) -> None:
    running = site.bench.start("testall", "--cold")
    killed_when(running, lambda: any(point(run) for run in site.bench.runs()))
    run = folder_of(site)
    ended = {(e["target"], e["op"]) for e in diary(run, "job_ended")}
    result = resumed(site)
    assert f"{len(ended)} of 6 jobs are done" in result.stderr + result.stdout or (
        len(ended) == 6 and "nothing left to do" in result.stderr + result.stdout
    )
    assert_whole(site, run)
    # Jobs were held for whoever comes: none ran twice, none under a second name but where
    # its request never arrived.
    assert site.noted("begin") == site.noted("done") == Counter(dict.fromkeys(OPS, 2))
    for host in site.sshds:
        names = [name for name in site.jobs(host) if name.endswith(".a1")]
        assert names == [f"{op}.a1" for op in OPS]
    again = {(e["target"], e["op"]) for e in diary(run, "job_ended")[len(ended) :]}
    assert not ended & again
    for host in site.sshds:
        for op in OPS:
            first, second = (run / "logs" / host / f"{op}{more}.log" for more in ("", ".2"))
            lines = (second if second.exists() else first).read_text().splitlines()
            assert lines[:-1] == [f"{op} line {number}" for number in range(12)]


def test_no_room_for_what_was_measured(site: Many) -> None:
    """It lies on the hosts until there is room: nothing is run again for it."""
    running = site.bench.start("testall", "--cold")
    killed_when(running, lambda: any(talks(run) for run in site.bench.runs()))
    run = folder_of(site)
    raw = run / "raw"
    kept = raw.rename(run / "kept") if raw.exists() else None
    raw.touch()
    assert "cannot write into the run's folder" in str(resumed(site, code=2))
    raw.unlink()
    if kept is not None:
        kept.rename(raw)
    resumed(site)
    assert_whole(site, run)
    assert site.noted("begin") == Counter(dict.fromkeys(OPS, 2))


def test_killed_again_and_again(site: Many) -> None:
    """Each time a little further, the resumed ones too, some while jobs end."""
    words: tuple[str, ...] = ("testall", "--cold")
    for step in (1, 2, 3, 4, 5):
        running = site.bench.start(*words)
        killed_when(
            running,
            lambda step=step: (
                bool(site.bench.runs()) and len(diary(folder_of(site), "job_ended")) >= step
            ),
        )
        words = ("testall", "--resume", folder_of(site).name)
    resumed(site)
    assert_whole(site, folder_of(site))
    assert site.noted("begin") == Counter(dict.fromkeys(OPS, 2))


def test_killed_for_longer_than_jobs_are_held(site: Many) -> None:
    """What was cut off is done anew, what it had measured till then is not lost meanwhile."""
    site.inventory(timeouts={"dead_link": 3, "reattach": 0.5})
    running = site.bench.start("testall", "--cold")
    killed_when(running, lambda: bool(site.bench.runs()) and talks(folder_of(site)))
    assert wait_until(lambda: not site.alive(), 30)
    result = resumed(site, "--retries", "0")
    assert "it was interrupted, trying again (attempt 2)" in result.stderr
    assert_whole(site, folder_of(site))
    run = folder_of(site)
    cut = site.noted("begin") - site.noted("done")
    assert cut and site.noted("done") == Counter(dict.fromkeys(OPS, 2))
    attempts = [record["attempt"] for host in site.sshds for op in OPS
                for record in site.bench.records(run, host, op)]  # fmt: skip
    assert 2 in attempts


def test_a_shared_out_run_is_gone_on_with_and_stays_where_it_was_begun(site: Many) -> None:
    ops = {f"op_{number}": {"lines": 8, "pause": 0.1} for number in range(6)}
    site.ops(**ops)
    running = site.bench.start("testall", "--cold", "--spread", "shard")
    killed_when(
        running, lambda: bool(site.bench.runs()) and len(diary(folder_of(site), "job_ended")) >= 2
    )
    resumed(site)
    assert site.noted("begin") == site.noted("done") == Counter(list(ops))
    rows = site.rows(folder_of(site))
    assert sorted(op for _, op, _ in rows.elements()) == sorted(ops)
    assert {status for _, _, status in rows} == {"PASSED"}


def test_a_run_that_goes_on_is_not_resumed(site: Many, tmp_path: Path) -> None:
    gate = tmp_path / "go"
    site.op("op_a", lines=1, until=str(gate))
    running = site.bench.start("testall", "--cold")
    running.wait_for("h1 | op_a line 0", seconds=LONG)
    for more in ((), ("--detach",)):
        result = resumed(site, *more, code=2)
        assert "another mxfleet is at work on this run" in result.stderr
        assert "mxfleet attach" in result.stderr
    gate.touch()
    assert running.result(LONG).code == 0


@pytest.mark.parametrize(
    ("config", "code"), [({}, 0), ({"wrong": True}, 1), ({"missing": True}, 0)]
)
def test_a_run_that_has_ended(site: Many, config: dict[str, Any], code: int) -> None:
    site.ops(op_a=config)
    site.bench.mxfleet("testall", "--cold", code=code, seconds=LONG)
    before = site.rows(folder_of(site))
    noted = site.noted("begin")
    result = resumed(site, code=code)
    assert "all 2 jobs are done, nothing left to do" in result.stderr + result.stdout
    assert site.noted("begin") == noted and site.rows(folder_of(site)) == before
    # Nobody was asked: it works without hosts, too.
    for sshd in site.sshds.values():
        sshd.stop()
    assert resumed(site, code=code).code == code


def test_a_host_that_is_gone_now(site: Many) -> None:
    """What it had measured stays; the run is whole once it is back."""
    site.inventory(retries=0, timeouts=HELD)
    running = site.bench.start("testall", "--cold")
    killed_when(running, lambda: bool(site.bench.runs()) and talks(folder_of(site)))
    run = folder_of(site)
    ended = {e["op"] for e in diary(run, "job_ended") if e["target"] == "h2"}
    site.down("h2")
    result = resumed(site, code=3)
    assert "UNREACHABLE" in result.stdout
    rows = site.rows(run)
    assert all(rows["h1", op, "PASSED"] == 2 for op in OPS)
    assert {op for host, op, status in rows if (host, status) == ("h2", "PASSED")} == ended
    site.sshds["h2"].start()
    resumed(site)
    assert_whole(site, run)
    assert site.noted("begin") == Counter(dict.fromkeys(OPS, 2))


@pytest.mark.parametrize("spread", ["replicate", "shard"])
def test_a_host_that_is_no_longer_in_the_inventory(site: Many, spread: str) -> None:
    running = site.bench.start("testall", "--cold", "--spread", spread)
    killed_when(
        running,
        lambda: (
            bool(site.bench.runs())
            and one_ended(folder_of(site))
            and runs_on(folder_of(site), "h2")
        ),
    )
    site.inventory({"h1": None}, timeouts=HELD)
    result = resumed(site, code=2)
    assert "h2 | " in result.stdout + result.stderr and "no longer in " in result.stderr
    rows = site.rows(folder_of(site))
    if spread == "replicate":
        assert {status for host, _, status in rows if host == "h1"} == {"PASSED"}
        assert any(host == "h2" and status == "NOT_RUN" for host, _, status in rows)
        site.inventory(timeouts=HELD)
        resumed(site)
        assert_whole(site, folder_of(site))
    else:
        # Its part is done by those that are still there.
        assert {op for _, op, _ in rows} == set(OPS)
        assert {status for _, _, status in rows} == {"PASSED"}


def test_a_changed_working_folder_is_refused_with_the_way_out(site: Many) -> None:
    running = site.bench.start("testall", "--cold")
    killed_when(running, lambda: bool(site.bench.runs()) and one_ended(folder_of(site)))
    site.op("op_b", lines=3)
    result = resumed(site, code=3)
    assert "no longer what the run measured" in result.stderr
    assert "mxfleet pull" in result.stderr
    assert wait_until(lambda: site.bench.mxfleet("kill", code=None).code == 0, 60)
    site.bench.mxfleet("pull", code=None, seconds=LONG)
    assert site.rows(folder_of(site))


def test_before_there_was_a_plan(site: Many) -> None:
    site.bench.mxfleet("testall", "--cold", seconds=LONG)
    (folder_of(site) / "plan.json").unlink()
    result = resumed(site, code=2)
    assert "plan.json cannot be read" in result.stderr


def test_pull_unites_attempts(site: Many) -> None:
    """The first attempt measured what the second did not come to."""
    site.ops(op_a={"early": 2, "lines": 100, "pause": 0.1})
    site.inventory({"h1": None}, timeouts={"dead_link": 3, "reattach": 0.5}, retries=1)
    running = site.bench.start("testall", "--cold")
    running.wait_for("h1 | op_a line 3", seconds=LONG)
    # What is measured first from now on is something else.
    site.down("h1")
    assert wait_until(lambda: not site.alive(), 30)
    site.sshds["h1"].start()
    running.wait_for("h1 | op_a line 3", count=2, seconds=LONG)
    running.process.kill()
    assert wait_until(lambda: not site.alive(), 30)
    run = folder_of(site)
    first = [record["record_id"] for record in site.bench.records(run, "h1", "op_a")]
    assert len(first) >= 2
    # The second attempt's folder loses a record that the first has.
    (second,) = (Path(site.store("h1")) / "jobs").glob("*.a2")
    lines = (second / "records.jsonl").read_text().splitlines(keepends=True)
    (second / "records.jsonl").write_text("".join(lines[:1]))
    site.bench.mxfleet("pull", code=3, seconds=LONG)
    found = site.bench.records(run, "h1", "op_a")
    assert Counter((r["status"], r["attempt"]) for r in found) == Counter(
        {("PASSED", 1): 1, ("PASSED", 2): 1, ("NOT_RUN", 2): 1}
    )
    assert sorted(site.csv_rows()) == ["op_a", "op_a"]
    site.bench.mxfleet("pull", code=3, seconds=LONG)
    assert site.bench.records(run, "h1", "op_a") == found
    shutil.rmtree(second)
    site.bench.mxfleet("pull", code=None, seconds=LONG)
    kept = [r for r in site.bench.records(run, "h1", "op_a") if r["status"] == "PASSED"]
    assert kept == [r for r in found if r["status"] == "PASSED"]
