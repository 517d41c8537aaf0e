"""The end of a run: merge what was measured, tell rows and summary, choose the exit code."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.errors import ExitCode, MxfleetError, combine
from orchestrator.events import Event, Note, Sink, Summary
from orchestrator.execute.folder import NotKeptError, RunFolder
from orchestrator.inventory.model import Target
from orchestrator.records import Record, Status
from orchestrator.results.merge import UnmergedError, merge
from orchestrator.results.outliers import matrix as matrix_of
from orchestrator.workflows.collect import Collector
from orchestrator.workflows.context import Context
from orchestrator.workflows.push import Failures

Mode = Literal["generate", "update"]


@dataclass
class MergeOutcome:
    """The files that a merge concerned, and the exit codes of what went wrong with it."""

    files: list[str] = field(default_factory=list)
    codes: list[ExitCode] = field(default_factory=list)


def merge_into(context: Context, records: Sequence[Record], mode: Mode, sink: Sink) -> MergeOutcome:
    """Merge records into the working folder's statistics; a failure is said and counted."""
    try:
        reports = merge(
            records,
            context.statistics,
            mode,
            report=lambda text: sink(Note(text, level="warning")),
        )
        codes = []
    except MxfleetError as error:
        sink(Note(f"the results are in the run's folder, but: {error}", level="error"))
        reports = error.reports if isinstance(error, UnmergedError) else []
        codes = [error.code]
    for report in reports:
        sink(report.event())
    return MergeOutcome(files=[str(report.path) for report in reports], codes=codes)


def finish(
    command: str,
    sink: Sink,
    folder: RunFolder,
    collector: Collector,
    failures: Failures,
    targets: Sequence[Target],
    merged: MergeOutcome,
    interrupted: bool,
    began: float,
    *,
    matrix: bool = False,
    lenient: bool = False,
) -> ExitCode:
    """Emit the rows, the matrix of them if wanted, and the summary; return the exit code.

    ``lenient``: an UNAVAILABLE operator only counts.
    """
    counts: dict[str, int] = {}
    rows = collector.rows()
    for row in rows:
        counts[row.status] = counts.get(row.status, 0) + 1
        sink(row)
    for event in itertools.chain(*matrix_of(rows)) if matrix else ():
        sink(event)
    code = combine(
        [
            *merged.codes,
            *([NotKeptError.code] if collector.not_kept else []),
            failures.code(),
            *(
                done.verdict.code
                for done in collector.done()
                if not (lenient and done.verdict.status is Status.UNAVAILABLE)
            ),
            *([ExitCode.INTERRUPTED] if interrupted else []),
        ]
    )
    summary = Summary(
        command=command,
        exit_code=int(code),
        counts=counts,
        known=sum(record.excused for record in collector.records()),
        targets=failures.statuses(targets),
        run=folder.run,
        folder=str(folder.path),
        files=tuple(merged.files),
        seconds=time.monotonic() - began,
        message="interrupted" if interrupted else None,
    )
    with suppress(NotKeptError):  # said before, when the records could not be kept
        folder.write_json(f"{command}-summary.json", summary.as_dict())
    sink(summary)
    return code


def recorded(sink: Sink, folder: RunFolder) -> Sink:
    def both(event: Event) -> None:
        # Results are worth more than their diary: a full disk is told where they are kept.
        with suppress(NotKeptError):
            folder.event(event)
        sink(event)

    return both
