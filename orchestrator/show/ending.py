"""What stands beneath a run's table: where its rows went, its logs and files, the last line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import ExitCode
from orchestrator.events import JobEnded, Merged, Row, Summary
from orchestrator.show.numbers import counted, elapsed
from orchestrator.show.text import safe

MANY_ROWS = 200  # more lines than that nobody reads
_MANY_LOGS = 12
_MANY_MADE = 12
# What is looked for first. Of those at the end every reason is told once, beneath the table.
_FIRST = ("FAILED", "ERROR", "TIMEOUT", "UNVERIFIED", "PASSED", "NOT_RUN", "UNAVAILABLE")
_TOLD_BENEATH = {"NOT_RUN", "UNAVAILABLE"}
_GOOD = {"PASSED", "UNAVAILABLE"}  # what nobody reads a log for
_RUNS = {"run", "testall", "verify"}
_AGAIN = {"FAILED", "ERROR", "TIMEOUT", "NOT_RUN"}
# Counts of a summary, as people expect them.
_COUNTED = ("PASSED", "FAILED", "ERROR", "TIMEOUT", "UNVERIFIED", "UNAVAILABLE", "NOT_RUN")


def rank(status: str) -> int:
    """Where a status stands among those that somebody looks for, the most urgent first."""
    return _FIRST.index(status) if status in _FIRST else 0


def listed(rows: Sequence[Row], *, in_matrix: bool) -> tuple[list[Row], list[Row], list[str]]:
    """The rows that get a line of the table, those of which only the reason is told, the rest said.

    Of very many rows what was not run gives way first; where the matrix has the times, too
    (``in_matrix``), no more than ``MANY_ROWS`` stay.
    """
    if len(rows) <= MANY_ROWS:
        return list(rows), [], []
    ranked = sorted(rows, key=lambda row: rank(row.status))
    keep = MANY_ROWS if in_matrix else sum(row.status not in _TOLD_BENEATH for row in rows)
    shown, left = ranked[: max(keep, MANY_ROWS)], ranked[max(keep, MANY_ROWS) :]
    counts: dict[str, int] = {}
    for row in left:
        counts[row.status] = counts.get(row.status, 0) + 1
    said = ", ".join(f"{count} {status}" for status, count in in_order(counts))
    texts = [f"not listed one by one: {said}"] if left else []
    return shown, [row for row in left if row.status in _TOLD_BENEATH], texts


def in_order(counts: dict[str, int]) -> list[tuple[str, int]]:
    """Counts by status in the order that they always have; other names behind, as they come."""
    known = [(name, counts[name]) for name in _COUNTED if name in counts]
    return [*known, *((name, count) for name, count in counts.items() if name not in _COUNTED)]


def log_lines(jobs: Sequence[JobEnded], event: Summary) -> list[str]:
    """Where logs, a profiler's files and the run's folder are; of many logs what went wrong."""
    ranked = sorted(jobs, key=lambda job: rank(job.status))
    worth = [job for job in ranked if job.log and job.status != "UNAVAILABLE"]
    if len(jobs) > _MANY_LOGS:  # the folder below holds them all
        worth = [job for job in worth if job.status not in _GOOD]
    lines = [safe(f"log of {job.op} on {job.target}: {_short(str(job.log))}") for job in worth]
    if len(lines) > _MANY_LOGS:
        more = len(lines) - _MANY_LOGS
        lines = [*lines[:_MANY_LOGS], f"and {counted(more, 'logs')} more of what did not pass"]
    folder = [safe(f"folder of the run: {_short(event.folder)}")] if event.folder else []
    files = [safe(f"file: {_short(path)}") for path in event.files]
    return [*lines, *_made_lines(jobs), *folder, *files, *_way_on(event)]


def _way_on(event: Summary) -> list[str]:
    """The command that takes up what this run left."""
    if event.run is None or event.command not in _RUNS:
        return []
    if event.exit_code == ExitCode.INTERRUPTED:
        return [safe(f"go on: mxfleet testall --resume {event.run}")]
    # What was only verified would be measured by that.
    if event.exit_code and event.command != "verify" and event.counts.keys() & _AGAIN:
        return [safe(f"again: mxfleet testall --failed {event.run}")]
    return []


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


def merged_lines(event: Merged) -> list[str]:
    """What a device's CSV took in, and what was kept out of it."""
    there = ""
    if event.skipped:
        verb = "was" if event.skipped == 1 else "were"
        there = f"{event.skipped} {verb} there already"
    if event.differing:
        there += f" (more than 5 % off: {event.differing}; --update takes in what is faster)"
    words = [
        f"{event.appended} appended" if event.appended else "",
        f"{event.updated} updated" if event.updated else "",
        there,
        f"{event.kept} kept" if event.kept else "",
    ]
    said = ", ".join(word for word in words if word) or "no row"
    withheld = [safe(f"  withheld: {row}") for row in event.withheld]
    return [safe(f"merged into {_short(event.path)}: {said}"), *withheld]


def summary_line(event: Summary) -> str:
    """The last line: counts, targets that were lost, how long it took, the exit code."""
    parts = [counted(count, name) for name, count in in_order(event.counts) if count]
    parts += [f"of these known {event.known}"] if event.known else []
    lost: dict[str, int] = {}
    for status in event.targets.values():
        if status != "OK":
            lost[status] = lost.get(status, 0) + 1
    parts += [counted(count, f"targets {status}") for status, count in lost.items()]
    taken = f" in {elapsed(event.seconds)}" if event.seconds is not None else ""
    told = [f"{', '.join(parts)}{taken}", event.message] if parts else [event.message or "done"]
    text = "; ".join(part for part in told if part)
    code = f", exit code {event.exit_code}" if event.exit_code else ""
    return safe(f"{event.command}: {text}{'' if parts else taken}{code}")


def _short(path: str) -> str:
    """``path`` from the current folder where it lies below it."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return path
