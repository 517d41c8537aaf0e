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
    list[str] | None,
    typer.Option(
        "--hosts",
        metavar="P",
        help="Targets: names, ranges c500-[01-08], @group, host:container; "
        "A,B either, A&B both, A!B without; may be repeated. Default: all.",
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="WORDS",
        help="A profiler to put before the command: 'ncu --set full'; what it writes below {job} "
        "comes back, times are not merged.",
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
    from orchestrator.inventory.load import find_inventory, load
    from orchestrator.inventory.select import select
    from orchestrator.workflows.context import Context

    loaded = load(find_inventory(inventory))
    patterns: list[str | None] = [*hosts] if hosts else [None]
    names = {target.name for pattern in patterns for target in select(loaded, pattern)}
    targets = tuple(target for target in loaded.targets if target.name in names)
    return Context(loaded, targets, make_sink(output, live=live))


def operators_of(texts: list[str]) -> list[str]:
    """The operators that ``--op`` names; raises ``UsageError`` when there are none."""
    from orchestrator.errors import UsageError

    ops = split_names(texts)
    if not ops:
        raise UsageError("--op names no operator", hint="for example: --op torch_rms_norm")
    return ops


def parse_cases(texts: list[str] | None) -> tuple[str, ...]:
    """The ``--case`` filters, each once; raises ``UsageError`` for one that is no KEY=VALUE."""
    from orchestrator.errors import UsageError

    cases = tuple(dict.fromkeys(texts or ()))
    for text in cases:
        key, equals, _ = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(
                f"--case {text!r} is no KEY=VALUE", hint="for example: --case num_tokens=4096"
            )
    return cases


def parse_profile(text: str | None) -> tuple[str, ...]:
    """The words of ``--profile``, none when it is not given; ``UsageError`` when it is broken."""
    from orchestrator.suites.profilers import profiler_words

    return () if text is None else profiler_words(text)


def split_names(texts: list[str]) -> list[str]:
    """``a,b`` and ``c`` to their names, each once, in order."""
    names = [name.strip() for text in texts for name in text.split(",")]
    return list(dict.fromkeys(name for name in names if name))
