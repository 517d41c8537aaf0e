"""``testall.py``: each operator in a process group of its own, one line each, then a summary.

What became of an operator is read from the records its process wrote, so that a crash, a hang or
an operator without a result is named for what it is and never taken for a success. With several
GPUs each has a warm server and takes the next operator when it is free.
"""

from __future__ import annotations

import argparse
import dataclasses
import queue
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import loader, record, report, signals, streams, testjob, warm
from harness.cli import seconds
from harness.errors import HarnessError, TreeError
from harness.session import EXIT_CODES

# The front door's flags that testall gives itself, with what to write instead.
_OWN = {
    "--op": "name operators with --ops",
    "--list": "mcoplib_mxbenchmark_ops.py --list shows the operators",
    "--records": "records lie beside the table, as NAME.records.jsonl",
}


def parser() -> argparse.ArgumentParser:
    """testall's flags; others go to the operators' front door and from there to nvbench."""
    parse = argparse.ArgumentParser(
        prog="testall.py",
        allow_abbrev=False,
        description="Measure all operators, each in a process of its own.",
        epilog="Flags that are not listed here go to every operator. Exit code: the lowest of "
        "1 failed or error, 2 usage, 3 unusable machine, 4 timeout, 6 undecided (--strict); an "
        "unavailable operator only counts, unless --strict. Among those flags: --sampling, "
        "--repeats, --case, --set, --library, --strict.",
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
    parse.add_argument(
        "--output",
        metavar="PATH",
        type=Path,
        help="with --compare: the result as .xlsx (a summary and a sheet an operator) or .csv",
    )
    parse.add_argument(
        "--gpus",
        metavar="0,1|all",
        help="spread the operators over these GPUs (default: the one each configuration names)",
    )
    parse.add_argument(
        "--cold",
        action="store_true",
        help="start a fresh Python for each operator instead of forking a warm one",
    )
    parse.add_argument("--dry-run", action="store_true", help="show the commands, run nothing")
    parse.add_argument(
        "--op-timeout",
        metavar="SECONDS",
        type=seconds,
        default=1800.0,
        help="an operator's processes are killed after this time (default 1800)",
    )
    return parse


def main(argv: Sequence[str], operators: Sequence[str], ignored: Sequence[str], root: str) -> int:
    """Run testall for the tree ``root``; returns its exit code."""
    streams.mend()
    args, passed_on = parser().parse_known_args(argv)
    try:
        _refuse_own(passed_on, several=args.gpus is not None)
        with signals.unwinding():
            return _run(args, passed_on, operators, ignored, Path(root))
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130


def _refuse_own(passed_on: Sequence[str], *, several: bool) -> None:
    """Raise ``TreeError`` for flags that would have every operator do something else."""
    for flag in passed_on:
        name = flag.partition("=")[0]
        if name in _OWN:
            raise TreeError(f"testall has no {name}: {_OWN[name]}")
        if several and name in ("--device", "-d"):
            raise TreeError(f"{name} goes without --gpus: both say which GPU is used")


def _run(
    args: argparse.Namespace,
    passed_on: list[str],
    operators: Sequence[str],
    ignored: Sequence[str],
    root: Path,
) -> int:
    chosen = _choose(args.ops, operators)
    if args.output is not None:
        if args.mode != "compare":
            raise TreeError("--output goes with --compare")
        report.check(args.output)
    table: Path = args.csv or _default_table(root)
    if args.mode == "compare" and not table.exists():
        raise TreeError(f"{table}: there is no such table; make it with --generate")
    gpus = _gpus(args.gpus, root)
    # Left out on purpose, unless asked for by name.
    left_out = frozenset(ignored if args.ops is None else ())
    if args.dry_run:
        for op in chosen:
            start = [sys.executable, str(root / warm.FRONT_DOOR)]
            argv = [*start, *_argv(op, args.mode, table), *passed_on]
            print(f"{op} is left out" if op in left_out else shlex.join(argv))
        return 0
    run = _Run(args, passed_on, root, table, left_out)
    began = time.monotonic()
    run.all(chosen, gpus)
    if args.output is not None:
        report.write(args.output, run.compared())
    counts = Counter(result.status for result in run.results.values())
    print(
        f"SUMMARY | mode={args.mode} | total={len(chosen)} success={counts['PASSED']} "
        f"failed={counts['FAILED']} skipped={counts['SKIPPED']} | "
        f"error={counts['ERROR']} timeout={counts['TIMEOUT']} "
        f"unavailable={counts['UNAVAILABLE']} unverified={counts['UNVERIFIED']} "
        f"not_run={counts['NOT_RUN']} | {time.monotonic() - began:.1f}s | {table}",
        flush=True,
    )
    return min({result.code for result in run.results.values()} - {0}, default=0)


def _argv(op: str, mode: str, table: Path) -> list[str]:
    return ["--op", op, f"--{mode}", "--csv", str(table)]


class _Run:
    """One pass over the operators; ``results`` by operator."""

    def __init__(
        self,
        args: argparse.Namespace,
        passed_on: Sequence[str],
        root: Path,
        table: Path,
        left_out: frozenset[str],
    ) -> None:
        self._args = args
        self._passed_on = passed_on
        self._root = root
        self._table = table
        self._records = record.default_path(table)
        self._left_out = left_out
        self._printing = threading.Lock()
        self._stopped = False
        self._servers: list[warm.Server] = []
        self._jobs: set[testjob.Job] = set()
        self.results: dict[str, testjob.Result] = {}

    def all(self, chosen: Sequence[str], gpus: Sequence[int | None]) -> None:
        """Measure ``chosen``, one at a time on each of ``gpus`` (None: as configured)."""
        waiting: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        for item in enumerate(chosen, start=1):
            waiting.put(item)
        lanes = [
            threading.Thread(target=self._lane, args=(waiting, len(chosen), gpu, len(gpus) > 1))
            for gpu in gpus
        ]
        try:
            for lane in lanes:
                lane.start()
            for lane in lanes:
                lane.join()
        except BaseException:
            self._stop()
            for lane in filter(threading.Thread.is_alive, lanes):
                lane.join()
            raise
        for op in chosen:
            if op not in self.results:
                print(f"{op} ... NOT_RUN (no device is left that answers)", flush=True)
                self.results[op] = testjob.Result("NOT_RUN", "no device left", 3)

    def _stop(self) -> None:
        """End what runs, at once: somebody pressed Ctrl-C."""
        self._stopped = True
        for job in list(self._jobs):
            job.kill()
        for server in self._servers:
            server.close()

    def _lane(
        self, waiting: queue.SimpleQueue[tuple[int, str]], total: int, gpu: int | None, beside: bool
    ) -> None:
        server = None if self._args.cold else warm.Server(self._root)
        if server is not None:
            self._servers.append(server)
        try:
            while not self._stopped:
                try:
                    number, op = waiting.get_nowait()
                except queue.Empty:
                    return
                head = f"[{number}/{total}] {op} ... "
                if not beside:
                    print(head, end="", flush=True)
                started = time.monotonic()
                try:
                    result = self._one(op, gpu, server)
                except Exception as error:  # noqa: BLE001 - it takes no other operator with it
                    note = f"{type(error).__name__}: {error}"
                    result = testjob.Result("ERROR", note, 1, traceback.format_exc().encode())
                if self._stopped:
                    return
                self.results[op] = result
                word = "SUCCESS" if result.status == "PASSED" else result.status
                took = time.monotonic() - started
                with self._printing:
                    print(f"{head * beside}{word} ({result.note}) [{took:.1f}s]", flush=True)
                    for text in result.tail():
                        print(f"    {text}", flush=True)
                if result.device_dead:
                    return
        finally:
            if server is not None:
                server.close()

    def _one(self, op: str, gpu: int | None, server: warm.Server | None) -> testjob.Result:
        if op in self._left_out:
            return testjob.Result("SKIPPED", "ignored", 0)
        argv = [*_argv(op, self._args.mode, self._table), *self._passed_on]
        if gpu is not None:
            argv += ["--device", str(gpu)]
        folder = Path(tempfile.mkdtemp(prefix="testall-"))
        result, whole = self._measured(argv, server, folder)
        if whole:
            shutil.rmtree(folder, ignore_errors=True)
            return result
        # Records that could not be moved to the others are not lost with it.
        return dataclasses.replace(result, note=f"{result.note}; they are left in {folder}")

    def _measured(
        self, argv: Sequence[str], server: warm.Server | None, folder: Path
    ) -> tuple[testjob.Result, bool]:
        """What became of an operator, and whether its records are with the others."""
        output, own = folder / "output", folder / "records.jsonl"
        with output.open("wb") as log:
            job = testjob.Job(self._root, [*argv, "--records", str(own)], server)
            self._jobs.add(job)
            if self._stopped:
                job.kill()
            kept: list[dict[str, Any]] = []
            spoilt: HarnessError | None = None
            try:
                code = job.run(log.fileno(), self._args.op_timeout)
            finally:
                self._jobs.discard(job)
                try:
                    kept = testjob.keep(own, self._records)
                except HarnessError as error:
                    spoilt = error
        text = testjob.end_of(output)
        if spoilt is not None:
            return testjob.Result("ERROR", str(spoilt), spoilt.code, text), False
        if code is None:
            note = f"killed after {self._args.op_timeout:g} s"
            return testjob.Result("TIMEOUT", note, EXIT_CODES["TIMEOUT"], text, tuple(kept)), True
        return testjob.judge(code, kept, text, strict="--strict" in self._passed_on), True

    def compared(self) -> list[report.Entry]:
        """All records with the rows they are held against; an operator without any is not lost."""
        records: list[dict[str, Any]] = []
        for op, result in sorted(self.results.items()):
            left = [report.stand_in(op, result.status, result.note)]
            told = any(record["status"] == result.status for record in result.records)
            records += [*result.records, *([] if told else left)]
        return report.pair(self._table, records)


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
    model = _ask(root, "from harness.environment import first_device_model as f; print(f())")
    return root / "statistics" / f"mcoplib_ops_performance_{model}.csv"


def _ask(root: Path, script: str) -> str:
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False
    )
    lines = found.stdout.strip().splitlines()
    if found.returncode or not lines:
        said = found.stderr.strip().splitlines()
        error = HarnessError(f"the device cannot be told: {said[-1] if said else 'no answer'}")
        error.code = 3
        raise error
    return lines[-1]


def _gpus(wanted: str | None, root: Path) -> list[int | None]:
    """The GPUs to use; a single None: each operator uses the one of its configuration."""
    if wanted is None:
        return [None]
    if wanted == "all":
        count = int(_ask(root, "from harness.environment import gpu_devices as f; print(len(f()))"))
        if not count:
            raise TreeError("--gpus all: torch sees no GPU here; leave the flag out")
        return list(range(count))
    names = [name.strip() for name in wanted.split(",")]
    if not all(name.isdecimal() for name in names) or len(set(names)) < len(names):
        raise TreeError(f"--gpus {wanted!r}: write different indices, 0,1 say, or all")
    return [int(name) for name in names]
