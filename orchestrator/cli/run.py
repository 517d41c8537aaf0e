"""``mxfleet run``."""

from __future__ import annotations

from orchestrator.cli.common import (
    HostsOption,
    InventoryOption,
    Output,
    OutputOption,
    make_context,
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
    OpOption,
    ProfileOption,
    RepeatsOption,
    SamplesOption,
    SamplingOption,
    StrictOption,
    UpdateOption,
    matching,
    measuring_of,
    merge_mode,
    named_operators,
)


def run(
    op: OpOption,
    hosts: HostsOption = None,
    generate: GenerateOption = False,
    update: UpdateOption = False,
    samples: SamplesOption = None,
    sampling: SamplingOption = None,
    repeats: RepeatsOption = None,
    case: CaseOption = None,
    strict: StrictOption = False,
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
    """Run operators on the targets, stream their output, merge what they measured.

    Verification gates measuring. Every target's records and CSV come back into runs/<id>/ and are
    merged into benchmark/statistics/. What is not on a target yet is pushed first.
    """
    from orchestrator.workflows import detached
    from orchestrator.workflows.policy import Policy
    from orchestrator.workflows.run import run as run_workflow

    mode = merge_mode(generate, update)
    names = named_operators(op)
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
        make_context(inventory, hosts, output),
        connect=connect_timeout,
        silence=silence,
        job=job_timeout,
        run=run_timeout,
        retries=retries,
    )
    ops = matching(context, names)
    if detach and not dry_run and background is None:
        return detached.start(context.runs, context.sink)
    return run_workflow(
        context,
        ops,
        mode=mode,
        measuring=measuring,
        dry_run=dry_run,
        policy=Policy(retry_hung=retry_hung, detached=background is not None),
        run_id=background,
    )
