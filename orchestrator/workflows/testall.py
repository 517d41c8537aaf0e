"""``mxfleet testall``: all operators on all targets, or what an earlier run left of them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

from orchestrator.errors import ExitCode, MxfleetError, UnusableError, UsageError
from orchestrator.events import Note
from orchestrator.execute.folder import RunFolder
from orchestrator.plan.jobs import PlannedJob
from orchestrator.records import Status, parse_line
from orchestrator.suites.measuring import Measuring
from orchestrator.workflows.context import Context
from orchestrator.workflows.finish import Mode
from orchestrator.workflows.policy import Policy
from orchestrator.workflows.pull import plan_again, saved_plan
from orchestrator.workflows.run import Wishes, carry_out, check_honoured, start

_NOT_RUN = Status.NOT_RUN.value
# What another run may turn into something better.
_FAILED = {Status.FAILED, Status.ERROR, Status.TIMEOUT, Status.NOT_RUN}


def testall(
    context: Context,
    ops: Sequence[str] | None = None,
    *,
    spread: Literal["replicate", "shard"] = "replicate",
    mode: Mode = "generate",
    measuring: Measuring | None = None,
    policy: Policy | None = None,
    failed: str | None = None,
    warm: bool = True,
    dry_run: bool = False,
    run_id: str | None = None,
) -> ExitCode:
    """Run ``ops`` (None: all) on all the context's targets, on every device of each.

    An operator whose files are wrong is told and counts as a usage error, the others are run.
    ``failed`` names an earlier run: only what failed there is run.
    """
    measuring = measuring or Measuring()
    check_honoured(context.targets, measuring)
    wishes = Wishes(
        mode=mode,
        measuring=measuring,
        policy=replace(policy or Policy(), all_lanes=True),
        spread=spread,
        command="testall",
        matrix=True,
        warm=warm,
        dry_run=dry_run,
        run=run_id,
    )
    only: set[tuple[str, str]] | None = None
    if failed is not None:
        chosen = {target.name for target in context.targets}
        only = {
            (target, op)
            for target, op in _failed(RunFolder.open(context.runs, failed))
            if target in chosen and (ops is None or op in ops)
        }
        ops = sorted({op for _, op in only})
        if not ops:
            raise UsageError(
                "nothing of what was chosen failed in that run",
                where=failed,
                hint="see what it came to with: mxfleet runs",
            )
    good, wrong = [], []
    for op in ops if ops is not None else context.suite.operators():
        try:
            context.suite.check([op], measuring.cases)
            good.append(op)
        except MxfleetError as error:
            if ops is not None:
                raise
            context.sink(Note(f"left out: {error}", level="error"))
            wrong.append(error.code)
    if not good:
        raise UsageError("there is no operator to run", where=str(context.suite.folder))
    return start(context, good, wishes, wrong=wrong, only=only)


def _failed(folder: RunFolder) -> set[tuple[str, str]]:
    """Targets and operators of a run that have no good result."""
    found = set()
    for job in folder.planned():
        records = []
        path = folder.records(job["target"], job["op"])
        for line in path.read_bytes().splitlines() if path.exists() else ():
            with suppress(ValueError):
                records.append(parse_line(line))
        if not records or any(r.status in _FAILED and not r.excused for r in records):
            found.add((job["target"], job["op"]))
    return found


def resume(context: Context, run: str | None, *, policy: Policy | None = None) -> ExitCode:
    """Go on with a run whose controller ended early: nothing is done twice, nothing is missed.

    What the hosts still run is followed, what ended there is taken in, the rest is started.
    """
    began = time.monotonic()
    folder = RunFolder.open(context.runs, run)
    saved = saved_plan(folder)
    plan, targets = plan_again(
        saved, context.inventory.targets, folder, context.inventory, context.sink, False
    )
    context = replace(context, targets=tuple(targets))
    tree = context.tree()
    if tree.name != plan.tree and not all(target.established for target in targets):
        raise UnusableError(
            f"the working folder is no longer what the run has measured (tree {plan.tree[:12]})",
            where=str(folder.path),
            hint="take in what is there with `mxfleet pull`, and start a new run",
        )
    jobs, settled, begun = _reconciled(folder, plan.jobs)
    testing = saved.get("command") == "testall"
    wishes = Wishes(
        mode=saved["mode"],
        measuring=plan.measuring,
        policy=replace(policy or Policy(), all_lanes=testing),
        spread=saved.get("spread") or "replicate",
        command=saved.get("command") or "run",
        matrix=testing,
    )
    text = f"{len(settled)} of {len(jobs)} jobs are done, {len(begun)} more were started"
    context.sink(Note(f"resuming {folder.run}: {text}"))
    return carry_out(
        context,
        replace(plan, jobs=tuple(jobs)),
        folder,
        tree,
        wishes,
        saved.get("groups"),
        began,
        settled=settled,
        begun=begun,
    )


def _reconciled(
    folder: RunFolder, planned: Sequence[PlannedJob]
) -> tuple[list[PlannedJob], list[PlannedJob], list[PlannedJob]]:
    """All jobs at their latest attempts; those that are done; those that were started."""
    intended, ended = folder.intended(), _ended(folder)
    jobs: list[PlannedJob] = []
    settled: list[PlannedJob] = []
    begun: list[PlannedJob] = []
    for job in planned:
        jobs.append(job)
        if (job.target.name, job.op) in intended:
            # One that was not run may still run: where its link was lost for good, say.
            (begun if ended.get(job.job, _NOT_RUN) == _NOT_RUN else settled).append(job)
    return jobs, settled, begun


def _ended(folder: RunFolder) -> dict[str, str]:
    """What the run's diary says of jobs that ended: status by job."""
    found: dict[str, str] = {}
    path = folder.path / "events.jsonl"
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == "job_ended":
                found[str(event["job"])] = str(event["status"])
        except (ValueError, KeyError, TypeError):
            continue  # cut off by the crash
    return found
