"""Text for people: lines as they come with their host in front, then the table and where it is.

Into a pipe it is plain: no escapes, tables within 80 columns. Lines of jobs are never cut.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from orchestrator.errors import InterruptedRun
from orchestrator.events import (
    Check,
    Event,
    HostLine,
    JobEnded,
    JobStarted,
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
from orchestrator.show.hosts import hosts_table
from orchestrator.show.matrix import matrix_lines
from orchestrator.show.nights import changes_lines, state_lines
from orchestrator.show.numbers import counted, elapsed, size
from orchestrator.show.runs import runs_table
from orchestrator.show.stream import LineStream
from orchestrator.show.table import result_table
from orchestrator.show.text import display_width, pad, safe

_RESET = "\x1b[0m"
_PREFIX = "\x1b[36m"
_GREEN, _YELLOW, _RED = "\x1b[32m", "\x1b[33m", "\x1b[31m"
_STATUS = {"PASSED": _GREEN, "OK": _GREEN, "FAILED": _RED, "ERROR": _RED, "UNREACHABLE": _RED}
PIPED_WIDTH = 80  # of tables where no terminal says how wide it is, and at least
_MANY_LOGS = 12
_MANY_MADE = 12
_MANY_ROWS = 200  # with a matrix beside them only those that did not pass are shown


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
        self._lock = threading.Lock()
        self._longest = 0  # of the names in front of lines
        self._begun = False  # whether a line is out on ``stream``
        self._rows: list[Row] = []
        self._matrix: list[MatrixLine] = []
        self._outliers: list[Outlier] = []
        self._merged: list[Merged] = []
        self._jobs: list[JobEnded] = []
        self._hosts: list[HostLine] = []
        self._runs: list[RunLine] = []
        self._checks: list[Check] = []
        self._changes: list[NightChange] = []
        self._nights: list[NightlyState] = []
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
            Check.kind: self._checks.append,
            NightChange.kind: self._changes.append,
            NightlyState.kind: self._nights.append,
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
        for change in event.changes:
            self._line(event.target, safe(change))
        verb = "would send" if event.dry_run else "sent"
        text = f"{verb} {counted(event.files_sent, 'files')} ({size(event.bytes_sent)})"
        if not event.files_sent and not event.deleted:
            text = "nothing to send"
        elif event.deleted:
            text += f", {'would delete' if event.dry_run else 'deleted'} {event.deleted}"
        self._line(event.target, safe(f"{text}: {event.path}"))

    def _planned(self, event: Planned) -> None:
        self._line(event.target, safe(event.command))

    def _job_started(self, event: JobStarted) -> None:
        attempt = f" (attempt {event.attempt})" if event.attempt > 1 else ""
        self._line(event.target, safe(f"start {event.op}{attempt}"))

    def _job_ended(self, event: JobEnded) -> None:
        self._jobs.append(event)
        status = self._paint_status(event.status, event.status)
        message = safe(f": {event.message}") if event.message else ""
        number = f" ({event.number} of {event.total})" if event.total > 1 else ""
        taken = elapsed(event.seconds)
        self._line(event.target, f"end {safe(event.op)} {status} in {taken}{number}{message}")

    def _summary(self, event: Summary) -> None:
        matrix = matrix_lines(self._matrix, self._outliers, self._width, self._paint_status)
        blocks = [
            hosts_table(self._hosts, self._width, self._paint_status),
            runs_table(self._runs, self._width, self._paint_status),
            doctor_lines(self._checks, self._width, self._paint_status),
            state_lines(self._nights, self._width),
            self._table(of_all=not matrix),
            matrix,
            [line for merged in self._merged for line in _merged_lines(merged)],
            changes_lines(self._changes, self._width, self._paint_status),
            self._log_lines(event),
            [_summary_line(event)],
        ]
        lines = [line for block in blocks if block for line in ("", *block)]
        self._out.write(*(lines if self._begun else lines[1:]))

    def _table(self, of_all: bool) -> list[str]:
        """The result table; of very many rows, where the matrix has them too, what did not pass."""
        rows = self._rows
        if of_all or len(rows) <= _MANY_ROWS:
            return result_table(rows, self._width, self._paint_status)
        rows = [row for row in rows if row.status != "PASSED"]
        passed = counted(len(self._rows) - len(rows), "rows PASSED are not listed one by one")
        more = len(rows) - _MANY_ROWS
        table = result_table(rows[:_MANY_ROWS], self._width, self._paint_status)
        cut = [f"and {counted(more, 'rows')} more that did not pass"] if more > 0 else []
        return [*table, *cut, passed]

    def _log_lines(self, event: Summary) -> list[str]:
        jobs = self._jobs
        if len(jobs) > _MANY_LOGS:  # the folder below holds them all
            jobs = [job for job in jobs if job.status != "PASSED"]
        lines = [
            safe(f"log of {job.op} on {job.target}: {_short(job.log)}") for job in jobs if job.log
        ]
        if len(lines) > _MANY_LOGS:
            more = len(lines) - _MANY_LOGS
            lines = [*lines[:_MANY_LOGS], f"and {counted(more, 'logs')} more of what did not pass"]
        folder = [safe(f"folder of the run: {_short(event.folder)}")] if event.folder else []
        files = [safe(f"file: {_short(path)}") for path in event.files]
        return [*lines, *_made_lines(self._jobs), *folder, *files]

    def _paint_status(self, status: str, text: str) -> str:
        return painted(status, text) if self._color else text

    def _paint(self, code: str, text: str) -> str:
        return f"{code}{text}{_RESET}" if self._color else text


def _made_lines(jobs: Sequence[JobEnded]) -> list[str]:
    """Where the files are that a profiler wrote; of many the folder that they have in common."""
    every = [path for job in jobs for path in job.made]
    if len(every) > _MANY_MADE:
        return [safe(f"{len(every)} files of the profiler: {_short(os.path.commonpath(every))}")]
    return [
        safe(f"profile of {job.op} on {job.target}: {_short(path)}")
        for job in jobs
        for path in job.made
    ]


def _merged_lines(event: Merged) -> list[str]:
    counts = {
        "appended": event.appended,
        "updated": event.updated,
        "skipped": event.skipped,
        "kept": event.kept,
    }
    said = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "no row"
    withheld = [safe(f"  withheld: {row}") for row in event.withheld]
    return [safe(f"merged into {_short(event.path)}: {said}"), *withheld]


def _summary_line(event: Summary) -> str:
    parts = [counted(count, name) for name, count in event.counts.items() if count]
    parts += [f"of these known {event.known}"] if event.known else []
    lost: dict[str, int] = {}
    for status in event.targets.values():
        if status != "OK":
            lost[status] = lost.get(status, 0) + 1
    parts += [counted(count, f"targets {status}") for status, count in lost.items()]
    text = ", ".join(parts)
    if event.message:
        text += f"{'; ' if text else ''}{event.message}"
    text = f"{event.command}: {text or 'done'}"
    taken = f" in {elapsed(event.seconds)}" if event.seconds is not None else ""
    code = f", exit code {event.exit_code}" if event.exit_code else ""
    return safe(f"{text}{taken}{code}")


def _short(path: str) -> str:
    """``path`` from the current folder where it lies below it."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return path
