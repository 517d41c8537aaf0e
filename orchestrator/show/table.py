"""The result table: one line a case and target, within the width that there is.

When it is too wide, shape, operator, host, Acc_Pass, what stands beside numbers, and dtype go on in
further lines. Status, accuracy and numbers themselves always stay in one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from orchestrator.events import Row
from orchestrator.show.legend import FLAGS, legend, timers, usual_repeats
from orchestrator.show.numbers import UNKNOWN, duration, percent, rate
from orchestrator.show.remarks import remarks
from orchestrator.show.text import display_width, fold, pad, safe, truncate

# How columns give way, and the cells they keep, step by step. What is kept in the end, with the
# other columns at their widest, is within 80.
_STEPS: tuple[dict[str, int], ...] = (
    {"shape": 11},
    {"operator": 14, "host": 10},
    {"accuracy": 4},
    {"time": 0, "spread": 0, "flops": 0},
    {"dtype": 8},
    {"metric": 9},
    {"shape": 6},
    {"operator": 10, "host": 7},
    {"dtype": 6},
    {"operator": 8, "host": 5},
    {"shape": 5, "dtype": 5, "flags": 5},
    {"shape": 4},
)
# What verification went by, where nothing was timed that a column could be about.
_METRICS = {"one_minus_cosine": "1-cosine", "worst_row_error": "row error"}
# More is no label: somebody's megabyte must not bury the table.
_LONGEST_CELL = 400

Paint = Callable[[str, str], str]
"""Takes a status and text, returns the text coloured for it."""


def no_paint(status: str, text: str) -> str:
    """Leaves the text as it is."""
    return text


@dataclass
class _Column:
    key: str
    title: str
    cells: list[str]
    width: int
    least: int

    @classmethod
    def of(cls, key: str, title: str, cells: Sequence[str], whole: Sequence[str] = ()) -> _Column:
        """A column as wide as its cells; ``whole`` is what of them stays in one line."""
        texts = [truncate(safe(cell).replace("\t", " "), _LONGEST_CELL) for cell in cells]
        width = max(display_width(text) for text in [title, *texts])
        return cls(key, title, texts, width, max(map(display_width, whole), default=0))


def result_table(
    rows: Sequence[Row], width: int, paint: Paint = no_paint, *, unlisted: Sequence[Row] = ()
) -> list[str]:
    """The lines of the table of ``rows``, by operator and host, at most ``width`` (≥ 80) cells.

    What its numbers, flags and libraries are, and messages of rows, follow beneath it; those of
    ``unlisted`` rows, too, which have no line.
    """
    if not rows:
        return remarks(_ordered(unlisted), width)
    ordered = _ordered(rows)
    columns = _columns(ordered)
    gap = _fit(columns, width)
    lines = [
        gap.join(pad(title, column.width) for title, column in zip(titles, columns, strict=True))
        for titles in zip_longest(
            *(fold(column.title, column.width) for column in columns), fillvalue=""
        )
    ]
    lines = [*(line.rstrip() for line in lines), gap.join("-" * c.width for c in columns)]
    for number, row in enumerate(ordered):
        folded = [fold(column.cells[number], column.width) for column in columns]
        for cells in zip_longest(*folded, fillvalue=""):
            padded = [pad(cell, column.width) for cell, column in zip(cells, columns, strict=True)]
            painted = [
                paint(row.status, cell) if column.key == "status" else cell
                for cell, column in zip(padded, columns, strict=True)
            ]
            lines.append(gap.join(painted).rstrip())
    said = remarks(_ordered([*rows, *unlisted]), width)
    return [*lines, *legend(ordered, width), *said]


def _ordered(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.op, row.target))


def _columns(rows: Sequence[Row]) -> list[_Column]:
    columns = [
        _Column.of("operator", "operator", [row.op for row in rows]),
        _Column.of("host", "host", [row.target for row in rows]),
        _Column.of("status", "status", [row.status for row in rows]),
        _Column.of("accuracy", "Acc_Pass", [row.accuracy or UNKNOWN for row in rows]),
        _Column.of(
            "dtype", "dtype", [(row.dtype or UNKNOWN).removeprefix("torch.") for row in rows]
        ),
        _Column.of("shape", "shape", _shapes(rows)),
    ]
    if any(row.seconds is not None for row in rows):
        columns += [
            _time(rows),
            _spread(rows),
            _Column.of("bandwidth", "BWUtil", [percent(_bandwidth(row)) for row in rows]),
        ]
    elif any(row.metric is not None for row in rows):
        columns.append(_metric(rows))
    if any(row.flops_per_second is not None for row in rows):
        columns.append(_flops(rows))
    letters = ["".join(FLAGS[flag][0] for flag in FLAGS if flag in row.flags) for row in rows]
    if any(letters):
        columns.append(_Column.of("flags", "flags", letters))
    return columns


def _metric(rows: Sequence[Row]) -> _Column:
    """What verification went by, and the limit of that where it is known."""
    kinds = {row.metric for row in rows if row.metric is not None}
    alone = len(kinds) == 1
    title = _metric_name(next(iter(kinds))) if alone else "difference"
    cells = []
    for row in rows:
        words = [] if alone or row.metric is None else [_metric_name(row.metric)]
        words.append(UNKNOWN if row.distance is None else f"{row.distance:.3g}")
        if row.distance is not None and row.distance_limit is not None:
            sign = ">" if abs(row.distance) > row.distance_limit else "≤"
            words += [sign, f"{row.distance_limit:.3g}"]
        cells.append(" ".join(words))
    return _Column.of("metric", title, cells)


def _metric_name(metric: str) -> str:
    return _METRICS.get(metric, metric)


def _time(rows: Sequence[Row]) -> _Column:
    known = timers(rows)
    title = "time" if len(known) != 1 else "CPU time" if known == {"cpu"} else "GPU time"
    times = [duration(row.seconds) for row in rows]
    marks = [" cpu" if len(known) > 1 and row.timer == "cpu" else "" for row in rows]
    cells = [time + mark for time, mark in zip(times, marks, strict=True)]
    return _Column.of("time", title, cells, [*times, "time"])


def _spread(rows: Sequence[Row]) -> _Column:
    """How sure a time is: the spread over its processes, else the noise within the only one."""
    usual = usual_repeats(rows)
    if usual == 1:
        return _Column.of("noise", "noise", [percent(row.noise) for row in rows])
    cells, numbers = [], []
    for row in rows:
        repeated = (row.repeats or 1) > 1
        number = percent(row.repeat_spread if repeated else row.noise)
        if number != UNKNOWN:
            number = number if repeated else f"~{number}"
        numbers.append(number)
        cells.append(f"{row.repeats}× {number}" if repeated and row.repeats != usual else number)
    return _Column.of("spread", "spread", cells, [*numbers, "spread"])


def _bandwidth(row: Row) -> float | None:
    """The share of the memory bandwidth: as the engine says, else of the device's known peak."""
    if row.bandwidth_utilisation is not None:
        return row.bandwidth_utilisation
    return (row.roofline or {}).get("bandwidth_fraction")


def _flops(rows: Sequence[Row]) -> _Column:
    """FLOP/s, with their share of the peak where that is what bounds the operator."""
    cells, numbers = [], []
    for row in rows:
        numbers.append(rate(row.flops_per_second))
        roofline = row.roofline or {}
        share = percent(
            roofline.get("flops_fraction") if roofline.get("bound") == "compute" else None
        )
        cells.append(numbers[-1] if share == UNKNOWN else f"{numbers[-1]} {share}")
    return _Column.of("flops", "FLOP/s", cells, [*numbers, "FLOP/s"])


def _shapes(rows: Sequence[Row]) -> list[str]:
    """What tells the cases of an operator apart: the shape, else the parameters that differ."""
    alike = Counter((row.op, row.target, row.dtype, row.shape) for row in rows)
    shapes = []
    for row in rows:
        twin = alike[row.op, row.target, row.dtype, row.shape] > 1
        words = [row.shape, row.case if twin or not row.shape else None]
        shapes.append(" ".join(word for word in words if word) or UNKNOWN)
    return shapes


def _fit(columns: Sequence[_Column], width: int) -> str:
    """Narrow ``columns`` until they fit in ``width``; returns what stands between them."""
    by_key = {column.key: column for column in columns}
    over = sum(column.width for column in columns) + 2 * (len(columns) - 1) - width
    gap = "  "
    if over > 0:
        gap = " "
        over -= len(columns) - 1
    for floors in _STEPS:
        there = [(by_key[key], floor) for key, floor in floors.items() if key in by_key]
        while over > 0:
            spare = [column for column, floor in there if column.width > max(floor, column.least)]
            if not spare:
                break
            max(spare, key=lambda column: column.width).width -= 1
            over -= 1
    return gap
