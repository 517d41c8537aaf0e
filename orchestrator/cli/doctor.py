"""``mxfleet doctor``."""

from __future__ import annotations

from orchestrator.cli.common import (
    HostsOption,
    InventoryOption,
    Output,
    OutputOption,
    PatternArgument,
    make_context,
    one_way,
)


def doctor(
    pattern: PatternArgument = None,
    hosts: HostsOption = None,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Examine targets from login to GPU, and say what to do about what does not work."""
    from orchestrator.workflows.doctor import doctor as doctor_workflow

    return doctor_workflow(make_context(inventory, one_way(pattern, hosts), output))
