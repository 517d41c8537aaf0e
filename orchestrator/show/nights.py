"""What a night found different, the worst first, the same on many targets in one line."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby

from orchestrator.errors import ExitCode
from orchestrator.events import NightChange, NightlyState
from orchestrator.inventory.nodeset import fold as fold_names
from orchestrator.show.numbers import counted, duration
from orchestrator.show.table import Paint, no_paint
from orchestrator.show.text import fold, pad, safe

_WIDTH = len("repaired")
_NAMED = 3  # operators in one line
_MOST_STANDING = 20  # lines of what is wrong as it was
_STANDING = ("still", "failed")
_BAD = (*_STANDING, "broken", "slower")


def changes_lines(changes: Sequence[NightChange], width: int, paint: Paint = no_paint) -> list[str]:
    """The lines for ``changes``, at most ``width`` (≥ 80) cells wide."""
    groups: dict[tuple[object, ...], list[NightChange]] = {}
    for change in changes:
        alike = (
            # The same difference of many operators is one of what they share.
            (change.change, change.message)
            if change.change == "changed"
            else (
                *(change.change, change.op, change.case_id, change.status, change.former_status),
                change.since if change.change == "still" else None,
            )
        )
        groups.setdefault(alike, []).append(change)
    shown = []
    for kind, of_kind in groupby(groups.values(), lambda group: group[0].change):
        alike_groups = list(of_kind)
        most = _MOST_STANDING if kind in _STANDING else len(alike_groups)
        for group in alike_groups[:most]:
            shown += _lines(group, width, paint)
        if more := alike_groups[most:]:
            shown.append(f"{pad(kind, _WIDTH)}  and {len(more)} more, see the log's table")
    return shown


def _lines(group: Sequence[NightChange], width: int, paint: Paint) -> list[str]:
    kind = group[0].change
    first, *rest = fold(safe(_sentence(group)), width - _WIDTH - 2)
    status = "FAILED" if kind in _BAD else "PASSED" if kind in ("repaired", "faster") else ""
    word = pad(kind, _WIDTH)
    head = f"{paint(status, word) if status else word}  {first}"
    return [head, *(" " * (_WIDTH + 2) + line for line in rest)]


def state_lines(states: Sequence[NightlyState], width: int) -> list[str]:
    """The lines for the state of a working folder's nights."""
    shown: list[str] = []
    for state in states:
        told = [
            ("folder", state.folder),
            ("installed", (state.entry or "yes") if state.installed else "no"),
            ("next", _at(state.next_start) if state.installed else None),
            ("running", _running(state) if state.running is not None else None),
            ("last", _last(state)),
        ]
        for name, text in told:
            if text is not None:
                first, *rest = fold(safe(text), width - 11) or [""]
                shown += [f"{pad(name, 9)}  {first}", *(" " * 11 + line for line in rest)]
    return shown


def _sentence(group: Sequence[NightChange]) -> str:
    change = group[0]
    what = f"{change.op}{f' {change.case}' if change.case else ''} on " if change.op else ""
    where = ", ".join(fold_names(dict.fromkeys(one.target for one in group)))
    if change.change == "changed":
        ops = list(dict.fromkeys(one.op for one in group if one.op))
        named = ", ".join(ops) if len(ops) <= _NAMED else counted(len(ops), "operators")
        return f"{named} on {where}: {change.message}; times are not compared"
    said = f"{what}{where}"
    if change.change == "still":
        said = f"{change.status} {said}{f' since {change.since}' if change.since else ''}"
    elif change.seconds is not None:
        said += f": {_times(group)}"
    elif change.status and change.former_status:
        said += f": {change.status}, was {change.former_status}"
    elif change.status and change.status != "OK":
        said += f": {change.status}"
    flags = sorted({flag for one in group for flag in one.flags})
    said += f" ({', '.join(flags)})" if flags else ""
    reasons = list(dict.fromkeys(one.message for one in group if one.message))
    more = f" (and {counted(len(reasons) - 1, 'reasons')} more)" if len(reasons) > 1 else ""
    return f"{said}: {reasons[0]}{more}" if reasons else said


def _times(group: Sequence[NightChange]) -> str:
    one = group[0]
    timer = "CPU time" if one.timer == "cpu" else "GPU time"
    ratios = [
        each.seconds / each.former_seconds - 1
        for each in group
        if each.seconds is not None and each.former_seconds
    ]
    if len(group) == 1:
        times = f"{duration(one.former_seconds)} -> {duration(one.seconds)}"
        return f"{times} {timer} ({ratios[0]:+.0%}, limit {one.limit or 0:.0%})"
    return f"{timer} {min(ratios):+.0%} to {max(ratios):+.0%}"


def _running(state: NightlyState) -> str:
    who = state.running or {}
    if not who:
        return "yes"
    return f"since {who['since']} (process {who['pid']} on {who['host']})"


def _last(state: NightlyState) -> str:
    last = state.last
    if last is None:
        return "no night yet"
    code = last["exit_code"]
    how = "interrupted" if code is None else f"exit code {code}"
    if code == ExitCode.INTERRUPTED:
        how = f"interrupted, {how}"
    return "; ".join(str(part) for part in (how, last["message"], last["log"]) if part)


def _at(seconds: float | None) -> str:
    if seconds is None:
        return "as the entry's own schedule says"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
