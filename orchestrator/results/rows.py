"""Records of one case on several hosts to one CSV row.

Every number is the median over the records, column by column; accuracy is that of the worst, flags
are those of all. On a CPU there is no GPU time and its cells stay empty.
"""

from __future__ import annotations

import math
import statistics
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from orchestrator.records import Record, Status, judged
from orchestrator.results.device_csv import (
    CASE_ID,
    ESTABLISHED,
    EXTRA,
    FLAGS,
    FLOP_RATE,
    GPU_MEDIAN,
    REPEAT_SPREAD,
    REPEATS,
    Row,
)

# Summaries with a column of their own among the established ones.
_PLACED = frozenset({"Acc_Pass", "Cos_Dist", "Op", "dtype", "Shape"})
# Names that a summary cannot have in the CSV: a column of that name is there, and means something.
_TAKEN = frozenset(name.casefold() for name in (*ESTABLISHED, *EXTRA))
# What moves a terminal's cursor, or hides, or turns text around.
_UNSHOWN = frozenset({"Cc", "Cf", "Zl", "Zp"})

_Number = float | int | None


def place(record: Record) -> str:
    """The target or host that a record came from, for messages."""
    return record.target or record.host or "local"


def labels(record: Record) -> tuple[str, str, str]:
    """The cells ``Op``, ``dtype`` and ``Shape`` of a record."""
    op, dtype, shape = (_text(record.summaries.get(name)) for name in ("Op", "dtype", "Shape"))
    return op, dtype, shape


def row_of(records: Sequence[Record]) -> Row:
    """One row from PASSED records of one case on one device model.

    Raises ``ValueError`` for no records, or one that did not pass or has no device: such a row
    must not exist.
    """
    if not records or any(judged(record).status is not Status.PASSED for record in records):
        raise ValueError("a row needs records, all of them PASSED")
    ordered = sorted(records, key=lambda record: (place(record), record.record_id))
    first = ordered[0]
    devices = [record.device for record in ordered if record.device is not None]
    if len(devices) != len(ordered):
        raise ValueError("a row needs a device")

    def median(value: Callable[[Record], _Number]) -> str:
        return number_cell(_median(value(record) for record in ordered))

    def timer(name: str, field: str) -> str:
        return median(lambda record: getattr(getattr(record.timers, name), field, None))

    # An engine without GPU timers took its samples with the CPU's.
    sampled = "cpu" if all(record.timers.cold_gpu is None for record in ordered) else "cold_gpu"
    cells = (
        _text(first.op),
        str(min(device.index for device in devices)),
        _text(devices[0].name),
        "Yes",
        _worst_distance(ordered),
        *labels(first),
        timer(sampled, "samples"),
        timer("cpu", "mean"),
        timer("cpu", "noise"),
        timer("cold_gpu", "mean"),
        timer("cold_gpu", "noise"),
        median(lambda record: record.rates.elements_per_second),
        median(lambda record: record.rates.bytes_per_second),
        median(lambda record: record.rates.bandwidth_utilisation),
        timer("batch_gpu", "samples"),
        timer("batch_gpu", "mean"),
    )
    extra = {
        GPU_MEDIAN: timer("cold_gpu", "median"),
        REPEATS: median(lambda record: record.repeats),
        REPEAT_SPREAD: median(lambda record: record.repeat_spread),
        FLOP_RATE: median(_flop_rate),
        FLAGS: _text(" ".join(dict.fromkeys(flag for r in ordered for flag in r.flags))),
        CASE_ID: _text(first.case_id),
    }
    for name, value in first.summaries.items():
        column = _column(name)
        if column and column.casefold() not in _TAKEN:
            extra.setdefault(column, _text(value))
    return Row(cells, extra)


def _flop_rate(record: Record) -> float | None:
    """Declared FLOPs over the headline time."""
    headline = record.headline
    if headline is None or record.flops is None:
        return None
    time = headline[1].median or headline[1].mean
    return record.flops / time if time else None


def refused_summaries(record: Record) -> list[str]:
    """The summaries of ``record`` that get no column, because another one has their name."""
    names = [name for name in record.summaries if name not in _PLACED]
    return [name for name in names if _column(name).casefold() in _TAKEN]


def _column(name: str) -> str:
    """A summary's name as a column's: the header of a CSV is read without outer blanks."""
    return _text(" ".join(name.split()))


def number_cell(value: _Number) -> str:
    """A number as the established files write it; empty when it is unknown or not finite."""
    return "" if value is None or not math.isfinite(value) else repr(value)


def _median(values: Iterable[_Number]) -> _Number:
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return None
    middle = statistics.median(known)
    return round(middle) if all(isinstance(value, int) for value in known) else middle


def _worst_distance(records: Sequence[Record]) -> str:
    metrics = [record.verification.metrics for record in records if record.verification]
    known = [metric.get("one_minus_cosine") for metric in metrics]
    # Rounding lets a cosine exceed 1: a distance is as bad as it is far from zero.
    worst = max((value for value in known if value is not None), key=abs, default=None)
    return "" if worst is None else f"{worst:.2e}"


def _text(value: Any) -> str:
    # A lone surrogate has no UTF-8, and in a file it would pass for a byte that was not UTF-8;
    # a NUL makes the csv module of Python 3.10 give up the line.
    text = "" if value is None else str(value)
    shown = text if text.isprintable() else "".join(map(_shown, text))
    return shown.encode("utf-8", "replace").decode("utf-8")


def _shown(character: str) -> str:
    """``character``, or its visible escape; lines and tabs are a CSV's own affair."""
    if character in "\n\t" or unicodedata.category(character) not in _UNSHOWN:
        return character
    return character.encode("unicode_escape").decode("ascii")
