"""What does the harness add to nvbench's CPU time? Written to docs/measured/overhead.md.

``python bench/overhead.py`` where a GPU and cuda-bench are. The CPU time of a sample is that of the
launch: everything a harness does between nvbench and the operator shows there. Both take turns in
every round, a process each. Exit code 1 when the promise is broken; without a GPU the table is
skipped.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from common.command import table_command
from common.errors import Failed, Skip
from common.table import Promise, Report, median
from common.tools import machine

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs" / "measured" / "overhead.md"
PLAIN, OURS = "plain nvbench", "harness"
ALLOWED = 1.05
SAMPLING = ["--min-time", "0.5", "--min-samples", "1000"]

HOW = """`torch.softmax` on [512 4096] bfloat16 on a GPU, as `torch_softmax` of the suite and as a
script of its own that calls nvbench directly. The seconds are nvbench's mean CPU time of a cold
sample. Both sample at least 0.5 s and 1000 times."""


def measure(rounds: int) -> Report:
    """Alternate both, ``rounds`` times after one that does not count."""
    script = (
        "import torch; print(torch.cuda.get_device_name(0) if torch.cuda.is_available() else '')"
    )
    name = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    if not name.stdout.strip():
        raise Skip("torch sees no GPU here")
    seconds: dict[str, list[float]] = {PLAIN: [], OURS: []}
    for number in range(rounds + 1):
        for way, taken in ((PLAIN, _plain()), (OURS, _ours())):
            if number:
                seconds[way].append(taken)
    ratio = median(seconds[OURS]) / median(seconds[PLAIN])
    return Report(
        title="Harness overhead",
        how=" ".join(HOW.split()),
        command="python bench/overhead.py",
        seconds={way: [value * 1e6 for value in values] for way, values in seconds.items()},
        reference={OURS: PLAIN},
        promises=[Promise("CPU time of the harness over plain nvbench", ratio, ALLOWED, "×")],
        foot=[f"device: {name.stdout.strip()}", *machine()],
        unit="Microseconds",
    )


def _plain() -> float:
    script = ROOT / "bench" / "plain" / "nvbench_softmax.py"
    done = subprocess.run(
        [sys.executable, str(script), "--throttle-threshold", "0", *SAMPLING],
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not lines:
        raise Failed(f"{script.name} failed: {done.stderr[-2000:]}")
    cpu: float = json.loads(lines[-1].removeprefix("RESULT "))["cpu"]
    return cpu


def _ours() -> float:
    with tempfile.TemporaryDirectory(prefix="bench-overhead-") as folder:
        records = Path(folder, "records.jsonl")
        command = [sys.executable, str(ROOT / "benchmark" / "mcoplib_mxbenchmark_ops.py")]
        command += ["--op", "torch_softmax", "--records", str(records), "--no-batch"]
        command += ["--repeats", "1", *SAMPLING]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"the front door failed: {(done.stdout + done.stderr)[-2000:]}")
        record = json.loads(records.read_text())
    cpu: float = record["timers"]["cpu"]["mean"]
    return cpu


if __name__ == "__main__":
    sys.exit(table_command("bench/overhead.py", __doc__, measure, 5, TABLE))
