"""The list of runs as a table."""

from __future__ import annotations

import time
from collections.abc import Sequence

from orchestrator.events import RunLine
from orchestrator.show.ending import in_order
from orchestrator.show.numbers import counted, elapsed
from orchestrator.show.table import Paint, no_paint
from orchestrator.show.text import display_width, pad, safe, truncate

_NARROWEST = 12  # cells that the jobs' column keeps
_WHAT = "jobs of"
_TITLES = ("run", "command", "started", "state", "exit", "took", _WHAT, "rows")
_FIRST_TO_GO = ("started", "took", "command")  # the id tells the start, and it sorts by it


def runs_table(lines: Sequence[RunLine], width: int | None, paint: Paint = no_paint) -> list[str]:
    """The lines of the table of ``lines``, at most ``width`` (≥ 80) cells; None: uncut."""
    if not lines:
        return []
    rows = [dict(zip(_TITLES, _cells(line), strict=True)) for line in lines]
    widths = {
        title: max(display_width(cell) for cell in (title, *(row[title] for row in rows)))
        for title in _TITLES
    }
    if width is not None:
        _fit(widths, width)
    rules = {title: "-" * cells for title, cells in widths.items()}
    shown = [_row({title: title for title in _TITLES}, widths, width), _row(rules, widths, width)]
    for line, row in zip(lines, rows, strict=True):
        text = _row(row, widths, width)
        bad = line.state != "ended" or bool(line.exit_code)
        shown.append(paint("FAILED", text) if bad else text)
        if line.message:
            message = safe(f"  {line.message}")
            shown.append(message if width is None else truncate(message, width))
    return shown


def _fit(widths: dict[str, int], width: int) -> None:
    """Narrow what was run, and take columns out, until the table is ``width`` cells wide."""

    def over() -> int:
        return sum(widths.values()) + 2 * (len(widths) - 1) - width

    least = min(widths[_WHAT], _NARROWEST)
    for title in _FIRST_TO_GO:
        if over() > widths[_WHAT] - least:
            del widths[title]
    widths[_WHAT] = max(least, widths[_WHAT] - max(0, over()))


def _row(cells: dict[str, str], widths: dict[str, int], width: int | None) -> str:
    cut = [pad(truncate(cells[title], most), most) for title, most in widths.items()]
    text = "  ".join(cut).rstrip()
    return text if width is None else truncate(text, width)


def _cells(line: RunLine) -> list[str]:
    what = ", ".join(line.ops) if len(line.ops) < 3 else counted(len(line.ops), "operators")
    where = (
        ", ".join(line.targets) if len(line.targets) < 2 else counted(len(line.targets), "targets")
    )
    started = "" if line.started is None else _clock(line.started)
    cells = [
        line.run,
        line.command or "",
        started,
        line.state,
        "" if line.exit_code is None else str(line.exit_code),
        "" if line.seconds is None else elapsed(line.seconds),
        f"{what} on {where}" if what else "",
        ", ".join(f"{count} {name}" for name, count in in_order(line.counts)),
    ]
    return [safe(cell) for cell in cells]


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
