"""Options that several commands share, and what they turn into."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from orchestrator.events import Sink
    from orchestrator.workflows.context import Context


class Output(str, Enum):
    """How results are printed."""

    text = "text"
    json = "json"


InventoryOption = Annotated[
    Path | None,
    typer.Option(
        "--inventory",
        "-i",
        metavar="FILE",
        help="The inventory; default: $MXFLEET_INVENTORY, else inventory.yaml here or above.",
    ),
]
HostsOption = Annotated[
    str | None,
    typer.Option(
        "--hosts",
        metavar="P",
        help="Targets: names, ranges c500-[01-08], @group, host:container; "
        "A,B either, A&B both, A!B without. Default: all.",
    ),
]
OutputOption = Annotated[
    Output, typer.Option("--output", help="text for people, json for scripts (JSON lines).")
]


def make_sink(output: Output) -> Sink:
    """The renderer for ``--output``."""
    from orchestrator.show import make_renderer

    return make_renderer(output.value, sys.stdout, sys.stderr)


def make_context(inventory: Path | None, hosts: str | None, output: Output) -> Context:
    """Load the inventory, select targets, choose the renderer."""
    from orchestrator.inventory.load import find_inventory, load
    from orchestrator.inventory.select import select
    from orchestrator.workflows.context import Context

    loaded = load(find_inventory(inventory))
    return Context(loaded, select(loaded, hosts), make_sink(output))


def split_names(text: str) -> list[str]:
    """``a,b`` to its names, each once, in order."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
