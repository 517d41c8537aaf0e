"""A night that a real cron daemon begins, on the loopback fleet, and what nights tell."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from .conftest import LoopbackFleet
from .cron_daemon import cron_daemon
from .workbench import MXFLEET, Bench, wait_until, workbench

HOSTS = ("loop1", "loop2")
NAME = "nächte 夜 100% of 'it\""


@pytest.fixture
def nights(fleet: LoopbackFleet, tmp_path: Path) -> Iterator[Bench]:
    """A folder with a name that no shell and no crontab likes, with operators that take no time."""
    with workbench(fleet, tmp_path / NAME) as bench:
        bench.config("probe_linger", steps=1)
        yield bench


def logs(bench: Bench) -> list[Path]:
    return sorted((bench.folder / "nightly").glob("*.log"))


def soon() -> datetime:
    """The next full minute that an entry written now is in time for."""
    return (datetime.now() + timedelta(seconds=65)).replace(second=0, microsecond=0)


def test_cron_begins_a_night(nights: Bench) -> None:
    bench = nights
    crontab = b'# mine\nMAILTO=""\n0 0 1 1 * true 100\\% \xc3\xa9\n'.decode()
    with cron_daemon() as cron:
        mine = bench.folder / "mine"
        mine.write_text(crontab)
        cron.run("crontab", mine, cwd=bench.folder)
        at = soon()
        shown = cron.run(
            MXFLEET,
            "nightly",
            "install",
            "--at",
            f"{at:%H:%M}",
            cwd=bench.folder,
            SSH_AUTH_SOCK="/nowhere",
        )
        entry = f"{at.minute} {at.hour} * * * /bin/sh "
        assert entry in " ".join(shown.stdout.split())
        assert "no cron daemon" not in shown.stderr
        installed = cron.run("crontab", "-l", cwd=bench.folder).stdout
        assert installed.startswith(crontab) and installed.count("\n") == 5

        def ended() -> bool:
            return any(
                ", exit code" in text or "nightly run: " in text
                for text in (path.read_text() for path in logs(bench))
            )

        assert wait_until(ended, 85 + (at - datetime.now()).total_seconds()), [
            path.read_text() for path in logs(bench)
        ]
        told = cron.run(
            MXFLEET, "nightly", "status", "--output", "json", cwd=bench.folder
        ).stdout.splitlines()
        state = json.loads(told[0])
        cron.run(MXFLEET, "nightly", "remove", cwd=bench.folder)
        assert cron.run("crontab", "-l", cwd=bench.folder).stdout == crontab
        # Where there was none, none is left.
        cron.run("crontab", "-r", cwd=bench.folder)
        cron.run(MXFLEET, "nightly", "install", cwd=bench.folder)
        cron.run(MXFLEET, "nightly", "remove", cwd=bench.folder)
        none = cron.run("sh", "-c", "! crontab -l 2>&1", cwd=bench.folder).stdout
        assert "no crontab" in none
    (log,) = logs(bench)
    text = log.read_text()
    (run,) = bench.runs()
    assert log.name >= f"{at:%Y%m%d-%H%M%S}.log"
    assert text.splitlines()[-1].startswith("nightly run: 8 PASSED in "), text
    for host in HOSTS:
        assert f"{host} | step 0" in text
        assert [r["status"] for r in bench.records(run, host, "probe_digest")] == ["PASSED"]
    assert state["installed"] and state["last"] == {
        "log": str(log),
        "run": run.name,
        "exit_code": 0,
        "message": "the first night, there is none to compare with",
    }
    assert datetime.fromtimestamp(state["next_start"]) == at + timedelta(days=1)
    assert [len(lines) for lines in bench.tables().values()] == [5]


RUNNER = """
import json, statistics, time
from pathlib import Path
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

class Runner(OpBenchmarkBase):
    def run(self, records):
        told = json.loads(Path(self.config["told"]).read_text())
        took = []
        for _ in range(9):
            began = time.perf_counter()
            time.sleep(told["seconds"])
            took.append(time.perf_counter() - began)
        right = told["answer"] == 42
        time_of = {"mean": statistics.mean(took), "median": statistics.median(took), "samples": 9}
        records._write(status="PASSED" if right else "FAILED", parameters={"size": 9},
                       verification={"passed": right, "metrics": {}}, timers={"cpu": time_of},
                       repeats=3, repeat_spread=0.5, summaries={"Op": self.name})
        if not right:
            raise SystemExit(1)
"""


@pytest.fixture
def answers(fleet: LoopbackFleet, tmp_path: Path) -> Iterator[Bench]:
    """Two operators: how long one takes and what the other answers is up to a file of the host."""
    with workbench(fleet, tmp_path) as bench:
        door = bench.folder / "benchmark" / "mcoplib_mxbenchmark_ops.py"
        whole = door.read_text()
        old = whole[whole.index("SUPPORTED_OPERATORS") : whole.index("]") + 1]
        door.write_text(whole.replace(old, 'SUPPORTED_OPERATORS = ["night_time", "night_answer"]'))
        for op in ("night_time", "night_answer"):
            told = f"/share/{bench.store.rpartition('/')[2]}-{op}.json"
            (bench.folder / "benchmark" / "config" / f"{op}.json").write_text(
                json.dumps({"told": told})
            )
            runner = f"mcoplib_mxbenchmark_{op}_runners.py"
            (bench.folder / "benchmark" / "runners" / runner).write_text(RUNNER)
            for host in HOSTS:
                tell(bench, host, op)
        yield bench
        for host in HOSTS:
            for path in fleet.share(host).glob(f"{bench.store.rpartition('/')[2]}-*"):
                path.unlink()


def tell(bench: Bench, host: str, op: str, seconds: float = 0.03, answer: int = 42) -> None:
    path = bench.fleet.share(host) / f"{bench.store.rpartition('/')[2]}-{op}.json"
    path.write_text(json.dumps({"seconds": seconds, "answer": answer}))
    path.chmod(0o644)


def changes(events: list[dict[str, Any]]) -> list[tuple[str, str, str | None]]:
    found = [event for event in events if event["event"] == "night_change"]
    return [(event["change"], event["target"], event["op"]) for event in found]


def test_a_host_that_got_slower_and_one_that_fails_are_named(answers: Bench) -> None:
    bench = answers
    bench.mxfleet("nightly", "run")
    tell(bench, "loop2", "night_time", seconds=0.12)
    tell(bench, "loop1", "night_answer", answer=41)
    second = bench.mxfleet("nightly", "run", "--brief", code=1)
    assert "broken    night_answer on loop1: FAILED, was PASSED" in second.stdout
    slower = next(line for line in second.stdout.splitlines() if line.startswith("slower"))
    assert re.match(r"slower    night_time on loop2: [\d.]+ ms -> 1\d\d ms CPU time", slower), (
        second
    )
    first_run = bench.runs()[0].name
    end = second.stdout.splitlines()[-1]
    assert end.startswith("nightly run: 3 PASSED, 1 FAILED in "), end
    assert end.endswith(f"; since {first_run}: 1 broken, 1 slower, exit code 1"), end

    tell(bench, "loop2", "night_time")
    tell(bench, "loop1", "night_answer")
    third = bench.mxfleet("nightly", "run", "--output", "json").events()
    assert changes(third) == [
        ("repaired", "loop1", "night_answer"),
        ("faster", "loop2", "night_time"),
    ]
    assert third[-1]["event"] == "summary" and third[-1]["exit_code"] == 0
    assert len(logs(bench)) == len(bench.runs()) == 3


def test_a_host_that_went_away_is_one_line_and_its_slowdown_waits(answers: Bench) -> None:
    bench = answers
    bench.mxfleet("nightly", "run")
    gone = {"loop1": {"user": "root"}, "loop2": {"address": "127.0.0.1", "port": 1}}
    bench.inventory(hosts=gone)
    second = bench.mxfleet("nightly", "run", "--output", "json", code=3).events()
    assert changes(second) == [("broken", "loop2", None)], second
    bench.inventory()
    tell(bench, "loop2", "night_time", seconds=0.12)
    third = bench.mxfleet("nightly", "run", "--output", "json").events()
    assert changes(third) == [("slower", "loop2", "night_time"), ("repaired", "loop2", None)]
