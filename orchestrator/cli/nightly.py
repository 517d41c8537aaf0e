"""``mxfleet nightly``: run a night, and have cron do it."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.common import InventoryOption, Output, OutputOption, make_sink

app = typer.Typer(help="Everything, every night: what got slower or broke since the last one.")


@app.command()
def run(
    brief: Annotated[
        bool,
        typer.Option("--brief", help="Print only what changed; everything is in the log."),
    ] = False,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Push, run all operators on all targets, merge, tell what changed since the last night.

    The whole output goes to nightly/<date-time>.log as well; the last 60 are kept. A second night
    at once is refused.
    """
    from orchestrator.inventory.find import find_inventory
    from orchestrator.workflows.nightly import night

    return night(find_inventory(inventory), make_sink(output, live=not brief), brief=brief)


@app.command()
def install(
    at: Annotated[
        str, typer.Option("--at", metavar="HH:MM", help="When, by this machine's clock.")
    ] = "02:00",
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Have cron run a night every day; again with another time changes it.

    cron has no ssh-agent: keys need no passphrase, or an agent that IdentityAgent names.
    """
    from orchestrator.inventory.find import find_inventory
    from orchestrator.workflows.nightly_cron import install as install_workflow

    return install_workflow(find_inventory(inventory), make_sink(output), at)


@app.command()
def status(inventory: InventoryOption = None, output: OutputOption = Output.text) -> int:
    """Tell whether it is installed, when the next night is, how the last one went."""
    from orchestrator.inventory.find import find_inventory
    from orchestrator.workflows.nightly_cron import status as status_workflow

    return status_workflow(find_inventory(inventory), make_sink(output))


@app.command()
def remove(inventory: InventoryOption = None, output: OutputOption = Output.text) -> int:
    """Take the crontab entry out; logs and runs stay."""
    from orchestrator.inventory.find import find_inventory
    from orchestrator.workflows.nightly_cron import remove as remove_workflow

    return remove_workflow(find_inventory(inventory), make_sink(output))
