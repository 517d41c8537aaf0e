"""How a run is to measure, from the command line to the front door and back to the exit code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MXFLEET = Path(sys.executable).with_name("mxfleet")
OPS = ("m_plain", "m_unverified", "m_elsewhere", "m_kills")
DEAD = "Any 0 does not answer after m_kills went wrong"
ODD = "the config is for MetaX C500, this device is Any"
SCRIPT = f"""
import argparse, json, sys, uuid
SUPPORTED_OPERATORS = {list(OPS)!r}
ODD, DEAD = {ODD!r}, {DEAD!r}
parser = argparse.ArgumentParser()
for name in ("--op", "--csv", "--records", "--set", "--sampling", "--repeats"):
    parser.add_argument(name)
parser.add_argument("--case", action="append")
for name in ("--generate", "--strict"):
    parser.add_argument(name, action="store_true")
options = parser.parse_args()
asked = vars(options)
print("asked", json.dumps([asked[name] for name in ("sampling", "repeats", "case", "strict")]))
elsewhere, unverified, kills = (options.op == "m_" + name
                                for name in ("elsewhere", "unverified", "kills"))
if elsewhere and options.strict:
    sys.exit(print("error: " + ODD, file=sys.stderr) or 3)
record = {{"schema": "mxfleet-result/1", "record_id": uuid.uuid4().hex, "suite": "mcoplib",
          "op": options.op, "case_id": "0123456789abcdef",
          "status": "UNVERIFIED" if unverified else "ERROR" if kills else "PASSED",
          "verification": None if unverified else {{"passed": True}},
          "device": {{"kind": "cpu", "name": "Any"}},
          "environment": {{"commit": None, "device_expected": ODD if elsewhere else None}},
          "timers": {{"cpu": {{"mean": 1e-3, "median": 1e-3, "samples": 1}}}}}}
with open(options.records, "a") as stream:
    print(json.dumps(record), file=stream)
if kills:
    sys.exit(print("error: " + DEAD, file=sys.stderr) or 3)
sys.exit(6 if unverified and options.strict else 0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    benchmark = tmp_path / "work" / "benchmark"
    for name in ("config", "runners"):
        (benchmark / name).mkdir(parents=True)
    (benchmark / "mcoplib_mxbenchmark_ops.py").write_text(SCRIPT)
    for op in OPS:
        (benchmark / "config" / f"{op}.json").write_text('{"rows": [8, 16], "d": "x y"}')
        runner = benchmark / "runners" / f"mcoplib_mxbenchmark_{op}_runners.py"
        runner.write_text("class Runner(OpBenchmarkBase):\n    pass\n")
    here = {"transport": "local", "store": str(tmp_path / "store")}
    inventory = {
        "defaults": {
            "env_script": "none",
            "python": sys.executable,
            "lock_folder": str(tmp_path / "locks"),
        },
        "hosts": {"here": here, "old": {**here, "workdir": str(tmp_path / "nowhere")}},
    }
    (tmp_path / "work" / "inventory.yaml").write_text(json.dumps(inventory))
    return tmp_path / "work"


def mxfleet(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MXFLEET", "GIT_"))}
    return subprocess.run(
        [MXFLEET, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def run_here(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return mxfleet(folder, "run", "--hosts", "here", *arguments)


def records(folder: Path, op: str) -> list[dict[str, Any]]:
    (run,) = (folder / "runs").iterdir()
    lines = (run / "records" / "here" / f"{op}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ([], [None, None, None, False]),
        (["--sampling", "established"], ["established", None, None, False]),
        (["--repeats", "3", "--strict"], [None, "3", None, True]),
        (
            ["--case", "rows=8", "--case", "d=x y"],
            [None, None, ["rows=8", "d=x y"], False],
        ),
    ],
)
def test_it_reaches_the_front_door(folder: Path, arguments: list[str], asked: list[Any]) -> None:
    done = run_here(folder, "--op", "m_plain", *arguments)
    assert done.returncode == 0, done.stderr
    assert f"here | asked {json.dumps(asked)}" in done.stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "code", "statuses", "target"),
    [
        (["m_plain"], 0, ["PASSED"], "OK"),
        (["m_plain", "--strict"], 0, ["PASSED"], "OK"),
        (["m_unverified"], 0, ["UNVERIFIED"], "OK"),
        (["m_unverified", "--strict"], 6, ["UNVERIFIED"], "OK"),
        (["m_elsewhere"], 0, ["PASSED"], "OK"),
        (["m_elsewhere", "--strict"], 3, ["NOT_RUN"], "UNUSABLE"),
        # meant for another device is one operator, not the target
        (["m_elsewhere,m_plain", "--strict"], 3, ["NOT_RUN", "PASSED"], "UNUSABLE"),
        (["m_elsewhere,m_unverified", "--strict"], 3, ["NOT_RUN", "UNVERIFIED"], "UNUSABLE"),
    ],
)
def test_strict(
    folder: Path, arguments: list[str], code: int, statuses: list[str], target: str
) -> None:
    done = run_here(folder, "--output", "json", "--op", *arguments)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    rows = [event for event in events if event["event"] == "row"]
    assert [row["status"] for row in rows] == statuses
    assert (done.returncode, events[-1]["exit_code"]) == (code, code)
    assert events[-1]["targets"] == {"here": target}
    again = mxfleet(folder, "pull", "--hosts", "here")
    assert again.returncode == code, again.stdout + again.stderr


@pytest.mark.parametrize("more", [[], ["--strict"]])
def test_nothing_more_is_run_on_a_gpu_that_answers_no_more(folder: Path, more: list[str]) -> None:
    done = run_here(folder, "--output", "json", "--op", "m_kills,m_plain", *more)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    rows = [(event["op"], event["status"]) for event in events if event["event"] == "row"]
    assert rows == [("m_kills", "ERROR"), ("m_kills", "ERROR"), ("m_plain", "NOT_RUN")]
    (failed,) = (event for event in events if event["event"] == "target_failed")
    assert (failed["status"], failed["message"]) == ("UNUSABLE", DEAD)
    assert done.returncode == 1


def test_a_device_that_the_config_is_not_for_is_said_once(folder: Path) -> None:
    done = run_here(folder, "--op", "m_elsewhere")
    assert done.stdout.count(ODD) == 1  # beneath the table
    assert done.stderr.count(ODD) == 1  # when it is found


@pytest.mark.parametrize(
    ("hosts", "arguments", "said"),
    [
        ("old", ["--repeats", "5"], "--repeats 5 cannot be honoured by the established scripts on"),
        ("old", ["--sampling", "adaptive"], "--sampling adaptive cannot be honoured"),
        ("old", ["--case", "rows=8"], "on old; leave it out, or give the targets no workdir"),
        (
            "here,old",
            ["--case", "rows=8", "--repeats", "2"],
            "leave these targets out with --hosts",
        ),
        ("here", ["--case", "row=8"], "config/m_plain.json: --case row: the config has no such"),
        ("here", ["--case", "rows=9"], "no case has rows=9; rows is 8, 16 there"),
    ],
)
def test_what_cannot_be_is_said_before_anything_starts(
    folder: Path, hosts: str, arguments: list[str], said: str
) -> None:
    done = mxfleet(folder, "run", "--op", "m_plain", "--hosts", hosts, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (folder / "runs").exists()


def test_what_established_scripts_do_anyway_may_be_asked_for(folder: Path) -> None:
    asked = ("--sampling", "established", "--repeats", "1", "--strict", "--dry-run")
    done = mxfleet(folder, "run", "--op", "m_plain", *asked)
    assert done.returncode == 0, done.stderr
    here, old = (line for line in done.stdout.splitlines() if "mcoplib_mxbenchmark_ops.py" in line)
    assert here.endswith("--sampling established --repeats 1 --strict")
    assert old.endswith("--generate")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_records_tell_the_commit_of_their_tree(folder: Path) -> None:
    git = ["git", "-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], ["add", "benchmark"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], cwd=folder, check=True, timeout=60)
    head = subprocess.run(
        [*git, "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()
    assert run_here(folder, "--op", "m_plain").returncode == 0
    assert [r["environment"]["commit"] for r in records(folder, "m_plain")] == [head]
    # The run's own results make nothing dirty, nor does pulling later take a newer commit.
    (folder / "benchmark" / "config" / "m_plain.json").write_text("{}")
    assert mxfleet(folder, "pull", "--hosts", "here").returncode == 0
    assert [r["environment"]["commit"] for r in records(folder, "m_plain")] == [head]
    shutil.rmtree(folder / "runs")
    assert run_here(folder, "--op", "m_plain").returncode == 0
    assert [r["environment"]["commit"] for r in records(folder, "m_plain")] == [f"{head}+dirty"]
