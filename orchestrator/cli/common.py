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
RunArgument = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="A run's id; default: the latest.")
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--op", metavar="A[,B]", help="Only these operators or globs; may be repeated."),
]
PatternArgument = Annotated[
    str | None, typer.Argument(metavar="[P]", help="Targets, as for --hosts.")
]
HostsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--hosts",
        metavar="P",
        help="Targets: names, ranges c500-[01-08], @group, host:container; "
        "A,B either, A&B both, A!B without; may be repeated. Default: all.",
    ),
]
OutputOption = Annotated[
    Output, typer.Option("--output", help="text for people, json for scripts (JSON lines).")
]


def make_sink(output: Output, *, live: bool = False) -> Sink:
    """The renderer for ``--output``; with ``live``, on a terminal, the view of many targets."""
    from orchestrator.show import make_renderer

    return make_renderer(output.value, sys.stdout, sys.stderr, live=live)


def make_context(
    inventory: Path | None, hosts: list[str] | None, output: Output, *, live: bool = False
) -> Context:
    """Load the inventory, select targets (of several patterns all), choose the renderer."""
    from orchestrator.inventory.find import find_inventory
    from orchestrator.inventory.load import load
    from orchestrator.inventory.select import select
    from orchestrator.workflows.context import Context

    loaded = load(find_inventory(inventory))
    patterns: list[str | None] = [*hosts] if hosts else [None]
    names = {target.name for pattern in patterns for target in select(loaded, pattern)}
    targets = tuple(target for target in loaded.targets if target.name in names)
    return Context(loaded, targets, make_sink(output, live=live))


def one_way(pattern: str | None, hosts: list[str] | None) -> list[str] | None:
    """Targets that may be named as an argument or by ``--hosts``; ``UsageError`` for both."""
    from orchestrator.errors import UsageError

    if pattern and hosts:
        raise UsageError("targets are named twice", hint="use either P or --hosts P")
    return [pattern] if pattern else hosts


def split_names(texts: list[str]) -> list[str]:
    """``a,b`` and ``c`` to their names, each once, in order."""
    names = [name.strip() for text in texts for name in text.split(",")]
    return list(dict.fromkeys(name for name in names if name))
