"""``mxfleet run``."""

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
    operators_of,
    parse_cases,
    parse_profile,
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


class SamplingChoice(str, Enum):
    """How often and how long a case is measured."""

    adaptive = "adaptive"
    established = "established"


def run(
    op: Annotated[
        list[str],
        typer.Option("--op", metavar="A[,B]", help="Operators, in order; may be repeated."),
    ],
    hosts: HostsOption = None,
    generate: Annotated[
        bool, typer.Option("--generate", help="Merge: append missing rows (default).")
    ] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Merge: also replace rows when > 5 % faster.")
    ] = False,
    samples: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Samples, with --sampling established or on a CPU; no file is changed.",
        ),
    ] = None,
    sampling: Annotated[
        SamplingChoice | None,
        typer.Option(
            help="adaptive (default): several short processes a case; established: one long one."
        ),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Processes a case; default 5, established 1."),
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Only the cases of a sweep with this; may be repeated."
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="UNVERIFIED exits 6; a device that the config does not name, 3."
        ),
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
    """Run operators on the targets, stream their output, merge what they measured.

    Verification gates measuring. Every target's records and CSV come back into runs/<id>/ and are
    merged into benchmark/statistics/. What is not on a target yet is pushed first.
    """
    from orchestrator.errors import UsageError
    from orchestrator.suites.measuring import Measuring
    from orchestrator.workflows import detached
    from orchestrator.workflows.policy import Policy
    from orchestrator.workflows.run import run as run_workflow

    if generate and update:
        raise UsageError("--generate and --update exclude each other", hint="name one of them")
    ops = operators_of(op)
    measuring = Measuring(
        samples=samples,
        sampling=sampling.value if sampling else None,
        repeats=repeats,
        cases=parse_cases(case),
        strict=strict,
        profiler=parse_profile(profile),
    )
    background = detached.run_of_this_process()
    context = limited(
        make_context(inventory, hosts, output),
        connect=connect_timeout,
        silence=silence,
        job=job_timeout,
        run=run_timeout,
        retries=retries,
    )
    if detach and not dry_run and background is None:
        return detached.start(context.runs, context.sink)
    mode: Literal["update", "generate"] = "update" if update else "generate"
    return run_workflow(
        context,
        ops,
        mode=mode,
        measuring=measuring,
        dry_run=dry_run,
        policy=Policy(retry_hung=retry_hung, detached=background is not None),
        run_id=background,
    )
