"""Operators × hosts, and which host is the odd one out: hosts of one device model side by side.

Every host of a model should be as fast as the others. For each case the times of a model's hosts
are held against their median, timer by timer. An operator of many cases is one line of the matrix,
the geometric mean over them: there a host that lacks some is held against the medians of those it
has. A host is an outlier when it deviates by more than 5 %, by more than three times what the hosts
usually deviate, and by more than its own processes differ. Two hosts cannot say which is odd.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.events import MatrixLine, Outlier, Row
from orchestrator.results.model_name import model_name

LEAST = 0.05  # deviation that matters
SIGMAS = 3.0
FEWEST = 3  # hosts that it takes to say which is the odd one out
FEW_CASES = 3  # of an operator that get a line each
_MAD_TO_SIGMA = 1.4826  # for a normal distribution
_WORST = ("FAILED", "ERROR", "TIMEOUT", "UNAVAILABLE", "NOT_RUN", "UNVERIFIED", "PASSED")


@dataclass(frozen=True)
class _Point:
    """What a target measured on a line, in seconds; ``spread`` over its processes, relative."""

    seconds: float
    spread: float
    flags: tuple[str, ...]


_Points = dict[str, _Point]  # by target
_Statuses = dict[str, list[str]]  # by target, of rows without a time
_Group = tuple[str, str | None, str | None]  # operator, model, timer


@dataclass
class _Case:
    """A case on the targets of a model; ``name`` is what people call it."""

    name: str | None
    rows: dict[str, list[Row]] = field(default_factory=dict)

    def points(self) -> _Points:
        return {target: _point(rows) for target, rows in self.rows.items()}


def matrix(rows: Sequence[Row]) -> tuple[list[MatrixLine], list[Outlier]]:
    """The lines of the matrix, operators in the order of ``rows``, and the outliers on them.

    Rows that passed or had nothing to be verified by count as timed, if they have a time. Of the
    others of a target the worst status stands on the line, alone or beside what was timed.
    """
    model_of = _models(rows)
    timed: dict[_Group, dict[str, _Case]] = {}
    untimed: dict[tuple[str, str | None], dict[str | None, _Statuses]] = {}
    for row in rows:
        model = model_of(row)
        if _is_timed(row):
            cases = timed.setdefault((row.op, model, row.timer), {})
            case = cases.setdefault(_key(row) or "", _Case(row.case or row.shape))
            case.rows.setdefault(row.target, []).append(row)
        else:
            by_case = untimed.setdefault((row.op, model), {})
            by_case.setdefault(_key(row), {}).setdefault(row.target, []).append(row.status)
    groups: list[_Group] = [*timed]
    groups += [(op, model, None) for op, model in untimed if not _has(timed, op, model)]
    at = {op: number for number, op in enumerate(dict.fromkeys(row.op for row in rows))}
    lines: list[MatrixLine] = []
    outliers: list[Outlier] = []
    for group in sorted(groups, key=lambda group: at[group[0]]):
        found_lines, found = _lines_of(group, timed.get(group, {}), untimed.get(group[:2], {}))
        lines += found_lines
        outliers += found
    return lines, outliers


def _key(row: Row) -> str | None:
    """What tells the case of ``row`` from its operator's others; None where that is unknown."""
    words = [word for word in (row.case, row.dtype, row.shape) if word]
    return row.case_id or " ".join(words) or None


def _is_timed(row: Row) -> bool:
    seconds = row.seconds
    sound = row.status in ("PASSED", "UNVERIFIED")
    return sound and seconds is not None and math.isfinite(seconds) and seconds > 0


def _models(rows: Iterable[Row]) -> Callable[[Row], str | None]:
    """What tells the model of a row: by its device, else by the one of most rows of its target."""
    by_device: dict[str, str] = {}
    devices: dict[str, Counter[str]] = {}
    for row in rows:
        if row.device is None:
            continue
        # Only what was timed says what kind of device it is.
        if row.timer is not None or row.device not in by_device:
            kind = "cpu" if row.timer == "cpu" else "cuda"
            by_device[row.device] = model_name(row.device, kind)
        devices.setdefault(row.target, Counter())[row.device] += 1
    usual = {target: counts.most_common(1)[0][0] for target, counts in devices.items()}
    return lambda row: by_device.get(row.device or usual.get(row.target, ""))


def _has(timed: Iterable[_Group], op: str, model: str | None) -> bool:
    return any(group[:2] == (op, model) for group in timed)


def _point(rows: Sequence[Row]) -> _Point:
    """One case on one target; measured more than once there it is the median."""
    return _Point(
        statistics.median(row.seconds or 0.0 for row in rows),
        max(_spread(row) for row in rows),
        tuple(dict.fromkeys(flag for row in rows for flag in row.flags)),
    )


def _spread(row: Row) -> float:
    spread = row.repeat_spread
    return spread if spread is not None and math.isfinite(spread) else 0.0


def _lines_of(
    group: _Group, cases: Mapping[str, _Case], untimed: Mapping[str | None, _Statuses]
) -> tuple[list[MatrixLine], list[Outlier]]:
    """The lines of an operator on a model: one a case, or one for all of many cases."""
    if not cases:
        return [MatrixLine(*group, statuses=_worst_by_target(untimed.values()))], []
    if len(cases) == 1:
        [only] = cases.values()
        line, outliers = _line(group, only.points(), None, 1, _worst_by_target(untimed.values()))
        return [line], outliers
    # What failed in a case that nobody timed, or before any case, is told on every line.
    elsewhere = [some for key, some in untimed.items() if key not in cases]
    each = [
        _line(
            group,
            case.points(),
            case.name,
            1,
            _worst_by_target([*elsewhere, untimed.get(key, {})]),
        )
        for key, case in cases.items()
    ]
    outliers = [outlier for _, found in each for outlier in found]
    if len(cases) <= FEW_CASES:
        return [line for line, _ in each], outliers
    points = _together([case.points() for case in cases.values()])
    together, found = _line(group, points, None, len(cases), _worst_by_target(untimed.values()))
    odd = {outlier.target for outlier in found}
    return [together], [*found, *(one for one in outliers if one.target not in odd)]


def _together(cases: Sequence[_Points]) -> _Points:
    """The geometric mean over cases by target, as if each had them all.

    How a target compares to the medians of the cases it has is taken to hold for the others.
    """
    medians = [_median(points) for points in cases]
    level = math.fsum(math.log(median) for median in medians) / len(medians)
    by_target: dict[str, list[tuple[float, _Point]]] = {}
    for points, median in zip(cases, medians, strict=True):
        for target, point in points.items():
            ratio = math.log(point.seconds / median)
            by_target.setdefault(target, []).append((ratio, point))
    return {
        target: _Point(
            math.exp(level + math.fsum(ratio for ratio, _ in there) / len(there)),
            statistics.median(point.spread for _, point in there),
            tuple(dict.fromkeys(flag for _, point in there for flag in point.flags)),
        )
        for target, there in by_target.items()
    }


def _line(
    group: _Group, points: _Points, case: str | None, cases: int, statuses: dict[str, str]
) -> tuple[MatrixLine, list[Outlier]]:
    op, model, timer = group
    median = _median(points)
    off = {target: point.seconds / median - 1 for target, point in points.items()}
    sigma = _MAD_TO_SIGMA * statistics.median(abs(value) for value in off.values())
    line = MatrixLine(
        op,
        model,
        timer,
        case,
        cases,
        median,
        sigma if len(points) > 1 else None,
        {target: point.seconds for target, point in points.items()},
        statuses,
    )
    outliers: list[Outlier] = []
    if model is None or len(points) < FEWEST:
        return line, outliers
    for target, point in points.items():
        limit = max(LEAST, SIGMAS * sigma, point.spread)
        if abs(off[target]) > limit:
            outliers.append(
                Outlier(
                    op,
                    case,
                    target,
                    model,
                    point.seconds,
                    median,
                    off[target],
                    limit,
                    len(points),
                    point.flags,
                )
            )
    return line, outliers


def _median(points: _Points) -> float:
    return statistics.median(point.seconds for point in points.values())


def _worst_by_target(some: Iterable[_Statuses]) -> dict[str, str]:
    found: _Statuses = {}
    for statuses in some:
        for target, names in statuses.items():
            found.setdefault(target, []).extend(names)
    return {target: min(names, key=_rank) for target, names in found.items()}


def _rank(status: str) -> int:
    return _WORST.index(status) if status in _WORST else len(_WORST)
