"""``mxfleet hosts``."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.common import HostsOption, InventoryOption, Output, OutputOption, make_context


def hosts(
    pattern: Annotated[
        str | None, typer.Argument(metavar="[P]", help="Targets, as for --hosts.")
    ] = None,
    hosts: HostsOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Connect to each target and say what it is.")
    ] = False,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """List targets; with --check say what each is.

    Host, container, workdir, GPUs; with --check connect and give the facts, or why one cannot be
    used.
    """
    from orchestrator.errors import UsageError
    from orchestrator.workflows.hosts import hosts as hosts_workflow

    if pattern and hosts:
        raise UsageError("targets are named twice", hint="use either P or --hosts P")
    return hosts_workflow(
        make_context(inventory, [pattern] if pattern else hosts, output), check=check
    )
