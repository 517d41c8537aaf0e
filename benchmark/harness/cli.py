"""``mcoplib_mxbenchmark_ops.py``: list the operators, or decide every case of one."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import loader, offspring, signals, streams
from harness.errors import HarnessError, TreeError

# The environment variable by which testall says whom a front door must not outlive.
PARENT = "MXFLEET_PARENT_PID"
# Thirty years: what waits with a limit takes no number, however large.
_LONGEST = 1e9


def parser() -> argparse.ArgumentParser:
    """The front door's flags; what it does not know is handed to nvbench."""
    parse = argparse.ArgumentParser(
        prog="mcoplib_mxbenchmark_ops.py",
        allow_abbrev=False,
        description="Verify an operator and, if it is right, measure it.",
        epilog="Flags that are not listed here go to nvbench. "
        "Exit code: 0 all cases passed, 1 failed or error, 2 usage or tree, "
        "3 unavailable or unusable machine, 4 timeout, 6 undecided (--strict).",
    )
    parse.add_argument("--list", action="store_true", help="list the operators")
    parse.add_argument("--op", metavar="NAME", help="operator to measure")
    parse.add_argument("--csv", metavar="PATH", type=Path, help="performance table")
    parse.add_argument(
        "--output", metavar="PATH", type=Path, help="with --compare: append the result, as CSV"
    )
    mode = parse.add_mutually_exclusive_group()
    for name, text in (
        ("generate", "append rows that the table lacks"),
        ("update", "replace rows that got more than 5 %% faster"),
        ("compare", "show performance against the table, write nothing"),
    ):
        mode.add_argument(f"--{name}", dest="mode", action="store_const", const=name, help=text)
    mode.add_argument(
        "--verify",
        action="store_true",
        help="only verify: nothing is measured, no table gets a row",
    )
    parse.add_argument(
        "--records",
        metavar="PATH",
        type=Path,
        help="append one JSON line a case (default: beside --csv, .records.jsonl)",
    )
    parse.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="overlay on the configuration; VALUE is JSON, else text; repeatable",
    )
    parse.add_argument(
        "--case",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="only the cases of a sweep with this value; repeatable",
    )
    parse.add_argument(
        "--sampling",
        choices=("adaptive", "established"),
        default="adaptive",
        help="adaptive: short, in five processes; established: long, in one",
    )
    parse.add_argument("--repeats", metavar="N", type=_positive, help="processes a case")
    parse.add_argument(
        "--strict",
        action="store_true",
        help="another device than the configuration's is unusable (3), UNVERIFIED undecided (6)",
    )
    parse.add_argument(
        "--library",
        metavar="[NAMESPACE=]NAME|PATH",
        action="append",
        default=[],
        help="operator library to use (mcoplib, vllm, sgl_kernel, or a shared object); repeatable",
    )
    parse.add_argument(
        "--specs", metavar="JSON", help="peaks of GPU models, instead of the built-in ones"
    )
    parse.add_argument(
        "--lock-clocks", metavar="MHZ", type=_positive, help="hold the GPU's clock, where permitted"
    )
    parse.add_argument(
        "--cool-down", metavar="CELSIUS", type=_degrees, help="wait until the GPU is that cool"
    )
    parse.add_argument("--engine", choices=("auto", "nvbench", "torch"), default="auto")
    parse.add_argument("-d", "--device", metavar="INDEX", type=int, help="GPU to use")
    parse.add_argument("--min-time", metavar="SECONDS", type=seconds, help="least time sampled")
    parse.add_argument("--timeout", metavar="SECONDS", type=seconds, help="most time sampled")
    parse.add_argument(
        "--case-timeout",
        metavar="SECONDS",
        type=seconds,
        default=900.0,
        help="a case is killed after this time (default 900)",
    )
    return parse


def seconds(text: str) -> float:
    """A time span of a flag: more than nothing, and no longer than clocks can count."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    # Nothing is ever longer than nan.
    if not 0.0 < number <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text} is no positive number of seconds")
    return number


def _degrees(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text} is no temperature")
    return number


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no positive number")
    return int(text)


def main(argv: Sequence[str], operators: Sequence[str], root: str) -> int:
    """Run the front door for the tree ``root``; returns its exit code."""
    streams.mend()
    parent = os.environ.pop(PARENT, None)
    if parent is not None:
        # Not killed: what its cases have detached has to be ended.
        offspring.die_with(int(parent), signal.SIGTERM)
    parse = parser()
    args, nvbench_flags = parse.parse_known_args(argv)
    if args.list:
        for name in sorted(operators):
            print(f"  * {name}")
        return 0
    try:
        with signals.unwinding():
            return _measure(args, nvbench_flags, operators, Path(root))
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130


def _measure(
    args: argparse.Namespace, nvbench_flags: list[str], operators: Sequence[str], root: Path
) -> int:
    if not args.op:
        raise TreeError("nothing to do: give --op NAME, or --list to see the operators")
    if args.mode and args.csv is None:
        raise TreeError(f"--{args.mode} needs --csv PATH")
    _check_apart(args)
    if args.verify:
        _check_measures_nothing(args)
    if args.output is not None and args.mode != "compare":
        raise TreeError("--output goes with --compare")
    if args.output is not None and args.output.suffix.lower() != ".csv":
        raise TreeError(
            f"--output {args.output}: the front door writes .csv; testall.py writes a workbook too"
        )
    if args.mode == "compare" and not args.csv.exists():
        raise TreeError(f"{args.csv}: there is no such table; make it with --generate")
    loader.check_supported(args.op, operators)
    config = loader.load_config(root, args.op)
    config.update(overlay(args.set))
    source = loader.check_runner(root, args.op)

    # From here on torch is needed; usage errors above answer at once.
    from harness.session import Session

    return Session(args, nvbench_flags, root, config, source).run()


def _check_measures_nothing(args: argparse.Namespace) -> None:
    """Raise ``TreeError`` for a flag that says how to measure."""
    for flag in ("repeats", "min_time", "timeout", "lock_clocks", "cool_down"):
        if getattr(args, flag) is not None:
            name = flag.replace("_", "-")
            raise TreeError(f"--verify measures nothing, so --{name} is of no use; leave it out")


def _check_apart(args: argparse.Namespace) -> None:
    """Raise ``TreeError`` when two of the files to write are one."""
    named: dict[Path, str] = {}
    for flag in ("csv", "output", "records"):
        path: Path | None = getattr(args, flag)
        if path is None:
            continue
        place = path.resolve()
        if place in named:
            raise TreeError(f"--{flag} {path}: is the file of --{named[place]} too; name another")
        named[place] = flag


def overlay(settings: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` texts as a dict; raises ``TreeError`` for one without a key or ``=``."""
    values: dict[str, Any] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise TreeError(f"--set {text!r}: write KEY=VALUE")
        try:
            values[key.strip()] = json.loads(value)
        except ValueError:  # no JSON, or an integer of more digits than Python reads
            values[key.strip()] = value
    return values
