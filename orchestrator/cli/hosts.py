"""``mxfleet hosts``."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.common import (
    HostsOption,
    InventoryOption,
    Output,
    OutputOption,
    PatternArgument,
    make_context,
    one_way,
)


def hosts(
    pattern: PatternArgument = None,
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
    from orchestrator.workflows.hosts import hosts as hosts_workflow

    return hosts_workflow(make_context(inventory, one_way(pattern, hosts), output), check=check)
