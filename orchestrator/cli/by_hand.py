"""``mxfleet repro`` and ``mxfleet shell``."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.common import (
    HostsOption,
    InventoryOption,
    OnlyOption,
    Output,
    OutputOption,
    RunArgument,
    make_context,
    split_names,
)


def repro(
    run: RunArgument = None,
    op: OnlyOption = None,
    hosts: HostsOption = None,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Print the command line of a run's job, to paste: it does by hand what mxfleet did."""
    from orchestrator.workflows.by_hand import repro as repro_workflow

    return repro_workflow(make_context(inventory, hosts, output), run, split_names(op or []))


def shell(
    target: Annotated[str, typer.Argument(metavar="HOST[:CONTAINER]", help="Where to sit.")],
    inventory: InventoryOption = None,
) -> int:
    """Open a terminal on a target: in its container, env sourced, in the tree.

    There, python is the one of the jobs. A tree that is not there yet is pushed.
    """
    from orchestrator.workflows.by_hand import shell as shell_workflow

    return shell_workflow(make_context(inventory, [target], Output.text))
