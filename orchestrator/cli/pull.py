"""``mxfleet pull``."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.common import HostsOption, InventoryOption, Output, OutputOption, make_context


def pull(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="A run's id; default: the latest.")
    ] = None,
    hosts: HostsOption = None,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Fetch again what a run left on its hosts (output, records, CSV) and merge it."""
    from orchestrator.workflows.pull import pull as pull_workflow

    return pull_workflow(make_context(inventory, hosts, output), run, chosen=hosts is not None)
