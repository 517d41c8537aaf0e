"""The lines that people and other scripts read, exactly as established, flushed one by one."""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


def say(line: str, *, end: str = "\n") -> None:
    """Print to the standard output at once."""
    print(line, end=end, flush=True)


def warn(line: str) -> None:
    """Print a warning to the standard error at once."""
    print(f"warning: {line}", file=sys.stderr, flush=True)


def verify(op: str, passed: bool, diff: float) -> None:
    """``[VERIFY] op -> PASS (1-CosSim: 1.23e-07)``."""
    shown = f"{diff:.2e}" if math.isfinite(diff) else str(diff)
    say(f"[VERIFY] {op} -> {'PASS' if passed else 'FAIL'} (1-CosSim: {shown})")


def fatal(op: str, reason: str) -> None:
    """``[FATAL] op: reason``; the case ends here, nothing is sampled."""
    say(f"[FATAL] {op}: {' '.join(reason.split())}")


def log_traceback(error: BaseException) -> None:
    """Print the traceback of ``error`` to the log (standard error)."""
    if sys.stderr is not None:  # a runner may have taken it away
        traceback.print_exception(error, file=sys.stderr)
        sys.stderr.flush()


def worst(entry: Mapping[str, Any]) -> None:
    """The worst elements of an output that failed, as ``worst.entry`` has them, as a table."""
    if not entry["elements"]:
        return  # its shape or kind is wrong, which the reason says
    shape = f"{tuple(entry['shape'])} {entry['dtype']}"
    say(f"  >> [WORST] {entry['output'] or 'output'} {shape}: {entry['reason']}")
    rows: list[tuple[str, ...]] = [("index", "got", "expected", "abs error", "rel error")]
    for element in entry["elements"]:
        errors = (element["abs_error"], element["rel_error"])
        rows.append(
            (
                str(element["index"]),
                _number(element["got"]),
                _number(element["expected"]),
                *("-" if error is None else f"{error:.3g}" for error in errors),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("     " + "  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)))


def _number(value: bool | int | float | str) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


@contextmanager
def warmup(iterations: int) -> Iterator[None]:
    """``  >> [WARMUP] Running 10 iterations... Done.``; the line ends also when a call raises."""
    say(f"  >> [WARMUP] Running {iterations} iterations...", end="")
    done = ""
    try:
        yield
        done = " Done."
    finally:
        say(done)


def table(header: Sequence[str], cells: Sequence[str]) -> None:
    """One row as a Markdown table, the way nvbench prints its results."""
    widths = [max(len(head), len(cell)) for head, cell in zip(header, cells, strict=True)]
    say("| " + " | ".join(h.ljust(w) for h, w in zip(header, widths, strict=True)) + " |")
    say("|" + "|".join("-" * (w + 2) for w in widths) + "|")
    say("| " + " | ".join(c.rjust(w) for c, w in zip(cells, widths, strict=True)) + " |")
