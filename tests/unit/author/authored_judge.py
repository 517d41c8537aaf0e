"""Runs generated runners with right and damaged kernels and says what verification made of each.

``python authored_judge.py BENCHMARK NAME...``: a process of its own, because operators are
registered with torch once and for all. Writes one JSON object a line: name, fault (null: the right
kernel), passed, reason; and for what an engine does: called, summaries, elements, read, written,
and ``harmless``, the faults that were not tried, with why.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "operators"), str(HERE.parents[2] / "benchmark")]

from authored_kernels import Generated, subjects  # noqa: E402


def judge(subject: Generated) -> list[dict[str, Any]]:
    """The verdict on the right kernel and on each damaged one, then what timing it would do."""
    lines = [_verdict(subject, None)]
    if lines[0]["passed"] is not True:
        return lines  # faults mean nothing where the right kernel does not pass
    lines += [_verdict(subject, fault) for fault in subject.faults()]
    return [*lines, _timing(subject)]


def _verdict(subject: Generated, fault: str | None) -> dict[str, Any]:
    said: dict[str, Any] = {"name": subject.op, "fault": fault, "passed": None}
    try:
        verdict = subject.verdict(None if fault is None else subject.damaged(fault))
    except Exception:  # noqa: BLE001 - a runner may raise anything; the test shows what
        return {**said, "raised": traceback.format_exc()}
    return {
        **said,
        "passed": verdict.passed,
        "reason": verdict.reason,
        "difference": repr(verdict.difference),
        "own_check": verdict.own_check,
        "poisoned": verdict.poisoned,
        "thresholds": verdict.thresholds,
    }


def _timing(subject: Generated) -> dict[str, Any]:
    said: dict[str, Any] = {"name": subject.op, "timing": True}
    try:
        runner, state = subject.timed()
        timed = runner.verify_timed(0)
    except Exception:  # noqa: BLE001 - as above
        return {**said, "raised": traceback.format_exc()}
    # A function of a Python module is seen only by what it asks of torch itself.
    called = None if "." in subject.namespace else state.watch.called
    return {
        **said,
        "called": called,
        "qualified": subject.qualified,
        "harmless": subject.harmless,
        "summaries": {key: str(value) for key, value in state.summaries.items()},
        "elements": state.elements,
        "read": state.bytes_read,
        "written": state.bytes_written,
        "timed": None if timed is None else bool(timed[0]),
    }


def main() -> None:
    """Judge the named benchmarks of the tree, one after the other."""
    root, *names = sys.argv[1:]
    known = subjects(Path(root))
    for name in names:
        with contextlib.redirect_stdout(io.StringIO()):  # markers of the harness
            lines = judge(known[name])
        for line in lines:
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
