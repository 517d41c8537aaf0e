"""What stands beneath the result table: what its numbers, flags and libraries are, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from orchestrator.events import Row
from orchestrator.show.numbers import UNKNOWN, duration
from orchestrator.show.text import fold, safe, truncate

_NAMED = 3  # operators that a line names, the others are counted
UNSTEADY = 0.05  # spread over the processes that hides what `--update` looks for
_LONGEST = 300  # characters of a reason or a name

_STATISTICS = {
    "cold_gpu": "GPU time: median of cold runs",
    "cpu": "CPU time: median of warm runs",
}

# A letter for the table, and what it means.
FLAGS = {
    "LAUNCH_BOUND": ("L", "batch time measures launching, not the kernel"),
    "ABOVE_ROOFLINE": ("A", "above 105% of a peak: what is declared, or the peak, is wrong"),
    "CACHE_RESIDENT": ("R", "its data fits into the L2 cache: a batch runs from there"),
    "THROTTLED": ("T", "the device held its clock down for heat or supply"),
    "CONTENDED": ("C", "other processes were on the device"),
    "UNLOCKED": ("U", "no lock kept others from the device meanwhile"),
}


def legend(rows: Sequence[Row], width: int) -> list[str]:
    """The lines beneath the table of ``rows``, at most ``width`` cells wide."""
    texts = [
        *_statistic(rows),
        *_unsteady(rows),
        *_flags(rows),
        *_verified(rows),
        *_devices(rows),
        *_libraries(rows),
    ]
    lines = []
    for text in texts:
        first, *rest = fold(text, width - 2)
        lines += [first, *(f"  {piece}" for piece in rest)]
    return lines


def timers(rows: Sequence[Row]) -> set[str]:
    """The timers of those rows that show a time."""
    return {row.timer for row in rows if row.timer is not None and _timed(row)}


def usual_repeats(rows: Sequence[Row]) -> int:
    """How many processes most of the repeated rows had; 1 when none was repeated."""
    counts = Counter(row.repeats for row in rows if _timed(row) and (row.repeats or 1) > 1)
    return max(counts, key=lambda repeats: counts[repeats] or 0, default=1) or 1


def _timed(row: Row) -> bool:
    return duration(row.seconds) != UNKNOWN


def _statistic(rows: Sequence[Row]) -> list[str]:
    """Which statistics the table shows; nothing where it shows no time."""
    shown = timers(rows)
    said = ", ".join(text for timer, text in _STATISTICS.items() if timer in shown)
    if not said:
        return []
    usual = usual_repeats(rows)
    spread = "noise: relative standard deviation"
    if usual > 1:
        said += f", over {usual} processes"
        spread = "spread: (largest - smallest) / median of the processes"
        if any(_timed(row) and (row.repeats or 1) == 1 for row in rows):
            spread += ", ~ relative standard deviation within the only one"
    return [f"{said} (established scripts: mean); {spread}; the CSV's time columns are means"]


def _unsteady(rows: Sequence[Row]) -> list[str]:
    """Which times are no basis for anything: a better one of 5 % replaces a row of the table."""

    def say(row: Row) -> list[str]:
        spread = row.repeat_spread
        if spread is None or spread <= UNSTEADY or not _timed(row):
            return []
        return ["unsteady: its processes differ by more than 5%; was the machine busy?"]

    return _grouped(rows, say)


def _flags(rows: Sequence[Row]) -> list[str]:
    present = {flag for row in rows for flag in row.flags}
    return [f"{letter} {name}: {text}" for name, (letter, text) in FLAGS.items() if name in present]


def _verified(rows: Sequence[Row]) -> list[str]:
    """Where verification was milder than the rules, or not ours."""

    def say(row: Row) -> list[str]:
        said = [f"the runner passes what the check refused ({why})" for why in row.overruled]
        for limit in row.thresholds:
            what = f"{limit.get('check') or 'verification'} threshold {limit.get('threshold')}"
            reason = limit.get("reason") or "no reason given"
            said.append(f"{what} is outside the rules ({reason})")
        return said + ["verified by a check of the runner's own"] * row.own_check

    return _grouped(rows, say)


def _devices(rows: Sequence[Row]) -> list[str]:
    return _grouped(rows, lambda row: [row.device_mismatch] if row.device_mismatch else [])


def _libraries(rows: Sequence[Row]) -> list[str]:
    def say(row: Row) -> list[str]:
        if not row.library:
            return []
        known = [str(row.library[key]) for key in ("name", "version") if row.library.get(key)]
        sha256 = row.library.get("sha256")
        return [f"library {' '.join([*known, *([str(sha256)[:12]] if sha256 else [])])}"]

    lines = _grouped(rows, say)
    if len(lines) == 1 and all(say(row) for row in rows if _timed(row)):
        # All that was measured is from one library: the operators need no naming.
        return [lines[0].rpartition(": ")[0]]
    return lines


def _grouped(rows: Sequence[Row], texts: Callable[[Row], Sequence[str]]) -> list[str]:
    """Each text once, with the operators that it is about."""
    about: dict[str, dict[str, None]] = {}
    for row in rows:
        for text in texts(row):
            about.setdefault(truncate(safe(text), _LONGEST), {})[row.op] = None
    return [f"{text}: {_some(list(ops))}" for text, ops in about.items()]


def _some(ops: Sequence[str]) -> str:
    more = len(ops) - _NAMED
    shown = ", ".join(truncate(safe(op), _LONGEST) for op in ops[:_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown
