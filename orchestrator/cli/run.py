"""``mxfleet run``."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.common import (
    HostsOption,
    InventoryOption,
    Output,
    OutputOption,
    make_context,
    split_names,
)


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
        typer.Option(min=1, metavar="N", help="Samples for this run; no file is changed."),
    ] = None,
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
    from orchestrator.workflows.run import run as run_workflow

    if generate and update:
        raise UsageError("--generate and --update exclude each other", hint="name one of them")
    ops = split_names(op)
    if not ops:
        raise UsageError("--op names no operator", hint="for example: --op torch_rms_norm")
    context = make_context(inventory, hosts, output)
    return run_workflow(
        context, ops, mode="update" if update else "generate", samples=samples, dry_run=dry_run
    )
