"""``mxfleet testall``."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

import typer

from orchestrator.cli.common import (
    HostsOption,
    InventoryOption,
    Output,
    OutputOption,
    ProfileOption,
    make_context,
    parse_cases,
    parse_profile,
    split_names,
)
from orchestrator.cli.limits import (
    ConnectTimeoutOption,
    DetachOption,
    JobTimeoutOption,
    RetriesOption,
    RetryHungOption,
    RunTimeoutOption,
    SilenceOption,
    limited,
)
from orchestrator.cli.run import SamplingChoice


class Spread(str, Enum):
    """Where operators run."""

    replicate = "replicate"
    shard = "shard"


def testall(
    ops: Annotated[
        list[str] | None,
        typer.Option("--ops", metavar="A,B", help="Operators; default: all. May be repeated."),
    ] = None,
    hosts: HostsOption = None,
    spread: Annotated[
        Spread,
        typer.Option(help="replicate: every operator everywhere; shard: each on one per model."),
    ] = Spread.replicate,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Go on with a run (or testall) that was cut off."),
    ] = None,
    failed: Annotated[
        str | None, typer.Option(metavar="RUN", help="Run what failed in that run again.")
    ] = None,
    serial: Annotated[
        bool, typer.Option("--serial", help="One job at a time on a target, on its first GPU.")
    ] = False,
    cold: Annotated[
        bool, typer.Option("--cold", help="A fresh Python for each operator, no warm worker.")
    ] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Merge: also replace rows when > 5 % faster.")
    ] = False,
    sampling: Annotated[
        SamplingChoice | None, typer.Option(help="As for run: adaptive (default) or established.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Processes a case, as for run.")
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Only the cases with this; may be repeated."),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="UNVERIFIED exits 6; UNAVAILABLE and another device, 3."),
    ] = False,
    profile: ProfileOption = None,
    connect_timeout: ConnectTimeoutOption = None,
    silence: SilenceOption = None,
    job_timeout: JobTimeoutOption = None,
    run_timeout: RunTimeoutOption = None,
    retries: RetriesOption = None,
    retry_hung: RetryHungOption = False,
    detach: DetachOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands, run nothing.")
    ] = False,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Run all operators on all targets, then show operators × hosts and the odd hosts.

    Every GPU of a target takes jobs. UNAVAILABLE operators only count, unless --strict.
    """
    from orchestrator.suites.measuring import Measuring
    from orchestrator.workflows import detached
    from orchestrator.workflows.policy import Policy
    from orchestrator.workflows.testall import resume as resume_workflow
    from orchestrator.workflows.testall import testall as testall_workflow

    if resume is not None:
        _refuse_beside_resume(
            {
                "--failed": failed,
                "--ops": ops,
                "--hosts": hosts,
                "--spread": spread is not Spread.replicate,
                "--cold": cold,
                "--update": update,
                "--sampling": sampling,
                "--repeats": repeats,
                "--case": case,
                "--strict": strict,
                "--profile": profile,
                "--dry-run": dry_run,
            }
        )
    measuring = Measuring(
        sampling=sampling.value if sampling else None,
        repeats=repeats,
        cases=parse_cases(case),
        strict=strict,
        profiler=parse_profile(profile),
    )
    background = detached.run_of_this_process()
    context = limited(
        make_context(inventory, hosts, output, live=not (detach or dry_run)),
        connect=connect_timeout,
        silence=silence,
        job=job_timeout,
        run=run_timeout,
        retries=retries,
    )
    if detach and not dry_run and background is None:
        return detached.start(context.runs, context.sink, resume)
    policy = Policy(retry_hung=retry_hung, serial=serial, detached=background is not None)
    if resume is not None:
        return resume_workflow(context, resume, policy=policy)
    how: Literal["replicate", "shard"] = "shard" if spread is Spread.shard else "replicate"
    return testall_workflow(
        context,
        split_names(ops) if ops else None,
        spread=how,
        mode="update" if update else "generate",
        measuring=measuring,
        policy=policy,
        failed=failed,
        warm=not cold,
        dry_run=dry_run,
        run_id=background,
    )


def _refuse_beside_resume(given: dict[str, object]) -> None:
    """A run is gone on with as it was planned; only limits may be others now."""
    from orchestrator.errors import UsageError

    wrong = [name for name, value in given.items() if value]
    if wrong:
        raise UsageError(
            f"--resume goes on with a run as it was planned: {' and '.join(wrong)} cannot be",
            hint="leave it out, or start a new run",
        )
