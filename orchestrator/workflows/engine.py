"""The engine of ``run`` and ``testall``: all jobs of a plan on their targets' lanes, in parallel.

Hosts work side by side, the targets of a host in turn, the lanes of a target side by side. What
goes wrong with a target ends its jobs and nobody else's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict

from orchestrator.errors import (
    DeadDeviceError,
    InterruptedRun,
    MxfleetError,
    NoTreeError,
    RunTimeoutError,
    TargetError,
    TransientError,
)
from orchestrator.events import Note
from orchestrator.execute.folder import RunFolder
from orchestrator.execute.job import Attempt
from orchestrator.inventory.model import Target
from orchestrator.plan.jobs import PlannedJob
from orchestrator.plan.lanes import Lane, lanes_of
from orchestrator.plan.schedule import Schedule
from orchestrator.push.tree import Tree
from orchestrator.transport.session import AgentSession
from orchestrator.workflows.activity import Activity
from orchestrator.workflows.attempts import Attempts
from orchestrator.workflows.collect import Collector
from orchestrator.workflows.fleet import Fleet, for_each_host
from orchestrator.workflows.locking import Locks
from orchestrator.workflows.policy import MassFailure, Policy
from orchestrator.workflows.prepare import Checkout, prepare
from orchestrator.workflows.push import Failures


class Engine:
    """Runs the jobs that ``schedule`` hands out; use once.

    ``begun`` are jobs, by name, that were started before by another controller.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        tree: Tree,
        schedule: Schedule,
        collector: Collector,
        folder: RunFolder,
        fleet: Fleet,
        failures: Failures,
        policy: Policy,
        sink: Activity,
        begun: Collection[str] = (),
    ) -> None:
        self._targets = targets
        self._tree = tree
        self._schedule = schedule
        self._collector = collector
        self._folder = folder
        self._fleet = fleet
        self._failures = failures
        self._policy = policy
        self._sink = sink
        self._begun = set(begun)
        self._stopping = threading.Event()
        self._mass = MassFailure(targets, sink)
        holds = [t.timeouts.detached if policy.detached else t.timeouts.reattach for t in targets]
        self._locks = Locks(fleet, sink, folder.run, hold=max(holds, default=0.0))
        self._attempts = Attempts(
            fleet, folder, collector, self._locks, policy, sink, self._stopping
        )
        self._began = time.monotonic()

    def run(self) -> bool:
        """Run everything; whether it was interrupted."""
        try:
            for_each_host(
                *(self._sink, self._targets, self._work, self._failed, self._stop),
                when_done=self._fleet.let_go,
            )
        except (KeyboardInterrupt, InterruptedRun):
            return True
        return False

    def _stop(self) -> None:
        self._stopping.set()
        self._locks.give_up()
        self._schedule.stop()
        self._collector.stop(self._fleet)

    def _failed(self, target: Target, error: MxfleetError) -> None:
        self._schedule.lost(target.name)
        if self._stopping.is_set() and isinstance(error, TransientError | InterruptedRun):
            return  # its link was given up from here
        told = isinstance(error, TargetError) and self._mass.count(target, error)
        self._failures.take(target, error, told)

    def _work(self, target: Target) -> None:
        self._schedule.coming(target.name)
        with self._sink.doing("connecting", target.name):
            session = self._attempts.connected(target, before=self._mass.check)
        ops = self._ops(target)
        with self._sink.doing("preparing", target.name):
            checkout = prepare(session, target, self._tree, ops, self._sink)
            self._folder.write_checkout(target.name, asdict(checkout) if checkout else {})
            lanes = self._lanes(target, session)
        if len(lanes) == 1:
            self._lane(target, lanes[0], checkout, ops)
            return
        wrong: list[Exception] = []

        def work(lane: Lane) -> None:
            try:
                self._lane(target, lane, checkout, ops)
            except Exception as error:  # noqa: BLE001 - raised again in the target's own thread
                wrong.append(error)

        threads = [
            threading.Thread(target=work, args=(lane,), name=f"{target.name}-{lane.name}")
            for lane in lanes
        ]
        for thread in threads:
            thread.daemon = True
            thread.start()
        for thread in threads:
            thread.join()
        if wrong:
            raise wrong[0]

    def _ops(self, target: Target) -> list[str]:
        """Operators that may come to run on a target: of shared out ones it may be any."""
        jobs = self._collector.plan.jobs
        own = [job.op for job in jobs if job.target.name == target.name]
        every = [job.op for job in jobs]
        return list(dict.fromkeys(every if self._schedule.shared else own))

    def _lanes(self, target: Target, session: AgentSession) -> Sequence[Lane]:
        lanes = lanes_of(target, session.call("gpus")["gpus"])
        if self._policy.serial or not self._policy.all_lanes:
            return lanes[:1]
        return lanes

    def _lane(
        self, target: Target, lane: Lane, checkout: Checkout | None, ops: Sequence[str]
    ) -> None:
        limit = target.timeouts.run
        deadline = None if limit is None else self._began + limit
        refused: TargetError | None = None
        while (job := self._schedule.take(target.name)) is not None:
            try:
                if deadline is not None and time.monotonic() > deadline:
                    self._too_late(job, checkout)
                    continue
                refused = self._job(target, lane, job, checkout, ops, deadline) or refused
            finally:
                self._schedule.done(job)
            if refused is not None and (
                not self._collector.plan.measuring.strict or isinstance(refused, DeadDeviceError)
            ):
                break
        if refused is not None:
            raise refused

    def _too_late(self, job: PlannedJob, checkout: Checkout | None) -> None:
        """A job that the run has no time for any more: its target is not at fault."""
        error = RunTimeoutError(
            f"the run's limit of {job.target.timeouts.run:g} s is over",
            where=job.target.name,
            hint=RunTimeoutError.way_out,
        )
        log = self._folder.log(job.target.name, job.op, job.attempt)
        self._collector.take(Attempt(job, log, error=error), checkout)

    def _job(
        self,
        target: Target,
        lane: Lane,
        job: PlannedJob,
        checkout: Checkout | None,
        ops: Sequence[str],
        deadline: float | None,
    ) -> TargetError | None:
        """Settle one job; return why the target refuses further ones, raise when it is gone."""
        begun = job.job in self._begun
        with self._sink.doing(f"running {job.op}", target.name):
            settled = self._attempts.settle(
                target, lane, job, checkout, begun=begun, deadline=deadline
            )
            if isinstance(settled.attempt.error, NoTreeError):
                # Another job damaged it, or somebody removed it: not this job's fault.
                session = self._attempts.connected(target)
                prepare(session, target, self._tree, ops, self._sink)
                settled = self._attempts.settle(target, lane, job, checkout, deadline=deadline)
        attempt = settled.attempt
        if self._collector.stopping and attempt.outcome is None and attempt.error is None:
            return None
        if (
            isinstance(attempt.error, TargetError)
            and not self._stopping.is_set()
            and self._schedule.give_back(job, settled.started)
        ):
            self._sink(Note(f"{job.op} is left to others", target=target.name, level="warning"))
            raise attempt.error
        verdict = self._collector.take(attempt, checkout, settled.former).verdict
        if isinstance(attempt.error, TargetError):
            raise attempt.error
        if isinstance(verdict.refused, TargetError):
            # Strictly the device is unfit for this operator, maybe not for the next.
            return verdict.refused
        if verdict.refused is not None:
            self._sink(Note(verdict.refused.message, target=target.name, level="error"))
        return None
