"""``mxfleet run``: operators on the selected targets, their results brought back and merged."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from orchestrator.errors import (
    DeadDeviceError,
    ExitCode,
    InterruptedRun,
    MxfleetError,
    NoTreeError,
    TargetError,
    UsageError,
    combine,
)
from orchestrator.events import Event, Note, Planned, Sink, Summary
from orchestrator.execute.folder import NotKeptError, RunFolder
from orchestrator.execute.job import run_job
from orchestrator.inventory.model import Target
from orchestrator.plan.jobs import command_line, new_run_id, plan_run
from orchestrator.push.commit import commit_of
from orchestrator.records import Record
from orchestrator.results.merge import UnmergedError, merge
from orchestrator.results.outliers import matrix as matrix_of
from orchestrator.suites.measuring import Measuring
from orchestrator.workflows.activity import Activity
from orchestrator.workflows.collect import Collector
from orchestrator.workflows.context import Context
from orchestrator.workflows.fleet import Fleet, for_each_host
from orchestrator.workflows.prepare import prepare
from orchestrator.workflows.push import Failures

Mode = Literal["generate", "update"]


def run(
    context: Context,
    ops: Sequence[str],
    *,
    mode: Mode = "generate",
    measuring: Measuring | None = None,
    dry_run: bool = False,
) -> ExitCode:
    """Run ``ops`` on the context's targets and merge what they measured by ``mode``'s rules.

    Raises ``UsageError`` when ``measuring`` asks of a target what it cannot honour.
    """
    began = time.monotonic()
    measuring = measuring or Measuring()
    _check_honoured(context.targets, measuring)
    context.suite.check(_own(context, ops), measuring.cases)
    tree = context.tree()
    plan = plan_run(new_run_id(), context.targets, ops, context.suite, tree.name, measuring)
    if dry_run:
        for job in plan.jobs:
            context.sink(Planned(job.target.name, job.op, command_line(job)))
        context.sink(
            Summary(
                command="run",
                exit_code=0,
                message=f"{len(plan.jobs)} job{'s' * (len(plan.jobs) != 1)} (dry run)",
            )
        )
        return ExitCode.OK
    folder = RunFolder.create(context.runs, plan.run)
    recorded = _recorded(context.sink, folder)
    plan = replace(plan, commit=commit_of(context.inventory.folder, tree))
    folder.write_json("plan.json", {**plan.as_dict(), "mode": mode})
    folder.write_json("tree.json", {"tree": tree.name, "files": [list(e) for e in tree.entries]})
    folder.write_bytes(folder.path / "inventory.yaml", context.inventory.path.read_bytes())
    interrupted = False
    with folder.held(), Activity(recorded) as sink, Fleet() as fleet:
        failures = Failures(sink)
        collector = Collector(plan, folder, sink)

        def work(target: Target) -> None:
            with sink.doing("connecting", target.name):
                session = fleet.session(target)
            with sink.doing("preparing", target.name):
                checkout = prepare(session, target, tree, ops, sink)
                folder.write_checkout(target.name, asdict(checkout) if checkout else {})
            refused: TargetError | None = None
            for job in plan.jobs:
                if job.target.name == target.name and collector.begin(job):
                    with sink.doing(f"running {job.op}", target.name):
                        attempt = run_job(session, job, folder, sink)
                        if isinstance(attempt.error, NoTreeError):
                            # Another job damaged it, or somebody removed it: not this job's fault.
                            prepare(session, target, tree, ops, sink)
                            attempt = run_job(session, job, folder, sink)
                    verdict = collector.take(attempt, checkout).verdict
                    if isinstance(attempt.error, TargetError):
                        raise attempt.error
                    if isinstance(verdict.refused, TargetError):
                        refused = verdict.refused
                        if not measuring.strict or isinstance(refused, DeadDeviceError):
                            break
                        # Strictly the device is unfit for this operator, maybe not for the next.
                    elif verdict.refused is not None:
                        sink(Note(verdict.refused.message, target=target.name, level="error"))
            if refused is not None:
                raise refused

        try:
            for_each_host(sink, context.targets, work, failures, lambda: collector.stop(fleet))
        except (KeyboardInterrupt, InterruptedRun):
            interrupted = True
    collector.fill_up(failures, interrupted)
    merged = merge_into(context, collector.records(), mode, sink)
    return finish(
        "run", sink, folder, collector, failures, context.targets, merged, interrupted, began
    )


def _check_honoured(targets: Sequence[Target], measuring: Measuring) -> None:
    """Refuse, before anything starts, what established scripts would silently not do."""
    beyond = measuring.beyond_established()
    unable = [target.name for target in targets if target.established]
    if beyond and unable:
        raise UsageError(
            f"{', '.join(beyond)} cannot be honoured by the established scripts on "
            f"{', '.join(unable)}",
            hint="leave it out, or leave these targets out with --hosts"
            if len(unable) < len(targets)
            else "leave it out, or give the targets no workdir, so that a pushed tree runs",
        )


def _own(context: Context, ops: Sequence[str]) -> list[str]:
    """The operators that this working folder has to have: those of a checkout may be its own."""
    if not all(target.established for target in context.targets):
        return list(ops)
    here = set(context.suite.operators())
    return [op for op in ops if op in here]


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
) -> ExitCode:
    """Emit the rows, the matrix of them if wanted, and the summary; return the exit code."""
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
            *(done.verdict.code for done in collector.done()),
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


def _recorded(sink: Sink, folder: RunFolder) -> Sink:
    def both(event: Event) -> None:
        # Results are worth more than their diary: a full disk is told where they are kept.
        with suppress(NotKeptError):
            folder.event(event)
        sink(event)

    return both
