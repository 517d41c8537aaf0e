"""How long does `testall.py` take? One fresh process an operator beside the warm worker.

``python bench/testall.py`` where a GPU, nvbench and an operator library are (flags after ``--`` go
to testall, ``-- --library vllm`` say); docs/measured/testall.md. One case an operator: the first of
each sweep. All ways take turns in every round. ``--keep FILE`` appends what was measured, so that
rounds of several calls add up; ``--only`` measures some of the ways. Exit code 1 when a promise is
broken; without a GPU the table is skipped.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.errors import Failed, Skip
from common.table import Promise, Report
from common.tools import machine

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs" / "measured" / "testall.md"
ESTABLISHED, ONE, FIVE = "fresh, established", "warm, 1 repeat", "warm, 5 repeats"
SPREAD_OUT = "warm, 5 repeats, all GPUs"
WAYS = {
    ESTABLISHED: ["--cold", "--sampling", "established"],
    ONE: ["--repeats", "1"],
    FIVE: [],
    SPREAD_OUT: ["--gpus", "all"],
}
FEWEST = 20

HOW = f"""All operators that have a kernel on this machine, one case each, through `testall.py`:
`{ESTABLISHED}` starts a Python for each operator and samples it once with the established settings
(1.5 s at least, noise limit of nvbench); the others fork each operator from a process that has
imported torch, and sample until the entropy criterion is met, in 1 or 5 forked processes. All
verify before they measure. Whole runs are timed, start and imports included."""


def main() -> int:
    """Measure, write the table, print it."""
    parser = argparse.ArgumentParser(prog="bench/testall.py", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--ops", metavar="A,B", help="default: all that pass once")
    parser.add_argument("--only", action="append", choices=list(WAYS), help="repeatable")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="append the passes to it")
    parser.add_argument(
        "--records", type=Path, metavar="FILE", help="append the records of the 5 repeats to it"
    )
    parser.add_argument("--table", type=Path, default=TABLE, metavar="FILE")
    parser.add_argument("flags", nargs="*", metavar="-- FLAGS", help="for testall")
    options = parser.parse_args()
    try:
        passes = _kept(options.keep)
        if options.rounds:
            passes += _measure(options)
        report = _report(passes)
    except Skip as reason:
        print(f"bench/testall.py: skipped: {reason}", file=sys.stderr)
        return 0
    except Failed as reason:
        print(f"bench/testall.py: {reason}", file=sys.stderr)
        return 1
    report.write(options.table)
    print(report.markdown())
    return 0 if report.kept else 1


def _gpus() -> int:
    script = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    return int(done.stdout.strip() or 0)


def _measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    gpus = _gpus()
    if not gpus:
        raise Skip("torch sees no GPU here")
    ways = options.only or [way for way in WAYS if way != SPREAD_OUT or gpus > 1]
    passes = []
    with tempfile.TemporaryDirectory(prefix="bench-testall-") as folder:
        tree = _tree(Path(folder))
        ops = options.ops.split(",") if options.ops else _with_kernels(tree, options.flags)
        for number in range(options.rounds):
            for way in ways:
                print(f"round {number + 1}: {way}, {len(ops)} operators ...", flush=True)
                records = options.records if way == FIVE else None
                flags = [*WAYS[way], *options.flags]
                one = _pass(tree, ops, flags, records)
                one |= {"way": way, "gpus": gpus, "machine": machine()}
                print(f"  {one['seconds']:.1f} s", flush=True)
                passes.append(one)
                if options.keep is not None:
                    with options.keep.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(one) + "\n")
    return passes


def _tree(folder: Path) -> Path:
    """A copy of benchmark/ whose configurations hold the first case of their sweeps only."""
    tree = folder / "benchmark"
    shutil.copytree(
        ROOT / "benchmark", tree, ignore=shutil.ignore_patterns("statistics", "__pycache__")
    )
    for path in (tree / "config").glob("*.json"):
        config = json.loads(path.read_text())
        for key, value in config.items():
            if isinstance(value, list) and key not in ("device_id", "device_name"):
                config[key] = value[0]
        path.write_text(json.dumps(config))
    return tree


def _with_kernels(tree: Path, flags: Sequence[str]) -> list[str]:
    """The operators that pass: one quick run, which also brings the files into memory."""
    quick = ["--repeats", "1", *flags]
    found = _pass(tree, None, quick)["rows"]
    return sorted(op for op, row in found.items() if row["status"] == "PASSED")


def _pass(
    tree: Path, ops: Sequence[str] | None, flags: Sequence[str], keep: Path | None = None
) -> dict[str, Any]:
    """One run of testall; its records are appended to ``keep``."""
    with tempfile.TemporaryDirectory(prefix="bench-pass-") as folder:
        table = Path(folder, "table.csv")
        command = [sys.executable, str(tree / "testall.py"), "--csv", str(table), *flags]
        if ops is not None:
            command += ["--ops", ",".join(ops)]
        began = time.monotonic()
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        seconds = time.monotonic() - began
        records = table.with_suffix(".records.jsonl")
        if not records.exists():
            raise Failed(f"testall left no records: {(done.stdout + done.stderr)[-2000:]}")
        text = records.read_text(encoding="utf-8")
        rows = [json.loads(line) for line in text.splitlines()]
        if keep is not None:
            with keep.open("a", encoding="utf-8") as file:
                file.write(text)
    return {
        "seconds": seconds,
        "rows": {row["op"]: _row(row) for row in rows},
        "device": rows[0]["device"]["name"],
        "environment": {
            key: rows[0]["environment"].get(key) for key in ("torch", "nvbench", "driver")
        },
        "library": next((r["library"] for r in rows if (r["library"] or {}).get("sha256")), None),
    }


def _row(record: dict[str, Any]) -> dict[str, Any]:
    timer = record["timers"]["cold_gpu"] or {}
    return {
        "status": record["status"],
        "median": timer.get("median"),
        "spread": record["repeat_spread"],
    }


def _kept(path: Path | None) -> list[dict[str, Any]]:
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _report(passes: Sequence[dict[str, Any]]) -> Report:
    if not passes:
        raise Failed("nothing was measured: give --rounds, or --keep with a file of passes")
    seconds: dict[str, list[float]] = {}
    for one in passes:
        seconds.setdefault(one["way"], []).append(one["seconds"])
    missing = [way for way in (ESTABLISHED, ONE, FIVE) if way not in seconds]
    if missing:
        raise Failed(f"nothing was measured of {missing}")
    middle = {way: statistics.median(values) for way, values in seconds.items()}
    ops = set.intersection(*(set(one["rows"]) for one in passes))
    near, spreads = _near(passes, ops)
    promises = [
        Promise("operators", len(ops), FEWEST, "", at_least=True),
        Promise("1 repeat: times faster", middle[ESTABLISHED] / middle[ONE], 8, "×", True),
        Promise("5 repeats: times faster", middle[ESTABLISHED] / middle[FIVE], 2, "×", True),
        Promise("medians within max(1 %, repeat spread)", near * 100, 95, "%", at_least=True),
    ]
    gpus = max(one["gpus"] for one in passes)
    if SPREAD_OUT in middle:
        gain = middle[FIVE] / middle[SPREAD_OUT]
        promises.append(Promise(f"{gpus} GPUs: times faster", gain, 0.8 * gpus, "×", True))
    last = passes[-1]
    library, nvbench = last["library"] or {}, last["environment"]["nvbench"] or {}
    foot = [
        f"device: {last['device']} × {gpus}, driver {last['environment']['driver']}",
        f"torch {last['environment']['torch']}, {nvbench.get('package')} {nvbench.get('version')}, "
        f"{library.get('name')} {library.get('version')}",
        f"operators: {', '.join(sorted(ops))}",
        f"repeat spread of 5 repeats: median {statistics.median(spreads):.2%}, "
        f"90 % of rows below {sorted(spreads)[int(0.9 * (len(spreads) - 1))]:.2%}, "
        f"largest {max(spreads):.2%}",
        *last.get("machine", []),
    ]
    if gpus == 1:
        foot.append("one GPU: how it scales over several was not measured here")
    return Report(
        title="testall",
        how=" ".join(HOW.split()),
        command="python bench/testall.py",
        seconds=seconds,
        reference={way: ESTABLISHED for way in seconds if way != ESTABLISHED},
        promises=promises,
        foot=foot,
    )


def _near(passes: Sequence[dict[str, Any]], ops: set[str]) -> tuple[float, list[float]]:
    """The share of rows of 5 repeats that agree with the established median, and their spreads."""
    near, spreads = [], []
    for op in sorted(ops):
        settled = [
            one["rows"][op]["median"]
            for one in passes
            if one["way"] == ESTABLISHED and one["rows"][op]["median"]
        ]
        for one in passes:
            row = one["rows"][op]
            if one["way"] != FIVE or not row["median"] or not settled:
                continue
            reference = statistics.median(settled)
            allowed = max(0.01, row["spread"] or 0.0)
            near.append(abs(row["median"] - reference) <= allowed * reference)
            spreads.append(row["spread"] or 0.0)
    if not near:
        raise Failed("no operator passed in both ways")
    return sum(near) / len(near), spreads


if __name__ == "__main__":
    sys.exit(main())
