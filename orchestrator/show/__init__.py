"""Renderers: sinks that show the events of a workflow. ``make_renderer`` chooses one."""

from __future__ import annotations

import os
from typing import Literal, TextIO

from orchestrator.events import Sink
from orchestrator.show.jsonlines import JsonRenderer
from orchestrator.show.plain import PIPED_WIDTH, PlainRenderer


def make_renderer(
    output: Literal["text", "json"], stdout: TextIO, stderr: TextIO, *, live: bool = False
) -> Sink:
    """The sink for ``--output``; may be called from any thread.

    On a terminal, text is as wide as that and coloured, unless ``NO_COLOR`` is set or ``TERM``
    is ``dumb``. With ``live`` a terminal that can move its cursor shows where a run stands instead
    of the lines of its jobs. The sink raises ``InterruptedRun`` once when the reader of ``stdout``
    goes away.
    """
    if output == "json":
        return JsonRenderer(stdout)
    terminal = stdout.isatty()
    able = os.environ.get("TERM", "") not in ("", "dumb")
    color = terminal and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
    width = _terminal_width(stdout) if terminal else PIPED_WIDTH
    plain = PlainRenderer(stdout, color=color, width=width, errors=stderr)
    if not (live and terminal and able):
        return plain
    from orchestrator.show.live import LiveRenderer

    return LiveRenderer(stdout, plain, color=color)


def _terminal_width(stream: TextIO) -> int:
    try:
        # A terminal that says 0 (a serial line, some CI) says nothing.
        return max(os.get_terminal_size(stream.fileno()).columns, PIPED_WIDTH)
    except (OSError, ValueError):
        return PIPED_WIDTH
