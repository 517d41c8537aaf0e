"""``mxfleet init``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from orchestrator.cli.common import Output, OutputOption, make_sink


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="Where; made if it is not there.")
    ] = Path(),
    from_ssh_config: Annotated[
        bool, typer.Option("--from-ssh-config", help="Fill in the hosts of the SSH configuration.")
    ] = False,
    ssh_config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Another file than ~/.ssh/config to take them from."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is in the way.")] = False,
    output: OutputOption = Output.text,
) -> int:
    """Lay out a working folder: inventory.yaml, benchmark/ and env/."""
    from orchestrator.events import Note, Summary
    from orchestrator.workflows.init import init as init_workflow

    sink = make_sink(output)
    wanted: Path | Literal[True] | None = ssh_config
    if wanted is None and from_ssh_config:
        wanted = True
    done = init_workflow(folder, from_ssh_config=wanted, force=force)
    if done.hosts:
        sink(Note(f"hosts taken over: {', '.join(done.hosts)}"))
    if done.left_out:
        sink(Note(f"left out, no host names here: {', '.join(done.left_out)}", level="warning"))
    if done.kept is not None:
        sink(Note(f"the former inventory is kept as {done.kept}"))
    sink(
        Summary(
            command="init",
            exit_code=0,
            folder=str(done.folder),
            files=tuple(str(path) for path in done.written),
            message=f"wrote {', '.join(path.name for path in done.written)}",
        )
    )
    return 0
