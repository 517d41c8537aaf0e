"""Who hears a night: its log all of it, whoever asked for it what he asked for.

A night that is told in brief says nothing until its end, and then each thing once: what changed
and what is wrong first of all, of warnings those that say more than that.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from orchestrator.errors import ExitCode, InterruptedRun, MxfleetError
from orchestrator.events import (
    Event,
    NightChange,
    Note,
    Row,
    RunStarted,
    Sink,
    Summary,
    TargetFailed,
)
from orchestrator.execute.folder import NotKeptError
from orchestrator.show.hostset import host_set
from orchestrator.show.numbers import counted
from orchestrator.show.plain import PlainRenderer
from orchestrator.workflows.nightly_folder import Mark, NightFolder

COMMAND = "nightly run"
_LOG_WIDTH = 120
_NAMED = 3  # operators in a sentence


class Heard:
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
        self._lost: set[tuple[str, str, str]] = set()
        self._later: list[Note | TargetFailed] = []  # in brief: what may be said at the end
        self._odd: dict[str, list[Row]] = {}  # by what their device is instead

    def __call__(self, event: Event) -> None:
        """Pass an event on; raises ``InterruptedRun`` once when the sink's reader goes away."""
        if isinstance(event, Summary):
            self.summary = event
            if event.command != "push":
                return
            event = Note(f"push: {event.message}", level="info")
        if isinstance(event, RunStarted):
            self._mark(event.run)
        if isinstance(event, Row) and event.device_mismatch is not None:
            self._odd.setdefault(event.device_mismatch, []).append(event)
        self._keep(event)
        if isinstance(event, TargetFailed):
            # Push and the run after it come to the same.
            what = (event.target, event.status, event.message)
            if what in self._lost:
                return
            self._lost.add(what)
        if not self._brief:
            self._sink(event)
        elif isinstance(event, TargetFailed) or (isinstance(event, Note) and event.level != "info"):
            self._later.append(event)

    def odd_devices(self) -> tuple[str, ...]:
        """What was measured on another device than expected, each such device in one sentence."""
        return tuple(_on_odd_device(text, rows) for text, rows in self._odd.items())

    def tell(
        self, changes: Sequence[NightChange], left_out: Mapping[str, str], warned: Sequence[str]
    ) -> None:
        """Say what changed; in brief also what else there is to say, but what was ``warned`` of."""
        if self._brief:
            told = {*self._odd}
            if any(change.op in left_out for change in changes):
                told |= {f"left out: {reason}" for reason in left_out.values()}
            lost = {change.target for change in changes if change.op is None and change.message}
            self._say(
                event
                for event in self._later
                # Of a lost target the reason is told below; that it was tried again is no news.
                if event.message not in told and (event.target not in lost or _is_error(event))
            )
            for text in self.odd_devices():
                if text not in warned:
                    self._sink(Note(text, level="warning"))
        for change in changes:
            self._keep(change)
            self._sink(change)

    def end(self, summary: Summary) -> None:
        """The last event, to the log and on."""
        self._say(self._later)
        self._keep(summary)
        self._sink(summary)

    def died(self, error: BaseException) -> None:
        """Say in the log why the night ended early; whoever asked for it sees the error itself."""
        with suppress(InterruptedRun):
            self._say(self._later)
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

    def _say(self, events: Iterable[Note | TargetFailed]) -> None:
        """Pass on what waited, the same of many targets once; then nothing waits any more."""
        groups: dict[tuple[str, str, str], list[Note | TargetFailed]] = {}
        for event in events:
            status = event.status if isinstance(event, TargetFailed) else event.level
            groups.setdefault((event.kind, status, event.message), []).append(event)
        self._later = []
        for first, *others in groups.values():
            where = host_set(event.target for event in (first, *others) if event.target)
            self._sink(replace(first, target=where) if others else first)

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


def _is_error(event: Note | TargetFailed) -> bool:
    return isinstance(event, Note) and event.level == "error"


def _on_odd_device(text: str, rows: Sequence[Row]) -> str:
    ops = sorted({row.op for row in rows})
    named = ", ".join(ops) if len(ops) <= _NAMED else counted(len(ops), "operators")
    return f"{text}: {named} on {host_set(row.target for row in rows)}"
