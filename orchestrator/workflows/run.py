"""``mxfleet run``: operators on the selected targets, their results brought back and merged."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from orchestrator.errors import ExitCode, MxfleetError, UsageError, combine
from orchestrator.events import Planned, RunStarted, Summary
from orchestrator.execute.folder import RunFolder
from orchestrator.inventory.model import Target
from orchestrator.plan.jobs import (
    Plan,
    PlannedJob,
    command_line,
    new_run_id,
    plan_job,
    plan_run,
)
from orchestrator.plan.schedule import Schedule, share_out
from orchestrator.push.commit import commit_of
from orchestrator.push.tree import Tree
from orchestrator.suites.measuring import Measuring
from orchestrator.workflows.activity import Activity
from orchestrator.workflows.collect import Collector
from orchestrator.workflows.context import Context
from orchestrator.workflows.engine import Engine
from orchestrator.workflows.finish import MergeOutcome, Mode, finish, merge_into, recorded
from orchestrator.workflows.fleet import Fleet
from orchestrator.workflows.models import models_of, recorded_seconds
from orchestrator.workflows.policy import Policy
from orchestrator.workflows.push import Failures


@dataclass(frozen=True)
class Wishes:
    """What is asked of a run beside its operators.

    ``spread``: every operator on every target (``replicate``), or each on one target of every
    model (``shard``). ``matrix``: operators × hosts at the end. ``warm``: jobs on pushed trees may
    be forked from a process that has imported torch. ``run``: the run's id, None: a new one.
    """

    mode: Mode = "generate"
    measuring: Measuring = field(default_factory=Measuring)
    policy: Policy = field(default_factory=Policy)
    spread: Literal["replicate", "shard"] = "replicate"
    command: str = "run"
    matrix: bool = False
    warm: bool = False
    dry_run: bool = False
    run: str | None = None


def run(
    context: Context,
    ops: Sequence[str],
    *,
    mode: Mode = "generate",
    measuring: Measuring | None = None,
    dry_run: bool = False,
    policy: Policy | None = None,
    run_id: str | None = None,
    command: str = "run",
) -> ExitCode:
    """Run ``ops`` on the context's targets and merge what they measured by ``mode``'s rules.

    ``command`` is what the user typed. Raises ``UsageError`` when ``measuring`` asks of a target
    what it cannot honour.
    """
    wishes = Wishes(
        mode=mode,
        measuring=measuring or Measuring(),
        policy=policy or Policy(),
        command=command,
        dry_run=dry_run,
        run=run_id,
    )
    check_honoured(context.targets, wishes.measuring)
    context.suite.check(_own(context, ops), wishes.measuring.cases)
    return start(context, ops, wishes)


def start(
    context: Context,
    ops: Sequence[str],
    wishes: Wishes,
    *,
    wrong: Sequence[ExitCode] = (),
    only: Collection[tuple[str, str]] | None = None,
) -> ExitCode:
    """Plan a new run and carry it out.

    ``wrong`` are the codes of what was found before, for the exit code; ``only`` these targets'
    operators are run, or where they are shared out, what concerns a target's model.
    """
    began = time.monotonic()
    tree = context.tree()
    groups = models_of(context) if wishes.spread == "shard" else None
    plan = _planned(context, ops, wishes, tree, groups)
    if only is not None:
        model = groups or {target.name: target.name for target in context.targets}
        some = {(model[target], op) for target, op in only}
        jobs = (job for job in plan.jobs if (model[job.target.name], job.op) in some)
        plan = replace(plan, jobs=tuple(jobs))
    if wishes.dry_run:
        for job in plan.jobs:
            context.sink(Planned(job.target.name, job.op, command_line(job)))
        context.sink(
            Summary(
                command=wishes.command,
                exit_code=int(combine(wrong)),
                message=f"{len(plan.jobs)} job{'s' * (len(plan.jobs) != 1)} (dry run)",
            )
        )
        return combine(wrong)
    folder = RunFolder.create(context.runs, plan.run)
    plan = replace(plan, commit=commit_of(context.inventory.folder, tree))
    kept: dict[str, Any] = {"mode": wishes.mode, "command": wishes.command, "spread": wishes.spread}
    kept |= {"groups": groups, "wrong": [int(code) for code in wrong]}
    kept |= {"serial": wishes.policy.serial, "retry_hung": wishes.policy.retry_hung}
    folder.write_json("plan.json", {**plan.as_dict(), **kept})
    folder.write_json("tree.json", {"tree": tree.name, "files": [list(e) for e in tree.entries]})
    folder.write_bytes(folder.path / "inventory.yaml", context.inventory.path.read_bytes())
    return carry_out(context, plan, folder, tree, wishes, groups, began, wrong=wrong)


def _planned(
    context: Context,
    ops: Sequence[str],
    wishes: Wishes,
    tree: Tree,
    groups: Mapping[str, str] | None,
) -> Plan:
    run_id = wishes.run or new_run_id()
    detached = wishes.policy.detached
    if groups is None:
        plan = plan_run(
            run_id,
            context.targets,
            ops,
            context.suite,
            tree.name,
            wishes.measuring,
            detached=detached,
        )
    else:
        seconds = recorded_seconds(context.runs)
        jobs = []
        for group in dict.fromkeys(groups.values()):
            there = {t.name: t for t in context.targets if groups[t.name] == group}
            for name, part in share_out(ops, list(there), seconds).items():
                jobs += [
                    plan_job(
                        run_id,
                        there[name],
                        op,
                        context.suite,
                        tree.name,
                        wishes.measuring,
                        detached=detached,
                    )
                    for op in part
                ]
        plan = Plan(run_id, tree.name, tuple(jobs), wishes.measuring)
    if not wishes.warm:
        return plan
    jobs = [
        job if job.target.established else replace(job, spec={**job.spec, "warm": True})
        for job in plan.jobs
    ]
    return replace(plan, jobs=tuple(jobs))


def carry_out(
    context: Context,
    plan: Plan,
    folder: RunFolder,
    tree: Tree,
    wishes: Wishes,
    groups: Mapping[str, str] | None,
    began: float,
    *,
    wrong: Sequence[ExitCode] = (),
    settled: Collection[PlannedJob] = (),
    begun: Collection[PlannedJob] = (),
    gone: Mapping[str, MxfleetError] | None = None,
) -> ExitCode:
    """Run a plan's jobs, merge, tell.

    ``settled`` jobs were done before; ``begun`` ones were started before and may still run. Both
    are of ``plan``. ``gone`` says of targets why they are no longer to be had.
    """
    diary = recorded(context.sink, folder)
    planned_on = {job.target.name: job.target for job in plan.jobs}
    useful = planned_on.keys() | (groups or {}).keys()
    targets = [target for target in context.targets if target.name in useful]
    with folder.held():
        with Activity(diary) as sink, Fleet() as fleet:
            # What it came to before is no longer its end.
            (folder.path / f"{wishes.command}-summary.json").unlink(missing_ok=True)
            ops = tuple(dict.fromkeys(job.op for job in plan.jobs))
            names = tuple(target.name for target in targets)
            sink(RunStarted(wishes.command, plan.run, ops, names, len(plan.jobs), wishes.spread))
            failures = Failures(sink)
            collector = Collector(plan, folder, sink)
            collector.keep_former(settled)

            def moved(job: PlannedJob, target: str) -> PlannedJob:
                to = next(each for each in targets if each.name == target)
                spec = plan_job(
                    plan.run,
                    to,
                    job.op,
                    context.suite,
                    tree.name,
                    plan.measuring,
                    detached=wishes.policy.detached,
                )
                if job.spec.get("warm") and not to.established:
                    spec = replace(spec, spec={**spec.spec, "warm": True})
                collector.move(job, spec)
                return spec

            done = {id(job) for job in settled}
            left = [job for job in plan.jobs if id(job) not in done]
            names_begun = [job.job for job in begun]
            moving = moved if groups is not None else None
            schedule = Schedule(left, groups, moving, names_begun)
            at_work = {job.target.name for job in left}
            for name, error in (gone or {}).items():
                schedule.lost(name)
                if name in at_work:
                    failures(planned_on[name], error)
            if groups is not None:
                # Whoever is of a model that has something left.
                models = {groups[name] for name in at_work}
                at_work = {name for name, model in groups.items() if model in models}
            engine = Engine(
                [target for target in targets if target.name in at_work],
                tree,
                schedule,
                collector,
                folder,
                fleet,
                failures,
                wishes.policy,
                sink,
                begun=names_begun,
            )
            interrupted = engine.run()
        collector.fill_up(failures, interrupted)
        merged = MergeOutcome()
        if not plan.measuring.verify_only:
            merged = merge_into(context, collector.records(), wishes.mode, sink)
        merged = replace(merged, codes=[*merged.codes, *wrong])
        return finish(
            wishes.command,
            sink,
            folder,
            collector,
            failures,
            list({**{t.name: t for t in targets}, **planned_on}.values()),
            merged,
            interrupted,
            began,
            matrix=wishes.matrix,
            lenient=wishes.command == "testall" and not plan.measuring.strict,
        )


def check_honoured(targets: Sequence[Target], measuring: Measuring) -> None:
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
