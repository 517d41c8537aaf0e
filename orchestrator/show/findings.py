"""Findings of ``mxfleet check``: lines for people, workflow commands for GitHub."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TextIO

from orchestrator.events import Event, Linted, Summary
from orchestrator.show.ending import summary_line
from orchestrator.show.stream import LineStream
from orchestrator.show.text import safe


class FindingLines:
    """``path:line:column: error[rule]: message; fix``; why, below the first of each rule.

    An empty line stands between errors, warnings and what was fixed.
    """

    def __init__(self, paint: Callable[[str, str], str]) -> None:
        self._paint = paint
        self._explained: set[str] = set()
        self._former: str | None = None

    def lines(self, event: Linted) -> list[str]:
        """The lines of one finding."""
        level = "fixed" if event.fixed else event.severity
        apart = [""] if self._former not in (None, level) else []
        self._former = level
        head = safe(f"{event.path}:{event.line}:{event.column}")
        told = f"{event.message}" if event.fixed else f"{event.message}; {event.fix}"
        lines = [*apart, f"{head}: {self._paint(level, level)}[{event.rule}]: {safe(told)}"]
        if event.rule not in self._explained and not event.fixed:
            self._explained.add(event.rule)
            lines.append(safe(f"    why: {event.why}"))
        return lines


class GithubRenderer:
    """A sink that writes findings as workflow commands, which GitHub shows at their lines."""

    def __init__(self, stream: TextIO) -> None:
        self._out = LineStream(stream)
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Write ``event``; what is no finding or summary is dropped."""
        with self._lock:
            if isinstance(event, Linted) and not event.fixed:
                self._out.write(workflow_command(event))
            elif isinstance(event, Summary):
                self._out.write(summary_line(event))


def workflow_command(event: Linted) -> str:
    """``::error file=...,line=...,col=...,title=rule::message; fix (why)``, escaped."""
    places = {"file": event.path, "line": event.line, "col": event.column, "title": event.rule}
    shown = ",".join(f"{key}={_property(str(value))}" for key, value in places.items())
    return f"::{event.severity} {shown}::{_data(f'{event.message}; {event.fix}. {event.why}')}"


def _data(text: str) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return safe(text)


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
