"""``mxfleet verify``."""

from __future__ import annotations

from orchestrator.cli.common import (
    HostsOption,
    InventoryOption,
    Output,
    OutputOption,
    make_context,
)
from orchestrator.cli.options import (
    CaseOption,
    DryRunOption,
    OpOption,
    StrictOption,
    matching,
    named_operators,
    parse_cases,
)


def verify(
    op: OpOption,
    hosts: HostsOption = None,
    case: CaseOption = None,
    strict: StrictOption = False,
    dry_run: DryRunOption = False,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Only verify operators on the targets: nothing is timed, no table changes.

    Of a case that failed the worst elements are shown. Records and logs come back into runs/<id>/.
    What is not on a target yet is pushed first.
    """
    from orchestrator.workflows.verify import verify as verify_workflow

    names, cases = named_operators(op), parse_cases(case)
    context = make_context(inventory, hosts, output)
    ops = matching(context, names)
    return verify_workflow(context, ops, cases=cases, strict=strict, dry_run=dry_run)
