"""Text for people: lines as they come with their host in front, then the table and where it is.

Into a pipe it is plain: no escapes, tables within 80 columns. Lines of jobs are never cut.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from orchestrator.errors import InterruptedRun
from orchestrator.events import (
    Check,
    Drafted,
    Event,
    HostLine,
    JobEnded,
    JobStarted,
    LeftOpen,
    Linted,
    LogHead,
    MatrixLine,
    Merged,
    NightChange,
    NightlyState,
    Note,
    Outlier,
    OutputLine,
    Planned,
    Pushed,
    Row,
    RunLine,
    Summary,
    TargetFailed,
)
from orchestrator.show.doctor import doctor_lines
from orchestrator.show.drafts import drafted_lines, open_line
from orchestrator.show.ending import listed, log_lines, merged_lines, summary_line
from orchestrator.show.findings import FindingLines
from orchestrator.show.hosts import hosts_table
from orchestrator.show.matrix import matrix_lines
from orchestrator.show.nights import changes_lines, state_lines
from orchestrator.show.numbers import elapsed
from orchestrator.show.pushes import alike, pushed_texts
from orchestrator.show.remarks import brief
from orchestrator.show.runs import runs_table
from orchestrator.show.stream import LineStream
from orchestrator.show.table import result_table
from orchestrator.show.text import display_width, pad, safe

_RESET = "\x1b[0m"
_PREFIX = "\x1b[36m"
_GREEN, _YELLOW, _RED = "\x1b[32m", "\x1b[33m", "\x1b[31m"
_STATUS = {
    "PASSED": _GREEN,
    "OK": _GREEN,
    "fixed": _GREEN,
    "FAILED": _RED,
    "ERROR": _RED,
    "UNREACHABLE": _RED,
    "error": _RED,
}
_PASTED = {"logs", "repro"}  # commands whose standard output is taken as it is
PIPED_WIDTH = 80  # of tables where no terminal says how wide it is, and at least


def painted(status: str, text: str) -> str:
    """``text`` in the colour of ``status``."""
    return f"{_STATUS.get(status, _YELLOW)}{text}{_RESET}"


class PlainRenderer:
    """A sink that writes to ``stream``; notes and failed targets go to ``errors`` (stderr)."""

    def __init__(
        self, stream: TextIO, *, color: bool, width: int, errors: TextIO | None = None
    ) -> None:
        self._out = LineStream(stream)
        self._errors = LineStream(sys.stderr if errors is None else errors)
        self._color = color
        self._width = width
        self._whole = width if stream.isatty() else None  # what scripts cut apart is never cut
        self._lock = threading.Lock()
        self._longest = 0  # of the names in front of lines
        self._begun = False  # whether a line is out on ``stream``
        self._rows: list[Row] = []
        self._matrix: list[MatrixLine] = []
        self._outliers: list[Outlier] = []
        self._merged: list[Merged] = []
        self._jobs: list[JobEnded] = []
        self._would_push: list[Pushed] = []
        self._hosts: list[HostLine] = []
        self._runs: list[RunLine] = []
        self._checks: list[Check] = []
        self._changes: list[NightChange] = []
        self._nights: list[NightlyState] = []
        self._findings = FindingLines(self._paint_status)
        self._handlers: dict[str, Callable[[Any], None]] = {
            Note.kind: self._note,
            TargetFailed.kind: self._target_failed,
            Pushed.kind: self._pushed,
            JobStarted.kind: self._job_started,
            OutputLine.kind: lambda event: self._line(event.target, safe(event.text)),
            JobEnded.kind: self._job_ended,
            HostLine.kind: self._hosts.append,
            Planned.kind: self._planned,
            Merged.kind: self._merged.append,
            Row.kind: self._rows.append,
            MatrixLine.kind: self._matrix.append,
            Outlier.kind: self._outliers.append,
            RunLine.kind: self._runs.append,
            LogHead.kind: self._log_head,
            Check.kind: self._checks.append,
            NightChange.kind: self._changes.append,
            NightlyState.kind: self._nights.append,
            Linted.kind: self._linted,
            Drafted.kind: lambda event: self._out.write(*drafted_lines(event, self._paint_status)),
            LeftOpen.kind: lambda event: self._out.write(open_line(event)),
            Summary.kind: self._summary,
        }

    def __call__(self, event: Event) -> None:
        """Show ``event``; raises ``InterruptedRun`` once when nobody reads any more."""
        with self._lock:
            handler = self._handlers.get(event.kind)
            if handler is not None:
                handler(event)

    def keep(self, job: JobEnded) -> None:
        """Take in the end of a job for its log beneath the table, without a line now."""
        with self._lock:
            self._jobs.append(job)

    def resize(self, width: int) -> None:
        """From now on tables may be ``width`` cells wide, or 80."""
        self._width = max(width, PIPED_WIDTH)

    def _name(self, target: str) -> str:
        name = safe(target)
        self._longest = max(self._longest, display_width(name))
        return pad(name, self._longest)

    def _line(self, target: str, text: str) -> None:
        self._begun = True
        self._out.write(f"{self._paint(_PREFIX, self._name(target))} | {text}")

    def _aside(self, target: str | None, text: str) -> None:
        if target:
            # Not coloured: where the errors go need not be a terminal.
            text = f"{self._name(target)} | {text}"
        with suppress(InterruptedRun):  # a closed stderr is no reason to stop a run
            self._errors.write(text)

    def _note(self, event: Note) -> None:
        level = "" if event.level == "info" else f"{event.level}: "
        self._aside(event.target, safe(f"{level}{event.message}"))

    def _target_failed(self, event: TargetFailed) -> None:
        self._aside(event.target, safe(f"{event.status}: {event.message}"))

    def _pushed(self, event: Pushed) -> None:
        if event.dry_run:  # nothing happens that anybody waits for: at the end, the same once
            self._would_push.append(event)
            return
        for text in pushed_texts(event):
            self._line(event.target, safe(text))

    def _planned(self, event: Planned) -> None:
        if event.here:
            self._out.write(safe(f"# {event.target} {event.op}"), safe(event.command))
        else:
            self._line(event.target, safe(event.command))

    def _log_head(self, event: LogHead) -> None:
        attempt = f", attempt {event.attempt}" if event.attempt > 1 else ""
        message = f": {brief(event.message)}" if event.message else ""
        end = f", {event.status}{message}" if event.status else ""
        self._out.write(
            *([""] if self._begun else []), safe(f"== {event.op} on {event.target}{attempt}{end}")
        )
        self._begun = True

    def _job_started(self, event: JobStarted) -> None:
        attempt = f" (attempt {event.attempt})" if event.attempt > 1 else ""
        self._line(event.target, safe(f"start {event.op}{attempt}"))

    def _job_ended(self, event: JobEnded) -> None:
        self._jobs.append(event)
        status = self._paint_status(event.status, event.status)
        message = safe(f": {brief(event.message)}") if event.message else ""
        number = f" ({event.number} of {event.total})" if event.total > 1 else ""
        taken = elapsed(event.seconds)
        self._line(event.target, f"end {safe(event.op)} {status} in {taken}{number}{message}")

    def _linted(self, event: Linted) -> None:
        self._out.write(*self._findings.lines(event))
        self._begun = True

    def _summary(self, event: Summary) -> None:
        for targets, texts in alike(self._would_push):
            for text in texts:
                self._line(targets, safe(text))
        matrix = matrix_lines(self._matrix, self._outliers, self._width, self._paint_status)
        blocks = [
            hosts_table(self._hosts, self._width, self._paint_status),
            runs_table(self._runs, self._whole, self._paint_status),
            doctor_lines(self._checks, self._width, self._paint_status),
            state_lines(self._nights, self._width),
            self._table(in_matrix=bool(matrix)),
            matrix,
            [line for merged in self._merged for line in merged_lines(merged)],
            changes_lines(self._changes, self._width, self._paint_status),
            log_lines(self._jobs, event),
            [summary_line(event)],
        ]
        if event.command in _PASTED:
            self._aside(None, summary_line(event))
            return
        lines = [line for block in blocks if block for line in ("", *block)]
        self._out.write(*(lines if self._begun else lines[1:]))

    def _table(self, in_matrix: bool) -> list[str]:
        shown, unlisted, said = listed(self._rows, in_matrix=in_matrix)
        table = result_table(shown, self._width, self._paint_status, unlisted=unlisted)
        return [*table, *said]

    def _paint_status(self, status: str, text: str) -> str:
        return painted(status, text) if self._color else text

    def _paint(self, code: str, text: str) -> str:
        return f"{code}{text}{_RESET}" if self._color else text
