"""``mxfleet doctor``."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.common import InventoryOption, Output, OutputOption, make_context


def doctor(
    pattern: Annotated[
        str | None, typer.Argument(metavar="[P]", help="Targets, as for --hosts; default: all.")
    ] = None,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Examine targets from login to GPU, and say what to do about what does not work."""
    from orchestrator.workflows.doctor import doctor as doctor_workflow

    return doctor_workflow(make_context(inventory, [pattern] if pattern else None, output))
