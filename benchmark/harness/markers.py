"""The lines that people and other scripts read, exactly as established, flushed one by one."""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


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
