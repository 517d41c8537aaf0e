"""The live view's picture: where a run stands, in the lines and cells that a terminal has.

Whatever the fleet's size, a line stands for an operator, or for what went wrong in the same way on
many targets, with their names folded. What finds no room is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.show.hostset import host_set
from orchestrator.show.numbers import counted
from orchestrator.show.progress import Group, Groups, Progress
from orchestrator.show.table import Paint, no_paint
from orchestrator.show.text import display_width, pad, safe, truncate

_LONGEST_OPERATOR = 32  # cells
_BAR = 24  # cells
_MANY = 10  # targets: so many are counted, too
_SEVERITY = {"error": "ERROR", "warning": "TIMEOUT"}  # the status in whose colour a note is


@dataclass(frozen=True)
class _Section:
    """A title, and lines that are made only as far as there is room for them."""

    title: str
    length: int
    lines: Callable[[int], list[str]]  # all, or as many as fit and one that counts the others


def frame(
    progress: Progress, now: float, columns: int, rows: int, paint: Paint = no_paint
) -> list[str]:
    """At most ``rows`` lines of at most ``columns`` cells; ``now`` in seconds since the epoch."""
    head = [_head(progress), _pace(progress, now, columns), _where(progress)]
    shown = [_clip(line, columns) for line in head if line][: max(rows, 0)]
    sections = _sections(progress, now, columns)
    for section, room in zip(sections, _rooms(sections, rows - len(shown)), strict=True):
        if room > 1:  # a title alone says nothing
            lines = [section.title, *section.lines(room - 1)]
            shown += [_painted(_clip(line, columns), paint) for line in lines]
    return shown


def _rooms(sections: Sequence[_Section], rows: int) -> list[int]:
    """Lines for each section with its title: in turn one more, as long as it has use for it."""
    rooms = [0] * len(sections)
    while rows > 0:
        wanting = [n for n, section in enumerate(sections) if rooms[n] < section.length + 1]
        if not wanting:
            break
        for number in wanting[:rows]:
            rooms[number] += 1
        rows -= len(wanting)
    return rooms


def _head(progress: Progress) -> str:
    ordered = sorted(progress.counts.items(), key=lambda item: (item[0] != "PASSED", item[0]))
    counts = [f"{count} {status}" for status, count in ordered]
    of = f" of {progress.total}" if progress.total else ""
    command = f"{progress.command}: " if progress.command else ""
    return f"{command}{', '.join([f'{progress.done}{of} jobs done', *counts])}"


def _pace(progress: Progress, now: float, columns: int) -> str:
    """The bar, the time it took and the time it may still take."""
    words = [clock(now - (progress.began if progress.began is not None else now))]
    left = progress.seconds_left(now)
    if left is not None and progress.done < progress.total:
        words.append(f"about {clock(left)} left")
    if not progress.total:
        return words[0]
    share = min(1.0, progress.done / progress.total)
    # Rounded down: neither the bar nor the number is full before the last job has ended.
    cells = max(0, min(_BAR, columns - 40))
    bar = f"[{'#' * int(share * cells):-<{cells}}] " if cells else ""
    return f"{bar}{int(share * 100)}%  {', '.join(words)}"


def _where(progress: Progress) -> str:
    at_work = len(progress.running)
    of = f" of {progress.targets}" if progress.targets else ""
    words = [f"{at_work}{of} targets at work"]
    lost = progress.lost_targets
    if lost:
        words.append(f"{lost} lost")
    if progress.pushed and not progress.done:
        words.append(f"{progress.pushed} pushed to")
    if not at_work and progress.latest:
        words.append(progress.latest)
    return ", ".join(words)


def _sections(progress: Progress, now: float, columns: int) -> list[_Section]:
    by_op: dict[str, list[tuple[str, float]]] = {}
    for target, jobs in progress.running.items():
        for op, job in jobs.items():
            by_op.setdefault(op, []).append((target, now - job.since))
    # The longest at work stand at the top: they are what a run waits for.
    ranked = sorted(by_op.items(), key=lambda item: (-max(s for _, s in item[1]), item[0]))

    def running(room: int) -> list[str]:
        if len(ranked) <= room:
            return _running(ranked, room)[1:]
        others = ranked[max(room - 1, 0) :]
        jobs = sum(len(there) for _, there in others)
        more = f"  and {counted(len(others), 'operators')} more on {counted(jobs, 'targets')}"
        return [*_running(ranked, room - 1)[1:], more]

    sections = [_Section(_running(ranked, 0)[0], len(ranked), running)] if ranked else []
    for title, groups in (
        ("went wrong", progress.failures),
        ("lost targets", progress.lost),
        ("notes", progress.notes),
    ):
        sections += [_group_section(title, groups, columns)] if len(groups) else []
    return sections


def _running(ranked: Sequence[tuple[str, Sequence[tuple[str, float]]]], most: int) -> list[str]:
    """The heads of the columns, then a line for each of the first ``most`` operators."""
    names = [truncate(_plain(op), _LONGEST_OPERATOR) for op, _ in ranked]
    widest = max(map(display_width, ("operator", *names)))
    times = [clock(max(seconds for _, seconds in there)) for _, there in ranked]
    longest = max(map(len, ("for", *times)))
    digits = max(map(len, ("on", *(str(len(there)) for _, there in ranked))))
    lines = [
        f"  {taken:>{longest}}  {pad(name, widest)}  {len(there):>{digits}}  "
        f"{host_set(target for target, _ in there)}"
        for name, taken, (_, there) in list(zip(names, times, ranked, strict=True))[: max(most, 0)]
    ]
    return [f"  {'for':>{longest}}  {pad('operator', widest)}  {'on':>{digits}}", *lines]


def _group_section(title: str, groups: Groups, columns: int) -> _Section:
    """The latest first."""
    latest = list(groups)[::-1]

    def lines(room: int) -> list[str]:
        shown: list[str] = []
        for number, group in enumerate(latest):
            pair = _group_lines(group, columns)
            left = len(latest) - number - 1
            space = room - len(shown) - (1 if left or groups.forgotten else 0)
            if space < 1:
                return [*shown, _others(left + 1, groups.forgotten)][:room]
            shown += pair[:space]  # without its last words, where there is no room for them
        return [*shown, _others(0, groups.forgotten)] if groups.forgotten else shown

    length = sum(2 if group.words else 1 for group in latest)
    return _Section(title, length + (1 if groups.forgotten else 0), lines)


def _others(groups: int, forgotten: int) -> str:
    kinds = [f"{groups} more"] if groups else []
    return f"  and {', '.join([*kinds, *([f'{forgotten} earlier ones'] if forgotten else [])])}"


def _group_lines(group: Group, columns: int) -> list[str]:
    """What was said and of which targets, each with a share of the line; then the last words."""
    names = host_set(group.targets)
    what = _ops(group)
    of = f"{len(group.targets)}: " if len(group.targets) >= _MANY else ""
    where = f" on {of}{names}" if names else ""
    lead = f"  {safe(group.status)}{' ' if what else ''}{what}"
    text = _plain(said(group))
    room = columns - display_width(lead) - 2
    if text and display_width(where) + display_width(text) > room:
        where = truncate(where, max(room // 2, room - display_width(text), 1))
    first = f"{lead}{where}{': ' if text else ''}{text}"
    if not group.words:
        return [first]
    return [first, f"    {'' if group.words_alike else 'e.g. '}| {_plain(group.words)}"]


def said(group: Group) -> str:
    """The text of a group, marked where others of it differ from this one in their numbers."""
    return group.text if group.alike else f"e.g. {group.text}"


def _ops(group: Group) -> str:
    if len(group.ops) > 1:
        return counted(len(group.ops), "operators")
    return "".join(truncate(_plain(op), _LONGEST_OPERATOR) for op in group.ops)


def clock(seconds: float) -> str:
    """A span as ``1:02``, ``1:00:07``; never less than nothing."""
    whole = int(max(0.0, min(seconds, 360_000_000.0)))
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _plain(text: str) -> str:
    return safe(text).replace("\t", " ")


def _clip(text: str, columns: int) -> str:
    text = _plain(text)
    return truncate(text, columns) if columns > 0 else ""


def _painted(line: str, paint: Paint) -> str:
    """``line`` with the status that it begins with in its colour."""
    word = line.split(" ", 3)[2] if line.startswith("  ") else ""
    if not word.isupper() and word not in _SEVERITY:
        return line
    return line.replace(word, paint(_SEVERITY.get(word, word), word), 1)
