"""``mxfleet verify``."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.common import (
    HostsOption,
    InventoryOption,
    Output,
    OutputOption,
    make_context,
    operators_of,
    parse_cases,
)


def verify(
    op: Annotated[
        list[str],
        typer.Option("--op", metavar="A[,B]", help="Operators, in order; may be repeated."),
    ],
    hosts: HostsOption = None,
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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands, run nothing.")
    ] = False,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Only verify operators on the targets: nothing is timed, no table changes.

    Of a case that failed the worst elements are shown. Records and logs come back into runs/<id>/.
    What is not on a target yet is pushed first.
    """
    from orchestrator.workflows.verify import verify as verify_workflow

    ops, cases = operators_of(op), parse_cases(case)
    context = make_context(inventory, hosts, output)
    return verify_workflow(context, ops, cases=cases, strict=strict, dry_run=dry_run)
