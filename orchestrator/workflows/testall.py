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
from orchestrator.execute.folder import RunFolder, still_going_on
from orchestrator.inventory.model import Host, Target
from orchestrator.plan.jobs import Plan, PlannedJob, with_limits
from orchestrator.records import Record, Status, parse_line
from orchestrator.suites.measuring import Measuring
from orchestrator.workflows.context import Context
from orchestrator.workflows.finish import Mode
from orchestrator.workflows.policy import Policy
from orchestrator.workflows.pull import latest_attempts, saved_plan
from orchestrator.workflows.run import Wishes, carry_out, check_honoured, start

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
        only = _failed_here(context, RunFolder.open(context.runs, failed), ops)
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


def _failed_here(
    context: Context, folder: RunFolder, ops: Sequence[str] | None
) -> set[tuple[str, str]]:
    """What failed in a run of what is chosen now; what is no longer there is told."""
    chosen = {target.name for target in context.targets}
    known = {target.name for target in context.inventory.targets}
    here = set(context.suite.operators())
    found = set()
    lost: dict[str, list[str]] = {}  # operators by target
    removed: dict[str, None] = {}
    for target, op in sorted(_failed(folder)):
        if ops is not None and op not in ops:
            continue
        if target not in known:
            lost.setdefault(target, []).append(op)
        elif op not in here:
            removed[op] = None
        elif target in chosen:
            found.add((target, op))
    for target, some in lost.items():
        what = some[0] if len(some) == 1 else f"{len(some)} operators"
        text = f"{what} failed on it, but it is no longer there"
        context.sink(Note(text, target, level="warning"))
    if removed:
        text = f"failed, but no longer there: {', '.join(removed)}"
        context.sink(Note(text, level="warning"))
    return found


def _failed(folder: RunFolder) -> set[tuple[str, str]]:
    """Targets and operators of a run that have no good result."""
    found = set()
    for job in folder.planned():
        records = _records(folder, job["target"], job["op"])
        if not records or any(r.status in _FAILED and not r.excused for r in records):
            found.add((job["target"], job["op"]))
    return found


def resume(context: Context, run: str | None, *, policy: Policy | None = None) -> ExitCode:
    """Go on with a run whose controller ended early: nothing is done twice, nothing is missed.

    What the hosts still run is followed, what ended there is taken in, the rest is started.
    """
    began = time.monotonic() - _spent(RunFolder.open(context.runs, run))
    folder = RunFolder.open(context.runs, run)
    if folder.is_held():
        raise still_going_on(folder)
    saved = saved_plan(folder)
    former = policy or Policy()
    testing = saved.get("command") == "testall"
    policy = replace(
        former,
        all_lanes=testing,
        serial=former.serial or bool(saved.get("serial")),
        retry_hung=former.retry_hung or bool(saved.get("retry_hung")),
    )
    planned, gone = _planned_again(saved, folder, context)
    tree = context.tree()
    pushed = any(not job.target.established for job in planned if job.target.name not in gone)
    if tree.name != saved["tree"] and pushed:
        raise UnusableError(
            f"the working folder is no longer what the run measured (tree {saved['tree'][:12]})",
            where=str(folder.path),
            hint="take in what is there with `mxfleet pull`, and start a new run",
        )
    jobs, settled, begun = _reconciled(folder, planned, policy)
    plan = Plan(saved["run"], saved["tree"], tuple(jobs), saved["measuring"], saved.get("commit"))
    wishes = Wishes(
        mode=saved["mode"],
        measuring=plan.measuring,
        policy=policy,
        spread=saved.get("spread") or "replicate",
        command=saved.get("command") or "run",
        matrix=testing,
    )
    left = len(jobs) - len(settled)
    text = f"{len(settled)} of {len(jobs)} jobs are done"
    text += f", {len(begun)} had been started, {left - len(begun)} not yet"
    if not left:
        text = f"all {len(jobs)} jobs are done, nothing left to do"
    context.sink(Note(f"resuming {folder.run}: {text}"))
    groups = saved.get("groups") or {}
    used = ({job.target.name for job in jobs} | groups.keys()) - gone.keys()
    targets = tuple(target for target in context.inventory.targets if target.name in used)
    return carry_out(
        replace(context, targets=targets),
        plan,
        folder,
        tree,
        wishes,
        groups or None,
        began,
        wrong=[ExitCode(code) for code in saved.get("wrong", ())],
        settled=settled,
        begun=begun,
        gone=gone,
    )


def _planned_again(
    saved: dict[str, Any], folder: RunFolder, context: Context
) -> tuple[list[PlannedJob], dict[str, MxfleetError]]:
    """The jobs on targets as the inventory has them now, and why some of these are not there."""
    known = {target.name: target for target in context.inventory.targets}
    jobs: list[PlannedJob] = []
    gone: dict[str, MxfleetError] = {}
    for entry in saved["jobs"]:
        name = entry["target"]
        target = known.get(name) or Target(name, Host(name))
        jobs.append(PlannedJob(target, entry["op"], entry["job"], entry["spec"], entry["attempt"]))
        if name not in known:
            gone[name] = UsageError(
                f"no longer in {context.inventory.path}",
                where=name,
                hint="add it again, then resume the run once more",
            )
    return latest_attempts(jobs, folder), gone


def _reconciled(
    folder: RunFolder, planned: Sequence[PlannedJob], policy: Policy
) -> tuple[list[PlannedJob], list[PlannedJob], list[PlannedJob]]:
    """All jobs; of them those that are done, and those that were started.

    What was not run, or not to its end, may still run: where its link was lost for good, say.
    """
    intended, ended = folder.intended(), _ended(folder)
    jobs: list[PlannedJob] = []
    settled: list[PlannedJob] = []
    begun: list[PlannedJob] = []
    for job in planned:
        if job.job in ended and _is_whole(folder, job):
            settled.append(job)
        else:
            job = with_limits(job, detached=policy.detached)
            if (job.target.name, job.op) in intended:
                begun.append(job)
        jobs.append(job)
    return jobs, settled, begun


def _is_whole(folder: RunFolder, job: PlannedJob) -> bool:
    """Whether the run's folder has everything that there is to know of a job that ended."""
    records = _records(folder, job.target.name, job.op)
    return bool(records) and all(record.status is not Status.NOT_RUN for record in records)


def _ended(folder: RunFolder) -> set[str]:
    """The jobs that ended, as the run's diary says."""
    found: set[str] = set()
    path = folder.path / "events.jsonl"
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == "job_ended":
                found.add(str(event["job"]))
        except (ValueError, KeyError, TypeError):
            continue  # cut off by the crash
    return found


def _records(folder: RunFolder, target: str, op: str) -> list[Record]:
    path = folder.records(target, op)
    found = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        with suppress(ValueError):
            found.append(parse_line(line))
    return found


def _spent(folder: RunFolder) -> float:
    """The seconds that a run's summary says it took so far; none without a readable one."""
    for path in folder.path.glob("*-summary.json"):
        if path.name != "pull-summary.json":
            with suppress(UsageError, KeyError, TypeError, ValueError):
                return float(folder.read_json(path.name)["seconds"])
    return 0.0
