"""The list of runs as a table."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.events import RunLine
from orchestrator.show.numbers import counted, elapsed
from orchestrator.show.table import Paint, no_paint
from orchestrator.show.text import display_width, pad, safe, truncate

_NARROWEST = 12  # cells that the jobs' column keeps
_TITLES = ("run", "state", "exit", "took", "jobs of", "rows")


def runs_table(lines: Sequence[RunLine], width: int, paint: Paint = no_paint) -> list[str]:
    """The lines of the table of ``lines``, at most ``width`` (≥ 80) cells wide."""
    if not lines:
        return []
    rows = [_cells(line) for line in lines]
    widths = [
        max(display_width(cell) for cell in column) for column in zip(_TITLES, *rows, strict=True)
    ]
    # What was run gives way to what came of it.
    what = _TITLES.index("jobs of")
    over = sum(widths) + 2 * (len(widths) - 1) - width
    widths[what] = max(_NARROWEST, widths[what] - max(0, over))
    shown = [_row(_TITLES, widths, width), _row(["-" * w for w in widths], widths, width)]
    for line, row in zip(lines, rows, strict=True):
        text = _row(row, widths, width)
        bad = line.state != "ended" or bool(line.exit_code)
        shown.append(paint("FAILED", text) if bad else text)
        if line.message:
            shown.append(truncate(safe(f"  {line.message}"), width))
    return shown


def _row(cells: Sequence[str], widths: Sequence[int], width: int) -> str:
    cut = [pad(truncate(cell, w), w) for cell, w in zip(cells, widths, strict=True)]
    return truncate("  ".join(cut).rstrip(), width)


def _cells(line: RunLine) -> list[str]:
    what = ", ".join(line.ops) if len(line.ops) < 3 else counted(len(line.ops), "operators")
    where = (
        ", ".join(line.targets) if len(line.targets) < 2 else counted(len(line.targets), "targets")
    )
    cells = [
        line.run,
        line.state,
        "" if line.exit_code is None else str(line.exit_code),
        "" if line.seconds is None else elapsed(line.seconds),
        f"{what} on {where}" if what else "",
        ", ".join(f"{count} {name}" for name, count in line.counts.items()),
    ]
    return [safe(cell) for cell in cells]
