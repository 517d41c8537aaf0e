"""The ``mxfleet`` command: its subcommands, and how errors become one line and an exit code."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from orchestrator import __version__
from orchestrator.cli import (
    attach,
    by_hand,
    check,
    doctor,
    gen,
    hosts,
    init,
    nightly,
    pull,
    push,
    run,
    runs,
    testall,
    verify,
)
from orchestrator.errors import ExitCode, InterruptedRun, MxfleetError


class _Commands(TyperGroup):
    """The subcommands: what Ctrl-C ends says so, whatever this Typer makes of it."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise InterruptedRun("interrupted") from None


app = typer.Typer(
    cls=_Commands,
    name="mxfleet",
    help="Run GPU operator benchmarks on a fleet of hosts, verified, supervised and merged.",
    rich_markup_mode=None,  # importing Rich would take longer than the rest of --help
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(init.init)
app.command()(hosts.hosts)
app.command()(doctor.doctor)
app.command()(push.push)
app.command()(run.run)
app.command()(verify.verify)
app.command()(check.check)
app.command()(testall.testall)
app.command()(attach.attach)
app.command()(attach.kill)
app.command()(pull.pull)
app.command()(runs.runs)
app.command()(runs.logs)
app.command()(by_hand.repro)
app.command()(by_hand.shell)
app.add_typer(nightly.app, name="nightly")
app.add_typer(gen.app, name="gen")


# The base of what the parser raises: Click's, of which newer Typers carry a copy of their own.
_PARSER_ERROR: Any = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

# Commands that change nothing; a run that somebody attached to goes on without them.
_TELLING = {"attach", "doctor", "hosts", "logs", "repro", "runs"}


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mxfleet {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(int(ExitCode.USAGE))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with the documented code."""
    words = sys.argv[1:] if arguments is None else arguments
    _end_orderly()
    code, complaint = _run(words)
    if complaint is not None:
        _complain(complaint)
        if _wants_json(words):
            _summarise(words, code, complaint)
    sys.exit(code)


def _run(words: list[str]) -> tuple[int, str | None]:
    """The exit code, and the one line for standard error when a command could not do its work."""
    try:
        result = app(words, prog_name="mxfleet", standalone_mode=False)
        return (int(result) if isinstance(result, int) else int(ExitCode.OK)), None
    except MxfleetError as error:
        if _has_told_enough(words, error):
            return int(ExitCode.OK), None
        return int(error.code), str(error)
    except _PARSER_ERROR as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "mxfleet"
        return int(ExitCode.USAGE), f"{error.format_message().rstrip('.')}; see {command} --help"
    except (KeyboardInterrupt, typer.Abort):
        return int(ExitCode.INTERRUPTED), "interrupted"
    except Exception as error:  # noqa: BLE001 - the last resort: a report instead of a traceback
        from orchestrator.workflows.fault import own_fault

        return int(ExitCode.INTERNAL), own_fault(error)


def _has_told_enough(words: list[str], error: MxfleetError) -> bool:
    """Whether a command that changes nothing was only cut off by ``head``, or whoever read it."""
    from orchestrator.show.stream import ReaderGone

    named = [word for word in words if not word.startswith("-")]
    tells = (named[:1] and named[0] in _TELLING) or named[:2] == ["nightly", "status"]
    tells = tells or (named[:1] == ["check"] and "--fix" not in words)
    return isinstance(error, ReaderGone) and bool(tells or "--dry-run" in words)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _end_orderly() -> None:
    """A closed terminal and a plain kill are told like Ctrl-C: what runs on the hosts is ended."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # not where nohup has it ignored
            signal.signal(number, _interrupt)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


def _wants_json(words: list[str]) -> bool:
    # Read from the words: a mistake on the command line itself leaves nothing that is parsed.
    return "--output=json" in words or any(
        pair == ("--output", "json") for pair in itertools.pairwise(words)
    )


def _summarise(words: list[str], code: int, complaint: str) -> None:
    """The summary that ends ``--output json`` also where nothing else came out."""
    from orchestrator.events import Summary
    from orchestrator.show import make_renderer

    command = next((word for word in words if not word.startswith("-")), "mxfleet")
    with suppress(MxfleetError):  # nobody reads it, or it finds no room
        make_renderer("json", sys.stdout, sys.stderr)(
            Summary(command=command, exit_code=code, message=complaint)
        )


def _complain(text: str) -> None:
    line = " ".join(text.split())
    try:
        print(f"mxfleet: {line}".encode("utf-8", "replace").decode("utf-8"), file=sys.stderr)
        sys.stderr.flush()
    except OSError:  # a full disk, or nobody reads: the exit code stays what it is
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
