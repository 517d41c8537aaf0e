"""Where a run stands: what runs now, what ended how, what went wrong the same way on many targets.

An event costs a few look-ups, whatever the size of the fleet; what is expensive (folding names,
laying out lines) is left to whoever looks. Not safe for threads by itself.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.events import (
    Event,
    JobEnded,
    JobStarted,
    Note,
    OutputLine,
    Pushed,
    RunStarted,
    TargetFailed,
)

MOST_GROUPS = 100  # of different failures; those that were seen least recently go first
_LONGEST = 300  # characters of a message that are kept
# What says why a job goes wrong: later lines only say that it did.
_TELLING = re.compile(r"\[(?:FATAL|WORST)\]|\b[A-Za-z]*(?:Error|Exception)\b|^\s*error\b", re.A)
_CLOSING = "[SUMMARY]"
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def shortened(event: Event) -> Event:
    """``event``, or one that says as much of it as is kept: a line may have megabytes."""
    if isinstance(event, OutputLine) and len(event.text) > _LONGEST:
        return replace(event, text=event.text[:_LONGEST])
    return event


@dataclass
class Group:
    """The same thing said of many targets. Texts that differ in numbers only are the same."""

    status: str
    text: str  # of the last one
    words: str = ""  # the last line that the job of the last one printed
    alike: bool = True  # whether all texts were exactly this one
    words_alike: bool = True
    targets: dict[str, None] = field(default_factory=dict)
    ops: dict[str, None] = field(default_factory=dict)
    count: int = 0


class Groups:
    """Groups by status and text, the one that grew last at the end."""

    def __init__(self) -> None:
        self._groups: OrderedDict[tuple[str, str, str], Group] = OrderedDict()
        self.forgotten = 0  # things that were said in groups that are no longer here

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def add(
        self, status: str, text: str, target: str | None, op: str | None = None, words: str = ""
    ) -> None:
        """Count one more that says ``text``."""
        text, words = _cut(text, target), _cut(words, target)
        key = (status, _NUMBER.sub("#", text), _NUMBER.sub("#", words))
        group = self._groups.setdefault(key, Group(status, text, words))
        group.alike = group.alike and group.text == text
        group.words_alike = group.words_alike and group.words == words
        group.text, group.words = text, words
        group.count += 1
        if target is not None:
            group.targets[target] = None
        if op is not None:
            group.ops[op] = None
        self._groups.move_to_end(key)
        if len(self._groups) > MOST_GROUPS:
            _, oldest = self._groups.popitem(last=False)
            self.forgotten += oldest.count


def _cut(text: str, target: str | None) -> str:
    """``text`` in a line of bounded length, without the names that would make each one different"""
    text = " ".join(text[: 4 * _LONGEST].split())[:_LONGEST]
    for name in (target, target.partition(":")[0]) if target else ():
        if name and name in text:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "(target)", text)
    return text


@dataclass
class Running:
    """A job that runs, since when (seconds since the epoch), and a line that it printed.

    That is the last one which says what went wrong (``telling``), else the last one.
    """

    since: float
    attempt: int = 1
    words: str = ""
    telling: bool = False


@dataclass
class _Taken:
    jobs: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.jobs += 1
        self.seconds += seconds


class Progress:
    """What the events so far say; ``see`` takes one in."""

    def __init__(self) -> None:
        self.command = ""
        self.began: float | None = None  # seconds since the epoch
        self.ops: tuple[str, ...] = ()
        self.targets = 0  # that the run is for; 0 when not told
        self.total = 0  # jobs; 0 when not told
        self.done = 0
        self.counts: Counter[str] = Counter()  # of ended jobs, by status
        self.running: dict[str, dict[str, Running]] = {}  # by target and operator
        self.failures = Groups()
        self.lost = Groups()
        self.notes = Groups()  # warnings and errors
        self.pushed = 0
        self.latest = ""  # the last thing said that is no warning
        self._spread = "shard"
        self._taken: dict[str, _Taken] = {}
        self._taken_by_all = _Taken()
        self._handlers: dict[str, Callable[[Any], None]] = {
            RunStarted.kind: self._run_started,
            Pushed.kind: self._pushed,
            JobStarted.kind: self._job_started,
            OutputLine.kind: self._output,
            JobEnded.kind: self._job_ended,
            TargetFailed.kind: self._target_failed,
            Note.kind: self._note,
        }

    def concerns(self, event: Event) -> bool:
        """Whether ``event`` is one that says where the run stands."""
        return event.kind in self._handlers

    def see(self, event: Event) -> None:
        """Take in an event that concerns it."""
        if self.began is None:
            self.began = event.at
        self._handlers[event.kind](event)

    @property
    def lost_targets(self) -> int:
        """Targets that cannot take part."""
        return len({target for group in self.lost for target in group.targets})

    def seconds_left(self, now: float) -> float | None:
        """What is left to do, as the ended jobs went; None while nothing says.

        An operator is taken to last as long as it did elsewhere, one that never ended as long as
        the others, and as many jobs to run side by side as do now.
        """
        known = self._taken_by_all
        side_by_side = sum(map(len, self.running.values()))
        if not known.jobs or not self.total or not side_by_side:
            return None
        run_on = []  # seconds that the running ones still take
        for jobs in self.running.values():
            run_on += [max(0.0, self._usual(op) - (now - job.since)) for op, job in jobs.items()]
        waiting = self._waiting(side_by_side)
        return max(max(run_on), (sum(run_on) + waiting) / side_by_side)

    def _waiting(self, side_by_side: int) -> float:
        """Seconds of work that has not begun."""
        left = max(0, self.total - self.done - side_by_side)
        if self._spread != "replicate" or not self.ops:
            return left * self._usual(None)
        begun = Counter(op for jobs in self.running.values() for op in jobs)
        for op, taken in self._taken.items():
            begun[op] += taken.jobs
        takers = max(0, self.targets - self.lost_targets)
        work = {op: max(0, takers - begun[op]) for op in self.ops}
        seconds = sum(count * self._usual(op) for op, count in work.items())
        # Of a resumed run some are done that were not seen here.
        return seconds * min(1.0, left / max(1, sum(work.values())))

    def _usual(self, op: str | None) -> float:
        taken = self._taken.get(op or "") or self._taken_by_all
        return taken.seconds / taken.jobs

    def _run_started(self, event: RunStarted) -> None:
        self.command, self.ops, self.total = event.command, event.ops, event.jobs
        self.targets, self._spread = len(event.targets), event.spread

    def _pushed(self, event: Pushed) -> None:
        self.pushed += 1

    def _job_started(self, event: JobStarted) -> None:
        jobs = self.running.setdefault(event.target, {})
        jobs[event.op] = Running(event.at, event.attempt)

    def _output(self, event: OutputLine) -> None:
        job = self.running.get(event.target, {}).get(event.op)
        if job is None or not event.text or event.text.isspace():
            return
        telling = _TELLING.search(event.text) is not None
        if telling or not (job.telling or event.text.startswith(_CLOSING)):
            job.words, job.telling = event.text, telling

    def _job_ended(self, event: JobEnded) -> None:
        jobs = self.running.get(event.target, {})
        job = jobs.pop(event.op, None)
        if not jobs:
            self.running.pop(event.target, None)
        self.counts[event.status] += 1
        self.done = max(self.done, event.number, sum(self.counts.values()))
        self.total = max(self.total, event.total)
        self._taken.setdefault(event.op, _Taken()).add(event.seconds)
        self._taken_by_all.add(event.seconds)
        if event.status not in ("PASSED", "UNAVAILABLE", "UNVERIFIED"):
            words = job.words if job is not None else ""
            self.failures.add(event.status, event.message or "", event.target, event.op, words)

    def _target_failed(self, event: TargetFailed) -> None:
        self.running.pop(event.target, None)
        self.lost.add(event.status, event.message, event.target)

    def _note(self, event: Note) -> None:
        if event.level == "info":
            self.latest = event.message[:_LONGEST]
        else:
            self.notes.add(event.level, event.message, event.target)
