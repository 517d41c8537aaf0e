"""``mxfleet pull``: take in again what a run left on its hosts, and merge it.

For a run whose link broke or whose controller died: the jobs' folders on the targets still have
the output, the records and the CSV. What is here already is never lost by it: records are united,
and what only says that something is missing gives way to what was measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from orchestrator.errors import ExitCode, TargetError, UsageError
from orchestrator.events import Note, Sink
from orchestrator.execute.folder import RunFolder
from orchestrator.execute.job import fetch_job
from orchestrator.inventory.model import Inventory, Target
from orchestrator.plan.jobs import Plan, PlannedJob, next_attempt
from orchestrator.suites.measuring import Measuring
from orchestrator.workflows.activity import Activity
from orchestrator.workflows.collect import Collector
from orchestrator.workflows.context import Context
from orchestrator.workflows.finish import finish, merge_into
from orchestrator.workflows.fleet import Fleet, for_each_host
from orchestrator.workflows.prepare import Checkout
from orchestrator.workflows.push import Failures


def pull(context: Context, run: str | None, *, chosen: bool) -> ExitCode:
    """Fetch the jobs of ``run`` (None: the latest).

    With ``chosen`` from the context's targets only, else from all that the run used.
    """
    began = time.monotonic()
    folder = RunFolder.open(context.runs, run)
    with folder.held(), Activity(context.sink) as sink, Fleet() as fleet:
        failures = Failures(sink)
        saved = saved_plan(folder)
        candidates = context.targets if chosen else context.inventory.targets
        plan, targets = plan_again(saved, candidates, folder, context.inventory, sink, chosen)
        collector = Collector(plan, folder, sink)

        def work(target: Target) -> None:
            jobs = [job for job in plan.jobs if job.target.name == target.name]
            found = folder.read_checkout(target.name)
            checkout = Checkout(**found) if found else None
            try:
                with sink.doing("connecting", target.name):
                    session = fleet.session(target)
                for job in jobs:
                    with sink.doing(f"fetching {job.op}", target.name):
                        attempt = fetch_job(session, job, folder)
                    collector.take_again(attempt, checkout)
                    if isinstance(attempt.error, TargetError):
                        raise attempt.error
            finally:
                collector.keep_former(jobs)

        for_each_host(sink, targets, work, failures)
        merged = merge_into(context, collector.records(), saved["mode"], sink)
        gone = {job["target"] for job in saved["jobs"]} - {
            t.name for t in context.inventory.targets
        }
        if gone and not chosen:
            merged = replace(merged, codes=[*merged.codes, ExitCode.USAGE])
        return finish("pull", sink, folder, collector, failures, targets, merged, False, began)


def saved_plan(folder: RunFolder) -> dict[str, Any]:
    """The plan as it was kept; anything else under its name is an error with its place."""
    saved = folder.read_json("plan.json")
    try:
        assert saved["mode"] in ("generate", "update")
        assert {"run", "tree"} <= saved.keys()
        saved["jobs"] = folder.planned("job", "spec", "attempt")
        saved["measuring"] = Measuring.from_dict(saved.get("measuring", {}))
    except (AssertionError, AttributeError, KeyError, TypeError):
        raise UsageError(
            "the plan of the run is damaged",
            where=str(folder.path / "plan.json"),
            hint="nothing can be pulled for it; its records may still be in the folder",
        ) from None
    return dict(saved)


def plan_again(
    saved: dict[str, Any],
    candidates: tuple[Target, ...],
    folder: RunFolder,
    inventory: Inventory,
    sink: Sink,
    chosen: bool,
) -> tuple[Plan, list[Target]]:
    """The jobs at their latest attempts, on targets as the inventory has them now, and these."""
    known = {target.name: target for target in candidates}
    used = list(dict.fromkeys(job["target"] for job in saved["jobs"]))
    targets = [known[name] for name in used if name in known]
    if not targets:
        raise UsageError(
            "the run used none of the selected targets",
            where=str(folder.path),
            hint=f"it ran on {', '.join(used)}",
        )
    for name in used:
        if name not in known and not chosen:
            text = f"no longer in {inventory.path}, not pulled; add it again to pull from it"
            sink(Note(text, target=name, level="error"))
    planned = [
        PlannedJob(known[job["target"]], job["op"], job["job"], job["spec"], job["attempt"])
        for job in saved["jobs"]
        if job["target"] in known
    ]
    jobs = tuple(latest_attempts(planned, folder))
    plan = Plan(saved["run"], saved["tree"], jobs, saved["measuring"], saved.get("commit"))
    return plan, targets


def latest_attempts(jobs: Iterable[PlannedJob], folder: RunFolder) -> list[PlannedJob]:
    """The jobs at the last of their attempts that were to be started."""
    intended = folder.intended()
    found = []
    for job in jobs:
        while job.attempt < intended.get((job.target.name, job.op), ("", 0))[1]:
            job = next_attempt(job)
        found.append(job)
    return found
