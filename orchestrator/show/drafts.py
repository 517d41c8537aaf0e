"""What ``mxfleet gen op`` wrote, would write and left open."""

from __future__ import annotations

from orchestrator.events import Drafted, LeftOpen
from orchestrator.show.table import Paint
from orchestrator.show.text import safe

_ACTIONS = {"would_create": "would create", "would_change": "would change"}
# The statuses in whose colours lines of a diff are.
_PAINTED = {"+": "OK", "-": "FAILED"}


def drafted_lines(event: Drafted, paint: Paint) -> list[str]:
    """A line for a file, behind it what would become of it."""
    lines = [safe(f"{_ACTIONS.get(event.action, event.action)} {event.path}")]
    for line in (event.diff or "").splitlines():
        status = _PAINTED.get(line[:1])
        lines.append(paint(status, safe(line)) if status is not None else safe(line))
    return lines


def open_line(event: LeftOpen) -> str:
    """``TODO rms_norm: …``, with the place where it was looked for."""
    place = f" ({event.place})" if event.place else ""
    word = "TODO" if event.sort == "todo" else event.sort
    return safe(f"{word} {event.op}: {event.what}{place}")
