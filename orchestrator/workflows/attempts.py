"""One job on one lane until it is settled: lock, attempt, and further attempts where they help.

A lost link is tried again, and only once the former attempt is proven dead. What failed its
verification, crashed or took too long has been answered; a job that hung is asked once more when
that was wished.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.errors import MxfleetError, NoTreeError, TransientError
from orchestrator.events import Note, Sink
from orchestrator.execute.folder import NotKeptError, RunFolder
from orchestrator.execute.job import Attempt, attach_job, fetch_job, run_job
from orchestrator.inventory.model import Target
from orchestrator.plan.jobs import PlannedJob, next_attempt
from orchestrator.plan.lanes import Lane
from orchestrator.records import Record
from orchestrator.transport.session import AgentSession
from orchestrator.workflows.activity import Activity
from orchestrator.workflows.collect import Collector
from orchestrator.workflows.fleet import Fleet
from orchestrator.workflows.locking import Locks
from orchestrator.workflows.policy import Policy, persistently
from orchestrator.workflows.prepare import Checkout

_BACK_SECONDS = 20.0  # an attached run looks for its lost jobs at least that long


@dataclass(frozen=True)
class Settled:
    """The last attempt, the records of those before it, and whether any of them was started."""

    attempt: Attempt
    former: tuple[Record, ...] = ()
    started: bool = False


class CoRunners:
    """Who works beside whom on a host, over the whole time of a job."""

    def __init__(self) -> None:
        self._at_work: dict[str, dict[str, set[str]]] = {}
        self._lock = threading.Lock()

    def begin(self, target: Target, lane: Lane, op: str) -> str:
        """A job begins; return its key for ``end``."""
        key, name = f"{target.name} {lane.name}", f"{target.name} {lane.name}: {op}"
        with self._lock:
            there = self._at_work.setdefault(target.host.name, {})
            others = [other for other in there if other != key]
            there[key] = {name}
            for other in others:
                names = {n for n in there[other] if n.startswith(f"{other}: ")}
                there[key] |= names
                there[other].add(name)
        return key

    def end(self, target: Target, key: str) -> tuple[str, ...]:
        """A job is over; return who was at work beside it."""
        with self._lock:
            seen = self._at_work.get(target.host.name, {}).pop(key, set())
        return tuple(sorted(name for name in seen if not name.startswith(f"{key}: ")))


class Attempts:
    """Settles jobs of one run."""

    def __init__(
        self,
        fleet: Fleet,
        folder: RunFolder,
        collector: Collector,
        locks: Locks,
        policy: Policy,
        sink: Activity,
        stopping: threading.Event,
    ) -> None:
        self._fleet = fleet
        self._folder = folder
        self._collector = collector
        self._locks = locks
        self._policy = policy
        self._sink: Sink = sink
        self._stopping = stopping
        self._beside = CoRunners()

    def connected(
        self,
        target: Target,
        limit: float = 0.0,
        before: Callable[[Target], None] = lambda _: None,
    ) -> AgentSession:
        """The target's agent; what keeps it away for now is tried again.

        ``limit`` as for ``persistently``; ``before`` each try, something may speak against it.
        """

        def session() -> AgentSession:
            before(target)
            return self._fleet.session(target)

        return persistently(session, target, self._stopping, self._sink, limit)

    def settle(
        self,
        target: Target,
        lane: Lane,
        job: PlannedJob,
        checkout: Checkout | None,
        *,
        begun: bool = False,
        deadline: float | None = None,
    ) -> Settled:
        """Run ``job`` on ``lane`` until it is settled.

        ``begun``: it was started before and may still run, or have ended. ``deadline``: when the
        run's time is over, on the monotonic clock.
        """
        job = on_lane(job, lane)
        former = self._collector.former(job) if begun else ()
        started = hung = False
        tries = 0
        while True:
            if not self._collector.begin(job):
                return Settled(Attempt(job, self._log(job)), former, started)
            attempt = self._one(target, lane, job, begun, deadline)
            started = started or attempt.started
            ended = (attempt.outcome or {}).get("ended")
            # One that was begun by another controller may have ended with it, or never arrived.
            redo = begun and (ended in ("stopped", "refused", "lost") or attempt.outcome is None)
            lost = not redo and (isinstance(attempt.error, TransientError) or ended == "lost")
            hangs = self._policy.retry_hung and ended in ("timeout", "silence") and not hung
            again = (lost and tries < target.retries) or redo or hangs
            # What cannot be kept here for now lies there still: run again it would be done twice.
            hopeless = isinstance(attempt.error, NoTreeError | NotKeptError)
            if hopeless or not again or self._stopping.is_set():
                return Settled(attempt, former, started)
            if not self._dead(target, job, attempt):
                return Settled(attempt, former, started)
            attempt = self._taken_in(target, attempt)
            hung = hung or hangs
            tries += lost
            begun = False
            former = self._collector.note(attempt, checkout, former)
            job = next_attempt(job)
            why = "its link was lost" if lost else "it hung" if hangs else "it was interrupted"
            self._sink(
                Note(
                    f"{job.op}: {why}, trying again (attempt {job.attempt})",
                    target=target.name,
                    level="warning",
                )
            )

    def _one(
        self, target: Target, lane: Lane, job: PlannedJob, begun: bool, deadline: float | None
    ) -> Attempt:
        try:
            session = self.connected(target)
            with self._locks.held(target, session, lane, job.job, deadline) as held:
                job = _within(job, deadline)
                self._folder.intend(target.name, job.op, job.job, job.attempt)
                key = self._beside.begin(target, lane, job.op)
                try:
                    attempt = (attach_job if begun else run_job)(
                        session, job, self._folder, self._sink, lambda: self._back(target)
                    )
                finally:
                    beside = self._beside.end(target, key)
                attempt.beside = beside
                attempt.unlocked = not held.locked
                outcome = attempt.outcome
                if outcome is not None:
                    left = outcome.get("unkillable") or []
                    held.settle(proven=not left, unkillable=left)
                return attempt
        except MxfleetError as error:
            return Attempt(job, self._log(job), error=error)

    def _back(self, target: Target) -> AgentSession:
        """Another session after a lost one: a detached run has all the time that its jobs have."""
        held = target.timeouts.detached if self._policy.detached else _BACK_SECONDS
        return self.connected(target, limit=held)

    def _dead(self, target: Target, job: PlannedJob, attempt: Attempt) -> bool:
        """Whether nothing of an attempt can run any more; it is ended if it has to be."""
        if attempt.outcome is not None:
            return not attempt.outcome.get("unkillable")
        try:
            # Once: whatever left no outcome has tried to connect as often as is wanted.
            session = self._fleet.session(target)
            answer: dict[str, Any] = session.call("stop", store=job.spec["store"], job=job.job)
        except MxfleetError as error:
            attempt.error = attempt.error or error
            return False
        return bool(answer.get("finished")) or answer.get("state") == "absent"

    def _taken_in(self, target: Target, attempt: Attempt) -> Attempt:
        """An attempt that nobody followed to its end, with what it left."""
        if attempt.outcome is not None:
            return attempt
        try:
            return fetch_job(self.connected(target), attempt.job, self._folder)
        except MxfleetError:
            return attempt

    def _log(self, job: PlannedJob) -> Path:
        return self._folder.log(job.target.name, job.op, job.attempt)


def on_lane(job: PlannedJob, lane: Lane) -> PlannedJob:
    """The job as it runs on a lane: it sees that lane's device only."""
    spec = job.spec
    words = [*spec["argv"], *lane.device]
    return replace(job, spec={**spec, "env": {**spec["env"], **lane.env}, "argv": words})


def _within(job: PlannedJob, deadline: float | None) -> PlannedJob:
    """The job with no more time than the run has left."""
    if deadline is None:
        return job
    left = max(1.0, deadline - time.monotonic())
    limit = job.spec.get("timeout")
    if limit and limit <= left:
        return job
    return replace(job, spec={**job.spec, "timeout": left, "run_limit": job.target.timeouts.run})
