"""Renderers: sinks that show the events of a workflow. ``make_renderer`` chooses one."""

from __future__ import annotations

import os
from typing import Literal, TextIO

from orchestrator.events import Sink
from orchestrator.show.jsonlines import JsonRenderer
from orchestrator.show.plain import PlainRenderer

PIPED_WIDTH = 80


def make_renderer(output: Literal["text", "json"], stdout: TextIO, stderr: TextIO) -> Sink:
    """The sink for ``--output``; may be called from any thread.

    On a terminal, text is as wide as that and coloured, unless ``NO_COLOR`` is set or ``TERM``
    is ``dumb``. The sink raises ``InterruptedRun`` once when the reader of ``stdout`` goes away.
    """
    if output == "json":
        return JsonRenderer(stdout)
    terminal = stdout.isatty()
    plain_wanted = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return PlainRenderer(
        stdout,
        color=terminal and not plain_wanted,
        width=_terminal_width(stdout) if terminal else PIPED_WIDTH,
        errors=stderr,
    )


def _terminal_width(stream: TextIO) -> int:
    try:
        # A terminal that says 0 (a serial line, some CI) says nothing.
        return max(os.get_terminal_size(stream.fileno()).columns, PIPED_WIDTH)
    except (OSError, ValueError):
        return PIPED_WIDTH
