"""The result table: one line a case and target, within the width that there is.

When it is too wide, shape, operator, host and dtype, in this order, go on in further lines. Status,
accuracy and numbers always stay in one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from orchestrator.events import Row
from orchestrator.show.numbers import UNKNOWN, duration, percent
from orchestrator.show.text import display_width, fold, pad, safe, truncate

# The columns that may fold, in the order in which they give way, and the cells they keep. The
# sum, with the other columns at their widest, is within 80.
_FOLDING = (("shape",), ("operator", "host"), ("dtype",))
_KEEP = {"shape": 6, "operator": 10, "host": 7, "dtype": 6}
_PREFER = {"shape": 11, "operator": 14, "host": 10, "dtype": 8}
# More is no label: somebody's megabyte must not bury the table.
_LONGEST_CELL = 400

_STATISTICS = {
    "cold_gpu": "GPU time: median of cold runs",
    "cpu": "CPU time: median of warm runs",
}

Paint = Callable[[str, str], str]
"""Takes a status and text, returns the text coloured for it."""


def no_paint(status: str, text: str) -> str:
    """Leaves the text as it is."""
    return text


@dataclass
class _Column:
    title: str
    cells: list[str]
    width: int

    @classmethod
    def of(cls, title: str, cells: Sequence[str]) -> _Column:
        texts = [truncate(safe(cell).replace("\t", " "), _LONGEST_CELL) for cell in cells]
        return cls(title, texts, max(display_width(text) for text in [title, *texts]))


def result_table(rows: Sequence[Row], width: int, paint: Paint = no_paint) -> list[str]:
    """The lines of the table of ``rows``, by operator and host, at most ``width`` (≥ 80) cells.

    What its times are, and flags and messages of rows, follow beneath it.
    """
    if not rows:
        return []
    ordered = sorted(rows, key=lambda row: (row.op, row.target))
    columns = _columns(ordered)
    gap = _fit(columns, width)
    lines = [gap.join(pad(column.title, column.width) for column in columns).rstrip()]
    lines.append(gap.join("-" * column.width for column in columns))
    for number, row in enumerate(ordered):
        folded = [fold(column.cells[number], column.width) for column in columns]
        for cells in zip_longest(*folded, fillvalue=""):
            padded = [pad(cell, column.width) for cell, column in zip(cells, columns, strict=True)]
            painted = [
                paint(row.status, cell) if column.title == "status" else cell
                for cell, column in zip(padded, columns, strict=True)
            ]
            lines.append(gap.join(painted).rstrip())
    return [*lines, *_legend(ordered, width), *_remarks(ordered, width)]


def _columns(rows: Sequence[Row]) -> list[_Column]:
    timers = _timers(rows)
    mixed = len(timers) > 1
    title = "time" if len(timers) != 1 else "CPU time" if timers == {"cpu"} else "GPU time"

    def time(row: Row) -> str:
        return duration(row.seconds) + (" cpu" if mixed and row.timer == "cpu" else "")

    return [
        _Column.of("operator", [row.op for row in rows]),
        _Column.of("host", [row.target for row in rows]),
        _Column.of("status", [row.status for row in rows]),
        _Column.of("Acc_Pass", [row.accuracy or UNKNOWN for row in rows]),
        _Column.of("dtype", [(row.dtype or UNKNOWN).removeprefix("torch.") for row in rows]),
        _Column.of("shape", _shapes(rows)),
        _Column.of(title, [time(row) for row in rows]),
        _Column.of("noise", [percent(row.noise) for row in rows]),
        _Column.of("BWUtil", [percent(row.bandwidth_utilisation) for row in rows]),
    ]


def _timers(rows: Sequence[Row]) -> set[str]:
    timed = (row for row in rows if duration(row.seconds) != UNKNOWN)
    return {row.timer for row in timed if row.timer is not None}


def _shapes(rows: Sequence[Row]) -> list[str]:
    """What tells the cases of an operator apart: the shape, else the parameters that differ."""
    alike = Counter((row.op, row.target, row.dtype, row.shape) for row in rows)
    shapes = []
    for row in rows:
        twin = alike[row.op, row.target, row.dtype, row.shape] > 1
        words = [row.shape, row.case if twin or not row.shape else None]
        shapes.append(" ".join(word for word in words if word) or UNKNOWN)
    return shapes


def _legend(rows: Sequence[Row], width: int) -> list[str]:
    """Which statistic the table shows; nothing where it shows no time."""
    timers = _timers(rows)
    said = ", ".join(text for timer, text in _STATISTICS.items() if timer in timers)
    text = (
        f"{said} (established scripts: mean); noise: relative standard deviation; "
        "established time columns of the CSV: means"
    )
    return fold(text, width) if said else []


def _fit(columns: Sequence[_Column], width: int) -> str:
    """Narrow ``columns`` until they fit in ``width``; returns what stands between them."""
    by_title = {column.title: column for column in columns}
    over = sum(column.width for column in columns) + 2 * (len(columns) - 1) - width
    gap = "  "
    if over > 0:
        gap = " "
        over -= len(columns) - 1
    for floors in (_PREFER, _KEEP):
        for titles in _FOLDING:
            while over > 0:
                spare = {title: by_title[title].width - floors[title] for title in titles}
                widest = max(titles, key=lambda title: by_title[title].width * (spare[title] > 0))
                if spare[widest] <= 0:
                    break
                by_title[widest].width -= 1
                over -= 1
    return gap


def _remarks(rows: Sequence[Row], width: int) -> list[str]:
    lines: list[str] = []
    for row in rows:
        remark = ", ".join(row.flags)
        if row.message:
            remark += ("; " if remark else "") + row.message
        if remark:
            case = f", {row.case}" if row.case else ""
            text = truncate(safe(f"{row.op} on {row.target}{case}: {remark}"), 10 * width)
            first, *rest = fold(text, width - 2)
            lines += [first, *(f"  {piece}" for piece in rest)]
    return lines
