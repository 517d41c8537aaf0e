"""``mxfleet nightly run``: push, all operators on all targets, and what changed since last night.

Everything that happens goes to the night's log, whole, also what kept the night from beginning.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TextIO

from orchestrator.errors import ExitCode, InterruptedRun, MxfleetError, combine
from orchestrator.events import (
    Event,
    NightChange,
    Note,
    RunStarted,
    Sink,
    Summary,
    TargetFailed,
)
from orchestrator.execute.folder import NotKeptError
from orchestrator.inventory.load import load
from orchestrator.inventory.select import select
from orchestrator.show.plain import PlainRenderer
from orchestrator.workflows.context import Context
from orchestrator.workflows.nightly_changes import compare
from orchestrator.workflows.nightly_folder import Mark, NightFolder
from orchestrator.workflows.push import push
from orchestrator.workflows.testall import testall

COMMAND = "nightly run"
_LOG_WIDTH = 120


def night(inventory: Path, sink: Sink, *, brief: bool = False) -> ExitCode:
    """Run one night for the working folder of ``inventory``.

    ``brief`` keeps from ``sink`` what only the log needs: output of jobs, the table of all rows.
    Raises ``UsageError`` when another night is at work there, which is not disturbed.
    """
    inventory = inventory.absolute()
    if not inventory.is_file():
        load(inventory)  # says what is wrong; there is no folder for a log
    folder = NightFolder(inventory.parent)
    with folder.held(), closing(folder.new_log()) as stream:
        heard = _Heard(folder, stream, sink, brief)
        try:
            code = _night(inventory, folder, heard)
        except BaseException as error:
            heard.died(error)
            raise
        folder.prune()
    return code


def _night(inventory: Path, folder: NightFolder, heard: _Heard) -> ExitCode:
    began = time.monotonic()
    loaded = load(inventory)
    context = Context(loaded, tuple(select(loaded, None)), heard)
    code = combine([push(context), testall(context)])
    summary = heard.summary
    changes, message = _finish(folder, heard, code)
    for change in changes:
        heard(change)
    heard.end(
        Summary(
            command=COMMAND,
            exit_code=int(code),
            counts=summary.counts,
            known=summary.known,
            targets=summary.targets,
            run=summary.run,
            folder=summary.folder,
            files=(*summary.files, str(heard.log)),
            seconds=time.monotonic() - began,
            message="; ".join(part for part in (summary.message, message) if part) or None,
        )
    )
    return code


def _finish(
    folder: NightFolder, heard: _Heard, code: ExitCode
) -> tuple[list[NightChange], str | None]:
    """Hold the night against the earlier ones, and mark its run with how it ended."""
    summary = heard.summary
    if summary.run is None:
        return [], None
    mark = Mark(summary.run, heard.log.name, int(code), summary.targets)
    earlier = folder.earlier(summary.run)
    last = next(earlier, None)
    changes = compare(folder.night(mark), chain([last], earlier)) if last is not None else []
    message = _message(changes, last.run if last is not None else None)
    try:
        replace(mark, message=message).write(folder.runs)
    except NotKeptError as error:
        heard(Note(str(error), level="error"))
    return changes, message


def _message(changes: Sequence[NightChange], since: str | None) -> str:
    if since is None:
        return "the first night, there is none to compare with"
    counts = Counter(change.change for change in changes)
    told = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return f"since {since}: {told or 'no change'}"


class _Heard:
    """The sink of a night: all to the log, and on to whoever asked for the night.

    The summaries of its parts are kept: there is one at the end of a command, and it is ours.
    """

    def __init__(self, folder: NightFolder, stream: TextIO, sink: Sink, brief: bool) -> None:
        self.log = Path(stream.name)
        self.summary = Summary(COMMAND, 0)
        self._folder = folder
        self._sink = sink
        self._brief = brief
        self._render = PlainRenderer(stream, color=False, width=_LOG_WIDTH, errors=stream)

    def __call__(self, event: Event) -> None:
        """Pass an event on; raises ``InterruptedRun`` once when the sink's reader goes away."""
        if isinstance(event, Summary):
            self.summary = event
            if event.command != "push":
                return
            event = Note(f"push: {event.message}", level="info")
        if isinstance(event, RunStarted):
            self._mark(event.run)
        self._keep(event)
        if not self._brief or _is_brief(event):
            self._sink(event)

    def end(self, summary: Summary) -> None:
        """The last event, to the log and on."""
        self._keep(summary)
        self._sink(summary)

    def died(self, error: BaseException) -> None:
        """Say in the log why the night ended early; whoever asked for it sees the error itself."""
        code, message = ExitCode.INTERNAL, str(error)
        if isinstance(error, MxfleetError):
            code = error.code
        elif isinstance(error, KeyboardInterrupt):
            code, message = ExitCode.INTERRUPTED, "interrupted"
        else:
            message = "".join(traceback.format_exception(error))
            for line in message.splitlines():
                self._keep(Note(line, level="error"))
            message = f"a fault of mxfleet itself, {type(error).__name__}: {error}"
        self._keep(Summary(COMMAND, int(code), message=message))

    def _keep(self, event: Event) -> None:
        try:
            self._render(event)
        except InterruptedRun:  # raised once: from then on it is silent
            # Results are worth more than the story of how they came about.
            text = f"{self.log}: the night's log takes no more, is the disk full? The night goes on"
            self._sink(Note(text, level="error"))

    def _mark(self, run: str) -> None:
        try:
            Mark(run, self.log.name).write(self._folder.runs)
        except NotKeptError as error:
            self(Note(str(error), level="error"))


def _is_brief(event: Event) -> bool:
    if isinstance(event, Note):
        return event.level != "info"
    return isinstance(event, TargetFailed | NightChange)
