"""``mxfleet gen``: write benchmarks from the code of operators."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.common import (
    HostsOption,
    InventoryOption,
    Output,
    OutputOption,
    make_context,
    make_sink,
)

app = typer.Typer(
    help="Write benchmarks from the code of operators.",
    no_args_is_help=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


class FrameworkChoice(str, Enum):
    """Whose operator it is."""

    vllm = "vllm"
    sgl = "sgl"
    mcoplib = "mcoplib"
    torch = "torch"


@app.callback()
def _group() -> None:
    """Write benchmarks from the code of operators."""


@app.command()
def op(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The operator, as its source has it.")
    ],
    source: Annotated[
        list[Path],
        typer.Option(metavar="PATH", help="Its sources, files or folders; may be repeated."),
    ],
    unit_test: Annotated[
        list[Path],
        typer.Option(metavar="PATH", help="The unit test that calls it; may be repeated."),
    ],
    framework: Annotated[
        FrameworkChoice | None,
        typer.Option(help="Whose operator, where several have it; default: each."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A value of the config, JSON or else text; a list is swept. May be repeated.",
        ),
    ] = None,
    device_name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The GPU the config is for; default: MetaX C500."),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Samples; default 1000, 100 where every call allocates."
        ),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="TREE",
            help="The folder with config/ and runners/; default: benchmark/ beside the inventory.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, write nothing.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
    run: Annotated[
        bool, typer.Option("--run", help="Go on: push, verify and run it on the targets.")
    ] = False,
    hosts: HostsOption = None,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Write an operator's config and runner from its source and unit test.

    Both are only read. What cannot be told is a TODO in the runner, which mxfleet check refuses;
    what is concluded is marked as inferred.
    """
    from orchestrator.author.emit.settings import parse_sets
    from orchestrator.workflows.check import find_tree
    from orchestrator.workflows.gen_op import Wish, gen_op

    wish = Wish(
        name,
        tuple(source),
        tuple(unit_test),
        framework.value if framework is not None else None,
        parse_sets(settings or ()),
        device_name,
        samples,
    )
    if not run:
        tree = find_tree(root, inventory)
        return gen_op(tree, wish, make_sink(output), dry_run=dry_run, force=force)
    from orchestrator.workflows.gen_run import gen_and_run, refuse_root

    refuse_root(root, dry_run)
    context = make_context(inventory, hosts, output)
    return gen_and_run(context, wish, force=force)


@app.command()
def halops(
    wish: Annotated[
        str | None,
        typer.Argument(
            metavar="[WISH]",
            help="What to measure, in Chinese or English: 'fp8 decode, batch 1/16, kv 4k to 64k'.",
        ),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="A HALOps repository or its benchmark folder; default: the one here, "
            "else benchmark/halops beside the inventory.",
        ),
    ] = None,
    op_name: Annotated[
        str | None, typer.Option("--op", metavar="NAME", help="attention, gemm, ...")
    ] = None,
    scenario: Annotated[
        str | None, typer.Option(metavar="NAME", help="The scenario, as the code has it.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A field of the config: JSON, 1/16/64, 4k to 64k, names; may be repeated.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Write it without asking.")] = False,
    keep_marks: Annotated[
        bool,
        typer.Option("--keep-marks", help="Inferred fields end in '# inferred'; default: asked."),
    ] = False,
    strip_marks: Annotated[
        bool, typer.Option("--strip-marks", help="They do not, as where neighbours have no marks.")
    ] = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Then run it once, with the halops backend alone.")
    ] = False,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Write a config of a HALOps checkout from a sentence and the checkout's own code.

    The code is only read. What decides what is measured is asked for where it is missing; without
    a terminal the questions are printed as JSON, and nothing is written without --yes.
    """
    from orchestrator.author.emit.settings import parse_sets
    from orchestrator.cli.dialogue import make_dialogue
    from orchestrator.errors import UsageError
    from orchestrator.workflows.gen_halops import HalopsWish, find_root, gen_halops

    if keep_marks and strip_marks:
        raise UsageError("--keep-marks and --strip-marks say the opposite", hint="give one")
    marks = keep_marks if keep_marks or strip_marks else None
    asked = HalopsWish(wish or "", op_name, scenario, parse_sets(settings or ()), yes, smoke, marks)
    dialogue = make_dialogue(json_lines=output is Output.json)
    return gen_halops(find_root(root, inventory), asked, make_sink(output), dialogue)
