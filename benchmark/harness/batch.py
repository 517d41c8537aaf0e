"""``testall.py``: each operator in a process group of its own, one line each, then a summary.

What became of an operator is read from the records its process wrote, so that a crash, a hang or
an operator without a result is named for what it is and never taken for a success.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import files, loader, record
from harness.errors import ForeignFileError, HarnessError, TreeError
from harness.session import EXIT_CODES

FRONT_DOOR = "mcoplib_mxbenchmark_ops.py"
# Lines of an operator's output shown when it did not succeed.
TAIL = 20
GRACE = 5.0
# Worst first: the status that stands for an operator with several cases.
_SEVERITY = ("ERROR", "TIMEOUT", "FAILED", "NOT_RUN", "UNAVAILABLE", "UNVERIFIED", "PASSED")
_DONE = {
    "[APPEND]": "appended",
    "[NEW]": "appended",
    "[UPDATE]": "updated",
    "[SKIP]": "exists",
    "[KEEP]": "kept",
    "Result:": "compared",
}


@dataclass(frozen=True)
class Result:
    """What became of one operator; ``note`` says more in a few words."""

    status: str
    note: str
    code: int
    output: bytes = b""


def parser() -> argparse.ArgumentParser:
    """testall's flags; others go to the operators' front door and from there to nvbench."""
    parse = argparse.ArgumentParser(
        prog="testall.py",
        allow_abbrev=False,
        description="Measure all operators, each in a process of its own.",
        epilog="Flags that are not listed here go to every operator. Exit code: the lowest of "
        "1 failed or error, 2 usage, 3 unusable machine, 4 timeout; an unavailable operator only "
        "counts.",
    )
    mode = parse.add_mutually_exclusive_group()
    for name in ("generate", "update", "compare"):
        mode.add_argument(f"--{name}", dest="mode", action="store_const", const=name)
    parse.set_defaults(mode="generate")
    parse.add_argument(
        "--csv",
        metavar="PATH",
        type=Path,
        help="performance table (default: the one of this device model in statistics/)",
    )
    parse.add_argument("--ops", metavar="A,B", help="only these operators")
    parse.add_argument("--dry-run", action="store_true", help="show the commands, run nothing")
    parse.add_argument(
        "--op-timeout",
        metavar="SECONDS",
        type=float,
        default=1800.0,
        help="an operator's processes are killed after this time (default 1800)",
    )
    return parse


def main(argv: Sequence[str], operators: Sequence[str], ignored: Sequence[str], root: str) -> int:
    """Run testall for the tree ``root``; returns its exit code."""
    args, passed_on = parser().parse_known_args(argv)
    try:
        return _run(args, passed_on, operators, ignored, Path(root))
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130


def _run(
    args: argparse.Namespace,
    passed_on: list[str],
    operators: Sequence[str],
    ignored: Sequence[str],
    root: Path,
) -> int:
    chosen = _choose(args.ops, operators)
    table: Path = args.csv or _default_table(root)
    records = record.default_path(table)
    began = time.monotonic()
    counts: Counter[str] = Counter()
    codes = {0}
    for number, op in enumerate(chosen, start=1):
        start = [sys.executable, "-u", str(root / FRONT_DOOR), "--op", op]
        command = [*start, f"--{args.mode}", "--csv", str(table), *passed_on]
        if args.dry_run:
            print(" ".join(command))
            continue
        print(f"[{number}/{len(chosen)}] {op} ... ", end="", flush=True)
        started = time.monotonic()
        # Left out on purpose, unless asked for by name.
        left_out = op in ignored and args.ops is None
        if left_out:
            result = Result("SKIPPED", "ignored", 0)
        else:
            result = _measure(command, records, args.op_timeout)
        counts[result.status] += 1
        codes.add(result.code)
        word = "SUCCESS" if result.status == "PASSED" else result.status
        print(f"{word} ({result.note}) [{time.monotonic() - started:.1f}s]", flush=True)
        _show_tail(result)
    if args.dry_run:
        return 0
    print(
        f"SUMMARY | mode={args.mode} | total={len(chosen)} success={counts['PASSED']} "
        f"failed={counts['FAILED']} skipped={counts['SKIPPED']} | "
        f"error={counts['ERROR']} timeout={counts['TIMEOUT']} "
        f"unavailable={counts['UNAVAILABLE']} unverified={counts['UNVERIFIED']} "
        f"not_run={counts['NOT_RUN']} | {time.monotonic() - began:.1f}s | {table}",
        flush=True,
    )
    return min(codes - {0}, default=0)


def _choose(ops: str | None, operators: Sequence[str]) -> list[str]:
    if ops is None:
        return sorted(operators)
    names = list(dict.fromkeys(name.strip() for name in ops.split(",") if name.strip()))
    if not names:
        raise TreeError("--ops names no operator")
    for name in names:
        loader.check_supported(name, operators)
    return names


def _default_table(root: Path) -> Path:
    """The table of this machine's first device; asked in a process of its own, which needs torch.

    Raises ``HarnessError`` when that process cannot tell.
    """
    script = "from harness.environment import first_device_model as f; print(f())"
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False
    )
    lines = found.stdout.strip().splitlines()
    if found.returncode or not lines:
        said = found.stderr.strip().splitlines()
        error = HarnessError(f"the device cannot be told: {said[-1] if said else 'no answer'}")
        error.code = 3
        raise error
    return root / "statistics" / f"mcoplib_ops_performance_{lines[-1]}.csv"


def _measure(command: Sequence[str], records: Path, limit: float) -> Result:
    """Run one operator's front door, at most ``limit`` seconds, and keep its records."""
    with tempfile.TemporaryDirectory(prefix="testall-") as folder:
        output, own = Path(folder, "output"), Path(folder, "records.jsonl")
        with output.open("wb") as log:
            process = subprocess.Popen(
                [*command, "--records", str(own)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            timed_out = False
            kept: list[dict[str, Any]] = []
            spoilt: HarnessError | None = None
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                timed_out = True
            finally:
                _end_group(process)
                try:
                    kept = _keep(own, records)
                except HarnessError as error:
                    spoilt = error
        text = output.read_bytes()
    if spoilt is not None:
        return Result("ERROR", str(spoilt), spoilt.code, text)
    if timed_out:
        return Result("TIMEOUT", f"killed after {limit:g} s", EXIT_CODES["TIMEOUT"], text)
    return _judge(process.returncode, [str(r["status"]) for r in kept], text)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing of the operator's process group alive: the next one needs the machine."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + GRACE
        try:
            os.killpg(process.pid, number)
            while time.monotonic() < deadline:
                process.poll()
                os.killpg(process.pid, 0)
                time.sleep(0.02)
        except (ProcessLookupError, PermissionError):  # macOS: not permitted on a dead one
            break
    process.poll()


def _keep(own: Path, records: Path) -> list[dict[str, Any]]:
    """Move the operator's records to those of the run; an unfinished last line is not one."""
    try:
        lines = files.read_regular(own).split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    kept = []
    for number, line in enumerate(lines, start=1):
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("status") not in EXIT_CODES:
            raise ForeignFileError(
                f"{own}:{number}: the operator wrote into its own records; none of them is kept"
            )
        kept.append(found)
    record.append(records, *kept)
    return kept


def _judge(code: int, statuses: Sequence[str], text: bytes) -> Result:
    if code < 0:
        return Result("ERROR", f"killed by {signal.Signals(-code).name}", 1, text)
    if not statuses:
        said = text.decode("utf-8", "replace").strip().splitlines()
        told = code if code in (2, 3) else 1
        return Result("ERROR", said[-1] if said else f"exit code {code}, no result", told, text)
    status = next(s for s in _SEVERITY if s in statuses)
    if status == "PASSED" and code != 0:
        # All cases are well, but what came after them is not: the table, say.
        return Result("ERROR", f"exit code {code}", code, text)
    note = f"{statuses.count(status)} of {len(statuses)} cases" if len(statuses) > 1 else ""
    if status == "PASSED":
        done = [word for mark, word in _DONE.items() if mark.encode() in text]
        return Result(status, ", ".join(done) or "measured", 0)
    counted = 0 if status == "UNAVAILABLE" else EXIT_CODES[status]
    return Result(status, note or f"exit code {code}", counted, text)


def _show_tail(result: Result) -> None:
    """The end of an operator's output, indented, when it did not succeed."""
    for line in result.output.decode("utf-8", "replace").splitlines()[-TAIL:]:
        print(f"    {line}", flush=True)
