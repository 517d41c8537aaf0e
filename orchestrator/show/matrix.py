"""The matrix operators × hosts as text, and the hosts that are not like the others of their model.

Where the hosts fit side by side each has a column. Otherwise an operator's line says what most of
them have in common, the median and how far one usually is from it, and names the extremes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from orchestrator.events import MatrixLine, Outlier
from orchestrator.show.hostset import host_set
from orchestrator.show.numbers import UNKNOWN, counted, duration, percent
from orchestrator.show.table import Paint, no_paint
from orchestrator.show.text import display_width, fold, pad, safe, truncate

_MARK = "*"
_GAP = "  "
_NARROWEST = 12  # cells that a folded column keeps
_LONGEST = 200  # characters of a name
_NAMED = 3  # operators that a host's line names, the others are counted
_MOST_HOSTS = 20  # with a line of their own among the outliers
_TIMERS = {"cold_gpu": "GPU time", "cpu": "CPU time"}


def matrix_lines(
    matrix: Sequence[MatrixLine], outliers: Sequence[Outlier], width: int, paint: Paint = no_paint
) -> list[str]:
    """The lines for ``matrix`` and ``outliers``, at most ``width`` (≥ 80) cells wide.

    None for a model of which nothing was timed or no two hosts can be compared.
    """
    odd = {(one.op, one.case, one.target) for one in outliers}
    shown: list[str] = []
    for model, lines in _by_model(matrix).items():
        alone = all(len(line.seconds.keys() | line.statuses) < 2 for line in lines)
        if alone or not any(line.seconds for line in lines):
            continue
        block = _Block(lines, odd, width, paint)
        title = _plain(f"{_title(lines)} on {model or 'unknown devices'}, operators × hosts")
        shown += [*([""] if shown else []), *fold(title, width), *block.lines()]
    return [*shown, *_outlier_lines(outliers, width)] if shown else []


def _by_model(matrix: Sequence[MatrixLine]) -> Mapping[str | None, list[MatrixLine]]:
    """Lines by model. Beside a single one, targets of unknown model are taken to be of it."""
    found: dict[str | None, list[MatrixLine]] = {}
    for line in matrix:
        found.setdefault(line.model, []).append(line)
    if len(found) != 2 or None not in found:
        return found
    unknown = {line.op: line.statuses for line in found.pop(None)}
    [(model, lines)] = found.items()
    ops = {line.op for line in lines}
    known = [
        replace(line, statuses={**line.statuses, **unknown.get(line.op, {})}) for line in lines
    ]
    only = [MatrixLine(op, model, statuses=some) for op, some in unknown.items() if op not in ops]
    return {model: [*known, *only]}


def _title(lines: Sequence[MatrixLine]) -> str:
    timers = {line.timer for line in lines} - {None}
    title = _TIMERS.get(timers.pop() or "", "time") if len(timers) == 1 else "time"
    many = any(line.cases > 1 for line in lines)
    return title + (" (geometric mean over an operator's cases)" if many else "")


@dataclass
class _Block:
    """The lines of one model."""

    matrix: Sequence[MatrixLine]
    odd: set[tuple[str, str | None, str]]
    width: int
    paint: Paint

    def lines(self) -> list[str]:
        labels = [_label(line) for line in self.matrix]
        return self._side_by_side(labels) or self._folded(labels)

    def _side_by_side(self, labels: Sequence[str]) -> list[str]:
        """A column a host; nothing when they do not fit."""
        hosts = sorted({name for m in self.matrix for name in (*m.seconds, *m.statuses)})
        if len(hosts) * (len(_GAP) + 1) > self.width:
            return []
        rows = [[self._cell(line, host) for host in hosts] for line in self.matrix]
        names = [truncate(_plain(host), _LONGEST) for host in hosts]
        widths = [max(map(display_width, column)) for column in zip(names, *rows, strict=True)]
        rest = self.width - sum(widths) - len(_GAP) * len(widths)
        longest = max(map(display_width, ["operator", *labels]))
        if rest < min(longest, self.width // 4):
            return []
        first = min(longest, rest)
        shown = _ruled(["operator", *names], [first, *widths])
        for line, label, row in zip(self.matrix, labels, rows, strict=True):
            pieces = fold(label, first)
            cells = [pad(cell, w) for cell, w in zip(row, widths, strict=True)]
            for number, host in enumerate(hosts):
                status = line.statuses.get(host)
                if host not in line.seconds and status is not None:
                    cells[number] = self.paint(status, cells[number])
                elif self._is_odd(line, host):
                    cells[number] = self.paint("FAILED", cells[number])
            shown.append(_GAP.join([pad(pieces[0], first), *cells]).rstrip())
            shown += pieces[1:]
            shown += self._statuses(line, partly=True)
        return shown

    def _cell(self, line: MatrixLine, host: str) -> str:
        if host in line.seconds:
            return duration(line.seconds[host]) + _MARK * self._is_odd(line, host)
        return truncate(_plain(line.statuses.get(host, "")), _LONGEST)

    def _folded(self, labels: Sequence[str]) -> list[str]:
        titles = ["operator", "hosts", "median", "spread", "fastest", "slowest"]
        rows = [
            [
                label,
                str(len(line.seconds)),
                duration(line.median),
                percent(line.spread),
                self._extreme(line, slowest=False),
                self._extreme(line, slowest=True),
            ]
            for line, label in zip(self.matrix, labels, strict=True)
        ]
        widths = [max(map(display_width, column)) for column in zip(titles, *rows, strict=True)]
        foldable = [titles.index(name) for name in ("operator", "fastest", "slowest")]
        while sum(widths) + len(_GAP) * (len(widths) - 1) > self.width:
            widest = max(foldable, key=lambda number: widths[number])
            if widths[widest] <= _NARROWEST:
                break
            widths[widest] -= 1
        shown = _ruled(titles, widths)
        for line, row in zip(self.matrix, rows, strict=True):
            folded = [fold(cell, w) for cell, w in zip(row, widths, strict=True)]
            for cells in zip_longest(*folded, fillvalue=""):
                padded = [pad(cell, w) for cell, w in zip(cells, widths, strict=True)]
                shown.append(_GAP.join(padded).rstrip())
            shown += [*self._statuses(line, partly=False), *self._statuses(line, partly=True)]
        return shown

    def _extreme(self, line: MatrixLine, *, slowest: bool) -> str:
        """How far the fastest or the slowest is from the median, and which it is."""
        if len(line.seconds) < 2 or not line.median:
            return UNKNOWN
        seconds = line.seconds
        host = (max if slowest else min)(sorted(seconds), key=lambda name: seconds[name])
        mark = _MARK * self._is_odd(line, host)
        off = signed(seconds[host] / line.median - 1)
        return f"{off}{mark} {truncate(_plain(host), _LONGEST)}"

    def _statuses(self, line: MatrixLine, partly: bool) -> list[str]:
        """The statuses of hosts that have no time here, or of those that lack some cases."""
        by_status: dict[str, list[str]] = {}
        for host, status in line.statuses.items():
            if (host in line.seconds) is partly:
                by_status.setdefault(status, []).append(host)
        shown = []
        for status, hosts in sorted(by_status.items()):
            where = " in some cases" if partly else ""
            text = f"{_plain(status)}{where} on {len(hosts)}: {host_set(hosts)}"
            shown += [f"    {piece}" for piece in fold(text, self.width - 4)]
        return shown

    def _is_odd(self, line: MatrixLine, host: str) -> bool:
        return (line.op, line.case, host) in self.odd


def _ruled(titles: Sequence[str], widths: Sequence[int]) -> list[str]:
    head = _GAP.join(pad(title, w) for title, w in zip(titles, widths, strict=True))
    return [head.rstrip(), _GAP.join("-" * w for w in widths)]


def _label(line: MatrixLine) -> str:
    words = [line.op, line.case or ""]
    if line.cases > 1:
        words.append(f"({line.cases} cases)")
    return truncate(_plain(" ".join(word for word in words if word)), _LONGEST)


def _plain(text: str) -> str:
    return safe(text).replace("\t", " ")


def signed(deviation: float) -> str:
    """A relative deviation as ``+12.3%``."""
    return f"{'+' if deviation >= 0 else ''}{percent(deviation)}"


def _outlier_lines(outliers: Sequence[Outlier], width: int) -> list[str]:
    """Which hosts are odd, the oddest first."""
    if not outliers:
        return []
    by_host: dict[tuple[str, str, bool], list[Outlier]] = {}
    for one in outliers:
        by_host.setdefault((one.target, one.model, one.deviation > 0), []).append(one)
    ranked = sorted(by_host.items(), key=lambda item: (-len(item[1]), -_furthest(item[1]), item[0]))
    texts = [_odd_host(target, slower, some) for (target, _, slower), some in ranked]
    more = texts[_MOST_HOSTS:]
    shown = [
        "",
        *fold(
            f"{_MARK} outliers: off the median of their model by more than 5%, three times the "
            "spread over its hosts, and the spread over their own processes",
            width,
        ),
    ]
    for text in texts[:_MOST_HOSTS]:
        first, *rest = fold(text, width - 4)
        shown += [f"  {first}", *(f"    {piece}" for piece in rest)]
    return [*shown, *([f"  and {counted(len(more), 'hosts')} more"] if more else [])]


def _furthest(outliers: Iterable[Outlier]) -> float:
    return max(abs(one.deviation) for one in outliers)


def _odd_host(target: str, slower: bool, outliers: Sequence[Outlier]) -> str:
    ranked = sorted(outliers, key=lambda one: -abs(one.deviation))
    said = []
    for one in ranked[:_NAMED]:
        name = " ".join(word for word in (one.op, one.case) if word)
        times = f"{duration(one.seconds)}, median of {one.targets} hosts {duration(one.median)}"
        flags = f", {' '.join(one.flags)}" if one.flags else ""
        said.append(f"{truncate(name, _LONGEST)} {signed(one.deviation)} ({times}{flags})")
    more = f" and {len(ranked) - _NAMED} more" if len(ranked) > _NAMED else ""
    times = f" in {len(ranked)}" if len(ranked) > 1 else ""
    name = truncate(target, _LONGEST)
    return _plain(f"{name} is {'slower' if slower else 'faster'}{times}: {', '.join(said)}{more}")
