"""Nights of a working folder on this machine: the real command, its log, its verdict."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from orchestrator.events import Event, Note, Summary
from orchestrator.workflows.nightly import night
from orchestrator.workflows.nightly_folder import NightFolder

MXFLEET = Path(sys.executable).with_name("mxfleet")
SCRIPT = """
import argparse, json, os, pathlib, sys, time, uuid
SUPPORTED_OPERATORS = ["night_one", "night_two"]
parser = argparse.ArgumentParser()
for name in ("--op", "--csv", "--records", "--set"):
    parser.add_argument(name)
parser.add_argument("--generate", action="store_true")
options = parser.parse_args()
told = json.loads(pathlib.Path("config", options.op + ".json").read_text())
print("saying", options.op, flush=True)
time.sleep(told.get("pause", 0))
while "until" in told and not pathlib.Path(told["until"]).exists():
    time.sleep(0.05)
passed = told.get("passed", True)
record = {"schema": "mxfleet-result/1", "record_id": uuid.uuid4().hex, "suite": "mcoplib",
          "op": options.op, "case_id": "0123456789abcdef",
          "status": "PASSED" if passed else "FAILED", "verification": {"passed": passed},
          "device": {"kind": "cpu", "name": "Any"}, "repeat_spread": 0.01,
          "environment": {"device_expected": told.get("odd")},
          "timers": {"cpu": {"mean": told["seconds"], "median": told["seconds"]}}}
with open(options.records, "a") as stream:
    print(json.dumps(record), file=stream)
sys.exit(0 if passed else 1)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    working = tmp_path / "work"
    for name in ("config", "runners"):
        (working / "benchmark" / name).mkdir(parents=True)
    (working / "benchmark" / "mcoplib_mxbenchmark_ops.py").write_text(SCRIPT)
    for op in ("night_one", "night_two"):
        config(working, op, seconds=0.001)
        runner = working / "benchmark" / "runners" / f"mcoplib_mxbenchmark_{op}_runners.py"
        runner.write_text("class Runner(OpBenchmarkBase):\n    pass\n")
    inventory = {
        # Whatever else measures on this machine does not hold these nights up.
        "defaults": {"env_script": "none", "lock_folder": str(tmp_path / "locks")},
        "hosts": {"here": {"transport": "local", "store": str(tmp_path / "store")}},
    }
    (working / "inventory.yaml").write_text(json.dumps(inventory))
    return working


def config(folder: Path, op: str, **values: Any) -> None:
    (folder / "benchmark" / "config" / f"{op}.json").write_text(json.dumps(values))


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MXFLEET")}
    return subprocess.Popen(
        [MXFLEET, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def mxfleet(folder: Path, *arguments: str, code: int = 0) -> str:
    process = start(folder, *arguments)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, out + err
    assert "Traceback" not in err
    return out + err


def logs(folder: Path) -> list[str]:
    return [path.read_text() for path in sorted((folder / "nightly").glob("*.log"))]


def summary(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found


def test_a_slowdown_and_a_failure_are_named(folder: Path) -> None:
    first = mxfleet(folder, "nightly", "run")
    assert "the first night, there is none to compare with" in first
    mxfleet(folder, "run", "--op", "night_one")  # in between, nobody's night
    config(folder, "night_one", seconds=0.0013)
    config(folder, "night_two", seconds=0.001, passed=False)
    second = mxfleet(folder, "nightly", "run", "--brief", code=1)
    assert "broken    night_two on here: FAILED, was PASSED" in second
    assert "slower    night_one on here: 1.00 ms -> 1.30 ms CPU time (+30%, limit 5%)" in second
    assert "saying" not in second and "operator" not in second
    runs = sorted((folder / "runs").iterdir())
    assert len(runs) == 3
    assert f"since {runs[0].name}: 1 broken, 1 slower" in second.splitlines()[-1]
    whole = logs(folder)[1]
    for text in ("saying night_one", "operator", "nothing to send", "sent 2 files", "slower  "):
        assert (text in whole) == (text != "nothing to send"), text
    assert whole.splitlines()[-1].endswith("exit code 1")

    config(folder, "night_two", seconds=0.001)
    third = [
        json.loads(line)
        for line in mxfleet(folder, "nightly", "run", "--output", "json").splitlines()
        if line.startswith("{")
    ]
    assert [one["event"] for one in third].count("summary") == 1
    assert third[-1]["command"] == "nightly run" and third[-1]["run"] == third[-1]["folder"][-22:]
    changes = [one for one in third if one["event"] == "night_change"]
    assert [(one["change"], one["op"], one["status"]) for one in changes] == [
        ("repaired", "night_two", "PASSED")
    ]
    last = json.loads((runs[-1].parent / third[-1]["run"] / "nightly.json").read_text())
    assert (last["exit_code"], last["targets"]) == (0, {"here": "OK"})


def test_never_two_at_once(folder: Path) -> None:
    config(folder, "night_one", seconds=0.001, until=str(folder.parent / "go on"))
    first = start(folder, "nightly", "run")
    assert first.stdout is not None
    while "saying night_one" not in first.stdout.readline():
        assert first.poll() is None
    refused = mxfleet(folder, "nightly", "run", code=2)
    assert "a night is at work already since 20" in refused
    assert f"(process {first.pid} on " in refused
    told = mxfleet(folder, "nightly", "status", "--output", "json")
    assert json.loads(told.splitlines()[-2])["running"]["pid"] == first.pid
    (folder.parent / "go on").touch()
    out, err = first.communicate(timeout=60)
    assert first.returncode == 0, out + err
    assert len(logs(folder)) == 1 and len(list((folder / "runs").iterdir())) == 1


def test_what_keeps_a_night_from_beginning_is_in_its_log(folder: Path) -> None:
    inventory = folder / "inventory.yaml"
    good = inventory.read_text()
    inventory.write_text("hosts: {here: {transport: carrier-pigeon}}\n")
    said = mxfleet(folder, "nightly", "run", code=2)
    assert "carrier-pigeon" in said
    (log,) = logs(folder)
    assert "carrier-pigeon" in log and log.endswith(", exit code 2\n")
    inventory.write_text(good)
    told = mxfleet(folder, "nightly", "status", "--output", "json")
    last = json.loads(told.splitlines()[-2])["last"]
    assert last["exit_code"] == 2 and "carrier-pigeon" in last["message"]


def test_a_log_that_takes_no_more_is_told_once_and_ends_no_night(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Event] = []
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr(NightFolder, "new_log", lambda self: full)
        assert night(folder / "inventory.yaml", heard.append) == 0
    notes = [event.message for event in heard if isinstance(event, Note) and event.level == "error"]
    assert notes == [
        "/dev/full: the night's log takes no more, is the disk full? The night goes on"
    ]
    assert isinstance(heard[-1], Summary) and heard[-1].counts == {"PASSED": 2}


def test_nothing_is_made_where_there_is_no_inventory(tmp_path: Path) -> None:
    said = mxfleet(tmp_path, "nightly", "run", "-i", str(tmp_path / "none.yaml"), code=2)
    assert "none.yaml" in said
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_night_is_none_that_broke_everything(folder: Path) -> None:
    mxfleet(folder, "nightly", "run")
    config(folder, "night_one", seconds=0.001, pause=30)
    process = start(folder, "nightly", "run")
    assert process.stdout is not None
    while "saying night_one" not in process.stdout.readline():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "broken" not in out and "gone" not in out
    config(folder, "night_one", seconds=0.002)
    config(folder, "night_two", seconds=0.001)
    again = mxfleet(folder, "nightly", "run", "--brief")
    assert "slower    night_one on here" in again and "new" not in again


def test_a_killed_night_is_told_as_cut_off_and_gets_a_successor(folder: Path) -> None:
    config(folder, "night_two", seconds=0.001, pause=30)
    process = start(folder, "nightly", "run")
    assert process.stdout is not None
    while "saying night_two" not in process.stdout.readline():
        assert process.poll() is None
    process.kill()
    process.communicate(timeout=60)
    time.sleep(1.1)  # the next one is of another second
    told = mxfleet(folder, "nightly", "status")
    assert "last       interrupted;" in told
    config(folder, "night_one", seconds=0.002)
    config(folder, "night_two", seconds=0.001)
    again = mxfleet(folder, "nightly", "run", "--brief")
    assert "slower    night_one on here" in again


def lines(said: str) -> list[str]:
    """What a night said, without its times and the run's id."""
    run = r"\d{8}-\d{6}-[0-9a-f]{6}"
    return [
        re.sub(r" in [0-9.]+ s", " in S", re.sub(run, "RUN", line)) for line in said.split("\n")
    ]


def test_a_brief_night_names_all_that_fails_it_each_thing_once(folder: Path) -> None:
    odd = "the config is for C500, this device is Any"
    inventory = json.loads((folder / "inventory.yaml").read_text())
    there = inventory["hosts"]["here"]
    lost = {"address": "127.0.0.1", "port": 1}
    inventory["hosts"] = {"here1": there, "here2": there, "lost": lost}
    inventory["defaults"]["retries"] = 1
    (folder / "inventory.yaml").write_text(json.dumps(inventory))
    config(folder, "night_two", seconds=0.001, passed=False, odd=odd)
    first = lines(mxfleet(folder, "nightly", "run", "--brief", code=1))
    (away,) = [line for line in first if "lost" in line]
    assert away.startswith("failed    lost: UNREACHABLE: ")
    assert "failed    night_two on here[1-2]: FAILED" in first
    assert f"warning: {odd}: night_two on here[1-2]" in first
    (end,) = [line for line in first if line.startswith("nightly run: ")]
    none = "the first night, there is none to compare with"
    assert end.endswith(f"1 target UNREACHABLE in S; {none}, exit code 1")

    (folder / "benchmark" / "config" / "night_one.json").write_text("{")
    second = lines(mxfleet(folder, "nightly", "run", "--brief", code=1))
    assert not [line for line in second if odd in line]
    assert "still     FAILED night_two on here[1-2] since RUN" in second
    assert sum("lost" in line for line in second) == 1, second
    (left,) = [line for line in second if "left out" in line]
    assert left.startswith("broken    night_one on here[1-2]: NOT_RUN, was PASSED: left out:")
    assert odd in logs(folder)[1] and re.search(r"lost +\| UNREACHABLE", logs(folder)[1])
    assert "2 broken, 3 still failing, exit code 1" in " ".join(second)


def test_an_interrupted_night_is_told_as_one(folder: Path) -> None:
    config(folder, "night_one", seconds=0.001, pause=30)
    process = start(folder, "nightly", "run")
    assert process.stdout is not None
    while "saying night_one" not in process.stdout.readline():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert "last       interrupted, exit code 130;" in mxfleet(folder, "nightly", "status")


def test_a_terminal_has_the_live_view_and_the_log_everything(folder: Path) -> None:
    code, screen = on_a_terminal(
        [str(MXFLEET), "nightly", "run"], folder, TERM="xterm", MXFLEET_INVENTORY=""
    )
    assert code == 0, screen
    assert "\x1b[J" in screen and "saying night_one" not in screen.rpartition("\x1b[J")[2]
    assert "the first night, there is none to compare with" in screen
    assert "saying night_one" in logs(folder)[0] and "\x1b" not in logs(folder)[0]


def on_a_terminal(words: list[str], folder: Path, **environment: str) -> tuple[int, str]:
    """Run a command on a terminal of its own; its exit code and what it wrote there."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(words[0], words, {**os.environ, **environment})
    heard = b""
    with suppress(OSError):  # the other side of a terminal has gone
        while piece := os.read(terminal, 65536):
            heard += piece
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), heard.decode(errors="replace")
