"""``mxfleet push``."""

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


def push(
    hosts: HostsOption = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="Checkouts: only these operators or globs (config/x*)."),
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Checkouts: also remove what only they have.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be sent, change nothing.")
    ] = False,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Bring benchmark/ to the targets.

    Where a target names no workdir, the tree is laid out under its own hash and never changes;
    an established checkout (workdir) gets config/ and runners/ synced in place. An unchanged push
    sends nothing.
    """
    from orchestrator.workflows.push import push as push_workflow

    context = make_context(inventory, hosts, output)
    return push_workflow(context, only=split_names(only or []), delete=delete, dry_run=dry_run)
