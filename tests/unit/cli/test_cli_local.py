"""The main job on this machine alone, where there is neither SSH nor Docker nor root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MXFLEET = Path(sys.executable).with_name("mxfleet")
OP = "local_digest"
SCRIPT = """
import argparse, hashlib, json, os, time, uuid
SUPPORTED_OPERATORS = ["local_digest"]
parser = argparse.ArgumentParser()
for name in ("--op", "--csv", "--records", "--set"):
    parser.add_argument(name)
parser.add_argument("--generate", action="store_true")
options = parser.parse_args()
print("value", json.dumps(os.environ.get("VALUE")), "set", options.set)
began = time.perf_counter()
hashlib.sha256(bytes(1 << 20)).hexdigest()
took = time.perf_counter() - began
record = {"schema": "mxfleet-result/1", "record_id": uuid.uuid4().hex, "suite": "mcoplib",
          "op": options.op, "case_id": "0123456789abcdef", "status": "PASSED",
          "verification": {"passed": True}, "device": {"kind": "cpu", "name": "Any"},
          "timers": {"cpu": {"mean": took, "median": took, "samples": 1}}}
with open(options.records, "a") as stream:
    print(json.dumps(record), file=stream)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    benchmark = tmp_path / "work" / "benchmark"
    for name in ("config", "runners"):
        (benchmark / name).mkdir(parents=True)
    (benchmark / "mcoplib_mxbenchmark_ops.py").write_text(SCRIPT)
    (benchmark / "config" / f"{OP}.json").write_text("{}")
    runner = benchmark / "runners" / f"mcoplib_mxbenchmark_{OP}_runners.py"
    runner.write_text("class Runner(OpBenchmarkBase):\n    pass\n")
    inventory = {
        "defaults": {"env_script": "none", "env": {"VALUE": "a b;$(reboot)'\""}},
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
