"""Takes attempts in as they end: records into the run's folder, verdicts for the table."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from orchestrator.errors import ExitCode, TargetError
from orchestrator.events import JobEnded, Note, Row, Sink
from orchestrator.execute.folder import NotKeptError, RunFolder
from orchestrator.execute.job import Attempt
from orchestrator.plan.jobs import Plan, PlannedJob
from orchestrator.records import Record, Status, parse_line
from orchestrator.results.accuracy import distance_of
from orchestrator.results.case_name import case_names
from orchestrator.show.numbers import counted
from orchestrator.suites.profilers import FOLDER
from orchestrator.workflows.fleet import Fleet
from orchestrator.workflows.interpret import Verdict, interpret, is_stand_in, verdict_of
from orchestrator.workflows.prepare import Checkout
from orchestrator.workflows.push import Failures
from orchestrator.workflows.strictness import device_mismatch, strictly

STOP_SECONDS = 15.0
ASK_AGAIN_SECONDS = 1.0
_LEFT_OUT_TOLD = 3


Key = tuple[str, str]  # target and operator


@dataclass(frozen=True)
class Done:
    """A job with its verdict."""

    job: PlannedJob
    verdict: Verdict


class Collector:
    """Takes attempts in as they end: records into the run's folder, verdicts for the table."""

    def __init__(self, plan: Plan, folder: RunFolder, sink: Sink) -> None:
        self.plan = plan
        self._folder = folder
        self._sink = sink
        self._stopping = False
        self.not_kept = False  # whether records could not be written into the run's folder
        self._told: set[tuple[str, str]] = set()  # what was said of a target's device
        self._begun: dict[Key, PlannedJob] = {}  # the latest attempt
        self._done: dict[Key, Done] = {}
        self._lock = threading.Lock()

    @property
    def stopping(self) -> bool:
        """Whether nothing more is to begin."""
        return self._stopping

    def begin(self, job: PlannedJob) -> bool:
        """Whether ``job`` may start; from then on ``stop`` waits for its attempt."""
        with self._lock:
            if not self._stopping:
                self._begun[_key(job)] = job
            return not self._stopping

    def move(self, job: PlannedJob, moved: PlannedJob) -> None:
        """Another target does a planned job: keep note of it."""
        with self._lock:
            jobs = tuple(moved if each is job else each for each in self.plan.jobs)
            self.plan = replace(self.plan, jobs=jobs)
            kept = {**self._folder.read_json("plan.json"), **self.plan.as_dict()}
            self._folder.write_json("plan.json", kept)

    def former(self, job: PlannedJob) -> tuple[Record, ...]:
        """What the folder has of a job's attempts; not what only says that more is missing."""
        return tuple(record for record in self._former(job) if not is_stand_in(record))

    def note(
        self, attempt: Attempt, checkout: Checkout | None, former: Sequence[Record]
    ) -> tuple[Record, ...]:
        """Keep what an attempt measured that is not the last one, and return it.

        ``former`` are records of earlier attempts: of cases that this one did not decide they stay.
        """
        verdict = _beside(former, self._judge(attempt, checkout))
        self._write(attempt.job, verdict.records)
        return tuple(record for record in verdict.records if not is_stand_in(record))

    def take(
        self, attempt: Attempt, checkout: Checkout | None, former: Sequence[Record] = ()
    ) -> Done:
        """Judge a job's last attempt, keep its records, tell the sink; ``former`` as for note."""
        verdict = _beside(former, self._judge(attempt, checkout))
        return self._tell(attempt, self._keep(attempt.job, verdict))

    def take_again(self, attempt: Attempt, checkout: Checkout | None) -> None:
        """Judge what was fetched once more; it replaces what is here only if it says as much."""
        job = attempt.job
        former = self.former(job)
        verdict = self._judge(attempt, checkout)
        fetched = {record.record_id for record in verdict.records}
        if any(record.job == job.job and record.record_id not in fetched for record in former):
            text = f"{job.op}: less lies there than is here, which is kept"
            self._sink(Note(text, target=job.target.name, level="warning"))
        elif attempt.error is None or not self._former(job):
            others = [record for record in former if record.job != job.job]
            self._tell(attempt, self._keep(job, _beside(others, verdict)))

    def keep_former(self, jobs: Iterable[PlannedJob]) -> None:
        """Give jobs that could not be fetched the verdict of the records that are here."""
        for job in jobs:
            former = self._former(job)
            if _key(job) not in self._done and former:
                verdict = verdict_of(former)
                strict = self.plan.measuring.strict
                self._done[_key(job)] = Done(
                    job, strictly(verdict, job.target) if strict else verdict
                )

    def _former(self, job: PlannedJob) -> list[Record]:
        """The records of a job that the run's folder has."""
        path = self._folder.records(job.target.name, job.op)
        found = []
        for line in path.read_bytes().splitlines() if path.exists() else ():
            with suppress(ValueError):
                found.append(parse_line(line))
        return [record for record in found if _base(record.job or "") == _base(job.job)]

    def _judge(self, attempt: Attempt, checkout: Checkout | None) -> Verdict:
        job = attempt.job
        config = checkout.configs.get(job.op) if checkout is not None else None
        differing = checkout.differing.get(job.op, ()) if checkout is not None else ()
        verdict = interpret(attempt, self.plan, config=config, differing=differing)
        return self._strictly(verdict, job)

    def _strictly(self, verdict: Verdict, job: PlannedJob) -> Verdict:
        return strictly(verdict, job.target) if self.plan.measuring.strict else verdict

    def _tell(self, attempt: Attempt, done: Done) -> Done:
        job, verdict = done.job, done.verdict
        self._check_device(done)
        self._sink(
            JobEnded(
                target=job.target.name,
                op=job.op,
                job=job.job,
                status=verdict.status.value,
                exit_code=(attempt.outcome or {}).get("exit_code"),
                seconds=attempt.seconds,
                number=len(self._done),
                total=len(self.plan.jobs),
                message=verdict.message,
                log=str(attempt.log),
                csv=str(attempt.csv) if attempt.csv else None,
                records=str(self._folder.records(job.target.name, job.op)),
                made=tuple(str(path) for path in attempt.made.values()),
            )
        )
        for text in _about_made(attempt):
            self._sink(Note(text, target=job.target.name, level="warning"))
        return done

    def _check_device(self, done: Done) -> None:
        """Say once when a device is not the one that the config or the inventory expect there."""
        target = done.job.target
        for record in done.verdict.records:
            text = device_mismatch(record, target)
            if text is not None and (target.name, text) not in self._told:
                self._told.add((target.name, text))
                self._sink(Note(text, target=target.name, level="warning"))

    def _keep(self, job: PlannedJob, verdict: Verdict) -> Done:
        self._write(job, verdict.records)
        done = Done(job, verdict)
        with self._lock:
            self._done[_key(job)] = done
        return done

    def _write(self, job: PlannedJob, records: Iterable[Record]) -> None:
        lines = b"".join(record.to_line().encode("utf-8", "replace") + b"\n" for record in records)
        try:
            self._folder.write_bytes(self._folder.records(job.target.name, job.op), lines)
        except NotKeptError as error:
            # Kept in memory, so that they are merged all the same.
            if not self.not_kept:
                self._sink(Note(str(error), level="error"))
            self.not_kept = True

    def stop(self, fleet: Fleet) -> None:
        """End what runs, orderly: what was measured until now comes back with it."""
        with self._lock:
            self._stopping = True
        text = f"stopping, ending {counted(len(self._running()), 'jobs')}"
        self._sink(Note(text))
        deadline = time.monotonic() + STOP_SECONDS
        asked = 0.0
        while (running := self._running()) and time.monotonic() < deadline:
            if time.monotonic() - asked > ASK_AGAIN_SECONDS:
                # Again, because a job that was just beginning may not have been there to be ended.
                asked = time.monotonic()
                for job in running:
                    _ask_to_stop(fleet, job)
            time.sleep(0.05)

    def _running(self) -> list[PlannedJob]:
        with self._lock:
            return [job for key, job in self._begun.items() if key not in self._done]

    def fill_up(self, failures: Failures, interrupted: bool) -> None:
        """Give every job without a verdict one that says why it was not run, or not to its end."""
        intended = self._folder.intended()
        for job in self.plan.jobs:
            if _key(job) in self._done:
                continue
            error = failures.errors.get(job.target.name)
            begun = _key(job) in intended
            attempt = Attempt(job, self._folder.path / "logs", error=error, started=begun)
            verdict = interpret(attempt, self.plan, config=None)
            if error is None:
                code = ExitCode.INTERRUPTED if interrupted else ExitCode.INTERNAL
                verdict = Verdict(Status.NOT_RUN, code, "not started", verdict.records)
            self._keep(job, _beside(self.former(job), verdict))

    def done(self) -> list[Done]:
        """Finished jobs in the plan's order."""
        return [self._done[_key(job)] for job in self.plan.jobs if _key(job) in self._done]

    def records(self) -> list[Record]:
        """All records of the run."""
        return [record for done in self.done() for record in done.verdict.records]

    def rows(self) -> list[Row]:
        """The table: operator by operator, host by host."""
        order = {op: i for i, op in enumerate(dict.fromkeys(job.op for job in self.plan.jobs))}
        finished = sorted(self.done(), key=lambda done: order[done.job.op])
        names = case_names(self.records())
        return [
            row_of(record, done, names.get(record.record_id) or None)
            for done in finished
            for record in done.verdict.records
        ]


def _beside(former: Iterable[Record], verdict: Verdict) -> Verdict:
    """A verdict with those ``former`` records whose cases it does not decide."""
    decided = {r.case_id for r in verdict.records if not is_stand_in(r)}
    kept = [r for r in former if not is_stand_in(r) and r.case_id not in decided]
    return replace(verdict, records=(*kept, *verdict.records)) if kept else verdict


def _key(job: PlannedJob) -> Key:
    return job.target.name, job.op


def _base(job: str) -> str:
    """A job's name without the number of the attempt."""
    return job.rpartition(".a")[0]


def _ask_to_stop(fleet: Fleet, job: PlannedJob) -> None:
    session = fleet.sessions().get(job.target.name)
    if session is not None:
        with suppress(TargetError):  # a lost link: its agent ends the job by itself
            session.request("stop", store=job.spec["store"], job=job.job).drop()


def row_of(record: Record, done: Done, case: str | None) -> Row:
    """A record as a line of the table; ``case`` tells it from its operator's other cases."""
    headline = record.headline
    verification = record.verification
    seconds = (headline[1].median or headline[1].mean) if headline else None
    thresholds = (verification.thresholds if verification else None) or ()
    worst = (verification.worst if verification else None) or ()
    distance = distance_of(verification)
    return Row(
        op=record.op,
        target=done.job.target.name,
        status=record.status.value,
        case_id=record.case_id,
        case=case,
        parameters=record.parameters,
        accuracy=None if verification is None else "Yes" if verification.passed else "No",
        dtype=_text(record.summaries.get("dtype", _parameter(record, "dtype"))),
        shape=_text(record.summaries.get("Shape")),
        seconds=seconds,
        timer=headline[0] if headline else None,
        noise=headline[1].noise if headline else None,
        repeats=record.repeats if headline else None,
        repeat_spread=record.repeat_spread if headline else None,
        bandwidth_utilisation=record.rates.bandwidth_utilisation,
        flops_per_second=record.flops / seconds if record.flops and seconds else None,
        roofline=record.roofline.model_dump(mode="json") if record.roofline else None,
        flags=tuple(record.flags),
        thresholds=tuple(t.model_dump(mode="json") for t in thresholds if t.outside_rules),
        own_check=bool(verification and verification.own_check),
        metric=distance.metric if distance else None,
        distance=distance.value if distance else None,
        distance_limit=distance.limit if distance else None,
        overruled=tuple((verification.overruled if verification else None) or ()),
        worst=tuple(one.model_dump(mode="json") for one in worst),
        device=record.device.name if record.device else None,
        device_mismatch=device_mismatch(record, done.job.target),
        library=record.library,
        known_failure=record.known_failure.model_dump(mode="json")
        if record.known_failure
        else None,
        message=_remark(record),
    )


def _about_made(attempt: Attempt) -> list[str]:
    """What there is to say of a profiler's files beside where they are."""
    op, left_out = attempt.job.op, attempt.made_left_out
    lost = [f"{op}: {name} did not come back: {why}" for name, why in left_out.items()]
    if len(lost) > _LEFT_OUT_TOLD:
        lost[_LEFT_OUT_TOLD:] = [f"{op}: nor did {len(lost) - _LEFT_OUT_TOLD} other files"]
    ran = attempt.outcome is not None
    if attempt.job.spec.get("profiler") and ran and not attempt.made and not lost:
        return [f"{op}: the profiler left no file; what it writes below {FOLDER} comes back"]
    return lost


def _remark(record: Record) -> str | None:
    differing = (record.model_extra or {}).get("checkout_differs")
    words = [record.error.message] if record.error else []
    if record.profiled and record.headline is not None:
        words.append("measured under a profiler: no time to compare with")
    if differing:
        words.append(f"ran the checkout's own {' and '.join(differing)}, not those from here")
    return "; ".join(words) or None


def _parameter(record: Record, name: str) -> str | None:
    """A parameter of a case that did not get to its columns, or was only verified."""
    value = record.parameters.get(name)
    return value if isinstance(value, str) else None


def _text(value: object) -> str | None:
    return None if value is None else str(value)
