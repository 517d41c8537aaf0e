"""``mxfleet attach`` and ``mxfleet kill``: runs that go on in the background."""

from __future__ import annotations

from orchestrator.cli.common import (
    InventoryOption,
    Output,
    OutputOption,
    RunArgument,
    make_context,
    make_sink,
)


def attach(
    run: RunArgument = None,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Watch a run that was started with --detach, from its first line to its end.

    The exit code is the run's. Ctrl-C only stops watching. A run whose process was killed, or went
    with a reboot, is resumed in the background first.
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
