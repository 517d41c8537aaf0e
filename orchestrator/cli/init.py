"""``mxfleet init``."""

from __future__ import annotations

import shlex
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
    force: Annotated[
        bool, typer.Option("--force", help="Replace what is in the way; it is kept as NAME.old.")
    ] = False,
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
    for former, old in done.kept:
        sink(Note(f"kept the former {former.relative_to(done.folder)} as {old}"))
    already = "" if done.written else "all was there already; "
    go = "" if done.folder.samefile(Path.cwd()) else f"cd {shlex.quote(str(folder))}, "
    sink(
        Summary(
            command="init",
            exit_code=0,
            files=tuple(str(path) for path in done.written),
            message=f"{already}next: {go}edit inventory.yaml, then mxfleet hosts --check",
        )
    )
    return 0
