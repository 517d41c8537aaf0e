"""``mxfleet pull``: take in again what a run left on its hosts, and merge it.

For a run whose link broke or whose controller died: the jobs' folders on the targets still have
the output, the records and the CSV.
"""

from __future__ import annotations

import time
from typing import Any

from orchestrator.errors import ExitCode, TargetError, UsageError
from orchestrator.events import Note
from orchestrator.execute.folder import RunFolder
from orchestrator.execute.job import fetch_job
from orchestrator.inventory.model import Inventory, Target
from orchestrator.plan.jobs import Plan, PlannedJob
from orchestrator.workflows.activity import Activity
from orchestrator.workflows.collect import Collector
from orchestrator.workflows.context import Context
from orchestrator.workflows.fleet import Fleet, for_each_host
from orchestrator.workflows.prepare import Checkout
from orchestrator.workflows.push import Failures
from orchestrator.workflows.run import finish, merge_into


def pull(context: Context, run: str | None) -> ExitCode:
    """Fetch the jobs of ``run`` (None: the latest) from the context's targets."""
    began = time.monotonic()
    folder = RunFolder.open(context.runs, run)
    saved = folder.read_json("plan.json")
    plan = _saved_plan(context.inventory, saved)
    targets = [t for t in context.targets if any(job.target.name == t.name for job in plan.jobs)]
    if not targets:
        raise UsageError(
            "the run used none of the selected targets",
            where=str(folder.path),
            hint=f"it ran on {', '.join(dict.fromkeys(job.target.name for job in plan.jobs))}",
        )
    with Activity(context.sink) as sink, Fleet() as fleet:
        failures = Failures(sink)
        collector = Collector(plan, folder, sink)

        def work(target: Target) -> None:
            with sink.doing("connecting", target.name):
                session = fleet.session(target)
            jobs = [job for job in plan.jobs if job.target.name == target.name]
            saved_checkout = folder.read_checkout(target.name)
            checkout = Checkout(**saved_checkout) if saved_checkout else None
            for job in jobs:
                with sink.doing(f"fetching {job.op}", target.name):
                    attempt = fetch_job(session, job, folder)
                if not attempt.started and attempt.error is None:
                    sink(Note(f"{job.op} left nothing there", target=target.name))
                    continue
                collector.take(attempt, checkout)
                if isinstance(attempt.error, TargetError):
                    raise attempt.error

        for_each_host(targets, work, failures)
    merged = merge_into(context, collector.records(), saved["mode"], context.sink)
    return finish("pull", context.sink, folder, collector, failures, targets, merged, False, began)


def _saved_plan(inventory: Inventory, saved: dict[str, Any]) -> Plan:
    """The plan as it was made, on the targets as the inventory has them now."""
    targets = {target.name: target for target in inventory.targets}
    jobs = []
    for job in saved["jobs"]:
        target = targets.get(job["target"])
        if target is None:
            raise UsageError(
                f"the run's target {job['target']!r} is no longer in the inventory",
                where=str(inventory.path),
                hint="add it again to pull from it",
            )
        jobs.append(PlannedJob(target, job["op"], job["job"], job["spec"], job["attempt"]))
    return Plan(saved["run"], saved["tree"], tuple(jobs))
