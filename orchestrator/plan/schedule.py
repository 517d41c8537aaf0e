"""Which job next: every target its own, or whoever is free takes what is left.

Replicated jobs belong to their targets. Shared out, each target of a model begins with its own
part, longest first, and then helps the others; what a lost target leaves is done by those that are
still there.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from orchestrator.plan.jobs import PlannedJob

Moved = Callable[[PlannedJob, str], PlannedJob]
"""Makes of a job the same one for another target, and keeps note of it."""

_WAIT = 0.5  # seconds between looks at whether all is over


class Schedule:
    """Hands out jobs to the lanes of targets, from any thread.

    ``groups`` names for each target the group within which jobs may move; without it none does.
    ``begun`` are jobs, by name, that their targets have begun before: they come first there, and
    are nobody else's while their target is there.
    """

    def __init__(
        self,
        jobs: Iterable[PlannedJob],
        groups: Mapping[str, str] | None = None,
        moved: Moved | None = None,
        begun: Collection[str] = (),
    ) -> None:
        self._begun = frozenset(begun)
        self._queues: dict[str, deque[PlannedJob]] = {}
        for job in sorted(jobs, key=lambda job: job.job not in self._begun):
            self._queues.setdefault(job.target.name, deque()).append(job)
        self._groups = groups or {}
        self._moved = moved
        self._running: dict[str, set[str]] = {}  # by target: operators
        self._coming: set[str] = set()
        self._gone: set[str] = set()
        self._died_under: set[tuple[str, str]] = set()  # group and operator
        self._changed = threading.Condition()
        self._stopped = False

    @property
    def shared(self) -> bool:
        """Whether jobs may move between targets."""
        return self._moved is not None

    def coming(self, target: str) -> None:
        """A target is being made ready: it takes jobs next, or is lost."""
        with self._changed:
            self._coming.add(target)

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
        if self._moved is None:
            return None
        names = [name for name in self._queues if self._alike(name, target) and self._free(name)]
        if not names:
            return None
        # From the end: the longest were put in front, and are about to be taken there.
        return self._moved(self._queues[max(names, key=self._free)].pop(), target)

    def _free(self, name: str) -> int:
        """How many jobs of a target others may take."""
        queue = self._queues[name]
        if name in self._gone:
            return len(queue)
        return sum(job.job not in self._begun for job in queue)

    def _may_come(self, target: str) -> bool:
        if self._moved is None:
            return False
        running = (name for name, ops in self._running.items() if ops)
        # What others have begun is theirs, but comes here when they are lost.
        waiting = (name for name in self._coming if self._queues.get(name))
        return any(self._alike(name, target) for name in (*running, *waiting))

    def _alike(self, name: str, target: str) -> bool:
        return name != target and self._groups.get(name, name) == self._groups.get(target, target)

    def done(self, job: PlannedJob) -> None:
        """A job that was taken is decided."""
        with self._changed:
            self._running.get(job.target.name, set()).discard(job.op)
            self._changed.notify_all()

    def give_back(self, job: PlannedJob, started: bool) -> bool:
        """A job whose target was lost, which takes no more: whether somebody else may do the job.

        One that was ``started`` on two targets that were then lost may be what they died of.
        """
        with self._changed:
            name = job.target.name
            self._running.get(name, set()).discard(job.op)
            self._gone.add(name)
            alive = [
                other
                for other in self._groups
                if self._alike(other, name) and other not in self._gone
            ]
            once_more = (self._groups.get(name, name), job.op) not in self._died_under
            if started:
                self._died_under.add((self._groups.get(name, name), job.op))
            may = self._moved is not None and bool(alive) and once_more
            if may:
                self._queues.setdefault(name, deque()).append(job)
            self._changed.notify_all()
            return may

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
