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
    make_context,
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
from orchestrator.cli.options import (
    CaseOption,
    DryRunOption,
    GenerateOption,
    OpsOption,
    ProfileOption,
    RepeatsOption,
    SamplesOption,
    SamplingOption,
    UpdateOption,
    matching,
    measuring_of,
    merge_mode,
)


class Spread(str, Enum):
    """Where operators run."""

    replicate = "replicate"
    shard = "shard"


def testall(
    ops: OpsOption = None,
    hosts: HostsOption = None,
    spread: Annotated[
        Spread,
        typer.Option(
            help="replicate: every operator everywhere; shard: each on one per model, no matrix."
        ),
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
    generate: GenerateOption = False,
    update: UpdateOption = False,
    samples: SamplesOption = None,
    sampling: SamplingOption = None,
    repeats: RepeatsOption = None,
    case: CaseOption = None,
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
    dry_run: DryRunOption = False,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Run all operators on all targets, then show operators × hosts and the odd hosts.

    Every GPU of a target takes jobs. UNAVAILABLE operators only count, unless --strict. A host is
    odd when it is off the median of its model by more than 5 %, three times the spread over the
    hosts, and that over its own processes; that takes three hosts of a model.
    """
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
                "--generate": generate,
                "--update": update,
                "--samples": samples,
                "--sampling": sampling,
                "--repeats": repeats,
                "--case": case,
                "--strict": strict,
                "--profile": profile,
                "--dry-run": dry_run,
            }
        )
    mode = merge_mode(generate, update)
    measuring = measuring_of(
        samples=samples,
        sampling=sampling,
        repeats=repeats,
        case=case,
        strict=strict,
        profile=profile,
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
    chosen = matching(context, split_names(ops)) if ops else None
    if detach and not dry_run and background is None:
        return detached.start(context.runs, context.sink, resume)
    policy = Policy(retry_hung=retry_hung, serial=serial, detached=background is not None)
    if resume is not None:
        return resume_workflow(context, resume, policy=policy)
    how: Literal["replicate", "shard"] = "shard" if spread is Spread.shard else "replicate"
    return testall_workflow(
        context,
        chosen,
        spread=how,
        mode=mode,
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
