"""``mxfleet runs`` and ``mxfleet logs``: what there is of runs, read from their folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.common import (
    HostsOption,
    InventoryOption,
    OnlyOption,
    Output,
    OutputOption,
    RunArgument,
    make_sink,
    split_names,
)


def runs(
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="At most so many, the latest first.")
    ] = 20,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """List the runs of the working folder, and what became of them."""
    from orchestrator.workflows.runs import runs as runs_workflow

    return runs_workflow(_folder(inventory), make_sink(output), limit)


def logs(
    run: RunArgument = None,
    op: OnlyOption = None,
    hosts: HostsOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")
    ] = False,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Show what a run's jobs printed, as its inventory and plan were."""
    from orchestrator.execute.folder import RunFolder
    from orchestrator.inventory.load import load
    from orchestrator.inventory.select import select
    from orchestrator.workflows.logs import logs as logs_workflow

    folder = RunFolder.open(_folder(inventory), run)
    targets: list[str] | None = None
    if hosts is not None:
        # The selection means the hosts as they were when the run began.
        known = load(folder.path / "inventory.yaml")
        targets = [target.name for pattern in hosts for target in select(known, pattern)]
    names = split_names(op or [])
    return logs_workflow(folder, make_sink(output), ops=names, targets=targets, follow=follow)


def _folder(inventory: Path | None) -> Path:
    from orchestrator.inventory.find import find_inventory

    return find_inventory(inventory).parent / "runs"
