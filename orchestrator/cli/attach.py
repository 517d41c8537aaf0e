"""``mxfleet attach`` and ``mxfleet kill``: runs that go on in the background."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.common import InventoryOption, Output, OutputOption, make_context, make_sink

RunArgument = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="A run's id; default: the latest.")
]


def attach(
    run: RunArgument = None,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """See what a detached run says, from its first line on; its exit code is this one's.

    Ctrl-C leaves the run as it is. One whose process is gone is gone on with in the background.
    """
    from dataclasses import replace

    from orchestrator.execute.folder import RunFolder
    from orchestrator.workflows import detached

    context = make_context(inventory, None, output)
    live = detached.is_of_many(RunFolder.open(context.runs, run))
    return detached.attach(replace(context, sink=make_sink(output, live=live)), run)


def kill(
    run: RunArgument = None,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """End a run, orderly: its jobs are ended on the hosts, what was measured is kept and merged."""
    from orchestrator.workflows.detached import kill as kill_workflow

    return kill_workflow(make_context(inventory, None, output), run)
