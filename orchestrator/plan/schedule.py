"""Which job next: every target its own, or whoever is free takes what is left.

Replicated jobs belong to their targets. Shared out, each target of a model begins with its own
part, longest first, and then helps the others; what a lost target leaves is done by those that are
still there.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from orchestrator.plan.jobs import PlannedJob

Moved = Callable[[PlannedJob, str], PlannedJob]
"""Makes of a job the same one for another target, and keeps note of it."""

_WAIT = 0.5  # seconds between looks at whether all is over


class Schedule:
    """Hands out jobs to the lanes of targets, from any thread.

    ``groups`` names for each target the group within which jobs may move; without it none does.
    """

    def __init__(
        self,
        jobs: Iterable[PlannedJob],
        groups: Mapping[str, str] | None = None,
        moved: Moved | None = None,
    ) -> None:
        self._queues: dict[str, deque[PlannedJob]] = {}
        for job in jobs:
            self._queues.setdefault(job.target.name, deque()).append(job)
        self._groups = groups or {}
        self._moved = moved
        self._running: dict[str, set[str]] = {}  # by target: operators
        self._gone: set[str] = set()
        self._changed = threading.Condition()
        self._stopped = False

    @property
    def shared(self) -> bool:
        """Whether jobs may move between targets."""
        return self._moved is not None

    def take(self, target: str) -> PlannedJob | None:
        """The next job for a lane of ``target``; None when there is none and none will come."""
        with self._changed:
            while not self._stopped and target not in self._gone:
                job = self._next(target)
                if job is not None:
                    self._running.setdefault(target, set()).add(job.op)
                    return job
                if not self._may_come(target):
                    return None
                self._changed.wait(_WAIT)
            return None

    def _next(self, target: str) -> PlannedJob | None:
        own = self._queues.get(target)
        if own:
            return own.popleft()
        others = [
            queue for name, queue in self._queues.items() if queue and self._alike(name, target)
        ]
        if not others or self._moved is None:
            return None
        # From the end: the longest were put in front, and are about to be taken there.
        return self._moved(max(others, key=len).pop(), target)

    def _may_come(self, target: str) -> bool:
        return self._moved is not None and any(
            ops for name, ops in self._running.items() if ops and self._alike(name, target)
        )

    def _alike(self, name: str, target: str) -> bool:
        return name != target and self._groups.get(name, name) == self._groups.get(target, target)

    def done(self, job: PlannedJob) -> None:
        """A job that was taken is decided."""
        with self._changed:
            self._running.get(job.target.name, set()).discard(job.op)
            self._changed.notify_all()

    def give_back(self, job: PlannedJob) -> bool:
        """A job whose target was lost: whether somebody else may take it."""
        with self._changed:
            name = job.target.name
            self._running.get(name, set()).discard(job.op)
            alive = [
                other
                for other in self._groups
                if self._alike(other, name) and other not in self._gone
            ]
            if self._moved is not None and alive:
                self._queues.setdefault(name, deque()).append(job)
            self._changed.notify_all()
            return self._moved is not None and bool(alive)

    def lost(self, target: str) -> None:
        """A target takes no more jobs; where jobs may move, others take what it had left."""
        with self._changed:
            self._gone.add(target)
            self._changed.notify_all()

    def stop(self) -> None:
        """Hand out nothing more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


def share_out(
    ops: Sequence[str], targets: Sequence[str], seconds: Mapping[str, float]
) -> dict[str, list[str]]:
    """Each target's operators, longest first: the next goes to whoever has the least to do.

    ``seconds`` are durations of earlier runs; an operator without takes as long as the middle one.
    """
    known = sorted(value for op, value in seconds.items() if op in set(ops))
    usual = known[len(known) // 2] if known else 1.0
    parts: dict[str, list[str]] = {name: [] for name in targets}
    load = dict.fromkeys(targets, 0.0)
    for op in sorted(ops, key=lambda name: -seconds.get(name, usual)):
        least = min(targets, key=lambda name: load[name])
        parts[least].append(op)
        load[least] += seconds.get(op, usual)
    return parts
