"""The main job on this machine alone, where there is neither SSH nor Docker nor root."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

MXFLEET = Path(sys.executable).with_name("mxfleet")
OP = "local_digest"
DAMAGE = {
    "local_edits": "the job changed the tree that it ran in",
    "local_removes": "the job damaged what it ran in: its job folder is gone",
    "local_pipes": "records.jsonl: it is not an ordinary file",
    "local_links": "records.jsonl: it is a symbolic link",
}
SCRIPT = """
import argparse, hashlib, json, os, shutil, time, uuid
SUPPORTED_OPERATORS = ["local_digest", "local_talks", "local_waits",
                       "local_edits", "local_removes", "local_pipes", "local_links"]
parser = argparse.ArgumentParser()
for name in ("--op", "--csv", "--records", "--set"):
    parser.add_argument(name)
parser.add_argument("--generate", action="store_true")
options = parser.parse_args()
print("value", json.dumps(os.environ.get("VALUE")), "set", options.set)
if options.op == "local_talks":
    for number in range(20000):
        print("line", number, "x" * 100)
if options.op == "local_waits":
    print("waiting", flush=True)
    time.sleep(60)
began = time.perf_counter()
hashlib.sha256(bytes(1 << 20)).hexdigest()
took = time.perf_counter() - began
record = {"schema": "mxfleet-result/1", "record_id": uuid.uuid4().hex, "suite": "mcoplib",
          "op": options.op, "case_id": "0123456789abcdef", "status": "PASSED",
          "verification": {"passed": True}, "device": {"kind": "cpu", "name": "Any"},
          "timers": {"cpu": {"mean": took, "median": took, "samples": 1}}}
with open(options.records, "a") as stream:
    print(json.dumps(record), file=stream)
if options.op == "local_edits":
    with open("config/local_digest.json", "w") as stream:
        stream.write('{"n": 1}')
if options.op == "local_removes":
    shutil.rmtree(os.environ["MXFLEET_JOB"])
if options.op == "local_pipes":
    os.unlink(options.records)
    os.mkfifo(options.records)
if options.op == "local_links":
    os.unlink(options.records)
    os.symlink("/etc/hostname", options.records)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    benchmark = tmp_path / "work" / "benchmark"
    for name in ("config", "runners"):
        (benchmark / name).mkdir(parents=True)
    (benchmark / "mcoplib_mxbenchmark_ops.py").write_text(SCRIPT)
    for op in (OP, "local_talks", "local_waits", *DAMAGE):
        (benchmark / "config" / f"{op}.json").write_text("{}")
        runner = benchmark / "runners" / f"mcoplib_mxbenchmark_{op}_runners.py"
        runner.write_text("class Runner(OpBenchmarkBase):\n    pass\n")
    inventory = {
        "defaults": {
            "env_script": "none",
            "env": {"VALUE": "a b;$(reboot)'\""},
            "lock_folder": str(tmp_path / "locks"),
        },
        "hosts": {"here": {"transport": "local", "store": str(tmp_path / "store")}},
    }
    (tmp_path / "work" / "inventory.yaml").write_text(json.dumps(inventory))
    return tmp_path / "work"


def mxfleet(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MXFLEET")}
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


def test_push_run_and_again(folder: Path) -> None:
    pushed = mxfleet(folder, "push")
    assert (pushed.returncode, "sent 3 files" in pushed.stdout) == (0, True), pushed.stderr
    first = mxfleet(folder, "run", "--op", OP, "--samples", "3")
    assert first.returncode == 0, first.stderr
    assert """here | value "a b;$(reboot)'\\"" set samples=3""" in first.stdout.splitlines()
    (table,) = (folder / "benchmark" / "statistics").glob("*.csv")
    assert table.name == "mcoplib_ops_performance_CPU_Any.csv"
    before = table.read_bytes()
    assert mxfleet(folder, "run", "--op", OP).returncode == 0
    assert table.read_bytes() == before


def test_a_reader_that_goes_away_ends_the_run(folder: Path) -> None:
    """`mxfleet run … | head -1`: no traceback, and not a success."""
    command = f"{MXFLEET} run --op {OP} 2>errors | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, stdin=subprocess.DEVNULL, timeout=60, check=False
    )
    assert done.returncode == 130
    assert "Traceback" not in (folder / "errors").read_text()


def test_a_reader_that_goes_away_ends_the_run_between_operators_too(folder: Path) -> None:
    """Nothing hangs on what nobody takes, and no further operator is begun."""
    command = (
        f"{MXFLEET} run --op local_talks,{OP},local_waits 2>errors | head -3; "
        "exit ${PIPESTATUS[0]}"
    )
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 130
    assert "Traceback" not in (folder / "errors").read_text()
    (run,) = (folder / "runs").iterdir()
    (waits,) = run.glob("records/here/local_waits.jsonl")
    assert json.loads(waits.read_text())["status"] == "NOT_RUN"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_orderly(folder: Path, number: int) -> None:
    """What was measured is merged; the job does not outlive the run."""
    running = subprocess.Popen(
        [MXFLEET, "run", "--op", f"{OP},local_waits"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith("here | waiting"):
            break
    running.send_signal(number)
    rest = running.stdout.read()
    assert running.wait(30) == 130
    assert "appended" in rest
    assert len(list((folder / "benchmark" / "statistics").glob("*.csv"))) == 1
    (run,) = (folder / "runs").iterdir()
    cookie = json.loads((run / "plan.json").read_text())["jobs"][1]["job"].encode()
    alive = [p for p in Path("/proc").glob("[0-9]*/environ") if cookie in _environ(p)]
    assert alive == []


def _environ(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _job_folder(folder: Path) -> Path:
    (found,) = (folder.parent / "store" / "jobs").glob("*local_digest*")
    return found


def _records(folder: Path) -> list[dict[str, object]]:
    (run,) = (folder / "runs").iterdir()
    path = run / "records" / "here" / f"{OP}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_pull_never_loses_what_is_here(folder: Path) -> None:
    assert mxfleet(folder, "run", "--op", OP).returncode == 0
    before = _records(folder)
    (store,) = (folder / "benchmark" / "statistics" / "records").glob("*.jsonl")
    kept = store.read_bytes()
    (_job_folder(folder) / "records.jsonl").unlink()
    done = mxfleet(folder, "pull")
    assert "less lies there than is here, which is kept" in done.stderr
    assert done.returncode == 0
    assert "PASSED" in done.stdout
    assert _records(folder) == before
    assert store.read_bytes() == kept


def test_pull_brings_back_what_was_lost_here(folder: Path) -> None:
    assert mxfleet(folder, "run", "--op", OP).returncode == 0
    before = _records(folder)
    (run,) = (folder / "runs").iterdir()
    (run / "records" / "here" / f"{OP}.jsonl").unlink()
    (log,) = run.glob("logs/here/*.log")
    text = log.read_bytes()
    log.unlink()
    assert mxfleet(folder, "pull").returncode == 0
    assert _records(folder) == before
    assert log.read_bytes() == text


def test_pull_of_what_is_nowhere_is_no_success(folder: Path) -> None:
    assert mxfleet(folder, "run", "--op", OP).returncode == 0
    (run,) = (folder / "runs").iterdir()
    (run / "records" / "here" / f"{OP}.jsonl").unlink()
    shutil.rmtree(_job_folder(folder))
    done = mxfleet(folder, "pull")
    assert done.returncode == 3
    assert "never started there" in done.stdout


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("{}", "the plan of the run is damaged"),
        ("[]", "the plan of the run is damaged"),
        ('{"run": "x", "tree": "y", "mode": "generate", "jobs": [{}]}', "is damaged"),
        ('{"run": "x", "tree": "y", "mode": "other", "jobs": []}', "is damaged"),
        ("{", "cannot be read"),
    ],
)
def test_pull_with_a_damaged_plan(folder: Path, plan: str, words: str) -> None:
    assert mxfleet(folder, "run", "--op", OP).returncode == 0
    (run,) = (folder / "runs").iterdir()
    (run / "plan.json").write_text(plan)
    done = mxfleet(folder, "pull")
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_pull_where_a_target_is_gone_from_the_inventory(folder: Path) -> None:
    inventory = folder / "inventory.yaml"
    two = json.loads(inventory.read_text())
    two["hosts"]["there"] = {**two["hosts"]["here"], "store": str(folder.parent / "store2")}
    one = inventory.read_text()
    inventory.write_text(json.dumps(two))
    assert mxfleet(folder, "run", "--op", OP).returncode == 0
    inventory.write_text(one)
    done = mxfleet(folder, "pull")
    assert done.returncode == 2  # not all that was asked for
    assert "here" in done.stdout
    assert "no longer in" in done.stderr
    assert mxfleet(folder, "pull", "--hosts", "here").returncode == 0


def test_two_at_work_on_one_run(folder: Path) -> None:
    assert mxfleet(folder, "run", "--op", OP).returncode == 0
    (run,) = (folder / "runs").iterdir()
    with (run / ".lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = mxfleet(folder, "pull")
    assert done.returncode == 2
    assert "another mxfleet is at work on this run" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system: needs root")
@pytest.mark.parametrize("kilobytes", [16, 64, 256])
def test_a_full_disk_under_the_runs_loses_no_result(folder: Path, kilobytes: int) -> None:
    """Whatever cannot be written there, what was measured is merged and the code is not 0."""
    runs = folder / "runs"
    runs.mkdir()
    size = f"size={kilobytes}k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(runs)], check=True)
    try:
        done = mxfleet(folder, "run", "--op", f"{OP},local_talks,{OP}")
    finally:
        subprocess.run(["umount", str(runs)], check=True)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr
    if kilobytes >= 64:  # else the run does not begin: not even its plan can be kept
        (table,) = (folder / "benchmark" / "statistics").glob("*.csv")
        assert f"\n{OP}," in table.read_text()


def test_without_a_standard_output(folder: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{MXFLEET} run --op {OP} >&-"], cwd=folder, timeout=60, check=False
    )
    assert done.returncode == 0


@pytest.mark.parametrize(("op", "words"), DAMAGE.items())
def test_a_job_that_does_damage_harms_itself_alone(folder: Path, op: str, words: str) -> None:
    """It is an ERROR, its row enters no table, and the next operator is measured."""
    done = mxfleet(folder, "run", "--op", f"{op},{OP}")
    assert done.returncode == 1, done.stdout + done.stderr
    assert words in " ".join(done.stdout.split())
    (run,) = (folder / "runs").iterdir()
    statuses = [json.loads(line)["status"] for line in _lines(run / f"records/here/{op}.jsonl")]
    assert statuses[-1] == "ERROR"
    assert [record["status"] for record in _records(folder)] == ["PASSED"]
    (table,) = (folder / "benchmark" / "statistics").glob("*.csv")
    assert [line.split(",")[0] for line in _lines(table)[1:]] == [OP]


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()
