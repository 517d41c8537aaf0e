"""``mxfleet check``."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.common import InventoryOption, split_names

if TYPE_CHECKING:
    from orchestrator.events import Sink


class CheckOutput(str, Enum):
    """How findings are printed."""

    text = "text"
    json = "json"
    github = "github"


def check(
    ops: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OPS]", help="Operators or globs ('torch_*'); default: all."),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="TREE",
            help="The folder with config/, runners/ and the whitelist, or the one above it; "
            "default: benchmark/ beside the inventory, else here.",
        ),
    ] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="Sources of operators, to hold the runners' calls against; may be repeated.",
        ),
    ] = None,
    library: Annotated[
        list[Path] | None,
        typer.Option(metavar="SO", help="A built operator library, for the same; may be repeated."),
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Mend what can be mended safely.")] = False,
    inventory: InventoryOption = None,
    output: Annotated[
        CheckOutput,
        typer.Option(
            "--output",
            help="text for people, json for scripts (JSON lines), github for its annotations.",
        ),
    ] = CheckOutput.text,
) -> int:
    """Lint configs, runners and the whitelist without running anything."""
    from orchestrator.workflows.check import check as check_workflow
    from orchestrator.workflows.check import find_libraries, find_tree

    return check_workflow(
        find_tree(root, inventory),
        split_names(ops) if ops else None,
        _sink(output),
        sources=source or (),
        libraries=find_libraries(library or (), inventory),
        fix=fix,
    )


def _sink(output: CheckOutput) -> Sink:
    if output is CheckOutput.github:
        from orchestrator.show.findings import GithubRenderer

        return GithubRenderer(sys.stdout)
    from orchestrator.show import make_renderer

    return make_renderer(output.value, sys.stdout, sys.stderr)
