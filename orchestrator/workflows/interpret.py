"""From what an attempt left to what it means: status, records and exit code.

The records decide (for established scripts: row and markers), never exit code 0 alone. A job
without any gets one record of its own that says so, so that the store knows it was tried. So does
one that left more than its records account for: a bad end, or lines that are no records of it.
"""

from __future__ import annotations

import shlex
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import (
    DeadDeviceError,
    ExitCode,
    MxfleetError,
    TreeError,
    UnusableError,
)
from orchestrator.execute.job import Attempt
from orchestrator.plan.jobs import Plan
from orchestrator.records import Failure, Record, Status, judged, parse_line
from orchestrator.results.established import Job as EstablishedJob
from orchestrator.results.established import established_records
from orchestrator.results.model_name import mismatch
from orchestrator.results.outcome import how_it_ended
from orchestrator.suites import mcoplib

# The first that occurs among a job's records is the job's status.
_WORST_FIRST = (
    Status.FAILED,
    Status.ERROR,
    Status.TIMEOUT,
    Status.UNAVAILABLE,
    Status.NOT_RUN,
    Status.UNVERIFIED,
    Status.PASSED,
)
_CODES = {
    Status.FAILED: ExitCode.FAILED,
    Status.ERROR: ExitCode.FAILED,
    Status.TIMEOUT: ExitCode.TIMEOUT,
    Status.UNAVAILABLE: ExitCode.TARGET,
    Status.NOT_RUN: ExitCode.TARGET,
    Status.UNVERIFIED: ExitCode.OK,
    Status.PASSED: ExitCode.OK,
}
# What the exit codes of our own front door stand for.
_EXPLAINS: Mapping[int | None, set[Status]] = {
    ExitCode.FAILED: {Status.FAILED, Status.ERROR, Status.NOT_RUN},
    ExitCode.TARGET: {Status.UNAVAILABLE},
    ExitCode.TIMEOUT: {Status.TIMEOUT},
    ExitCode.UNDECIDED: {Status.UNVERIFIED},
}
# What the controller says of a record beside its fields: see _placed and _stand_in.
_OURS = ("checkout_differs", "co_runners", "profiler", "stand_in")
_NAMESPACE = uuid.UUID("0b9d1d52-6f0c-4a4f-8f34-3c1f6a4f7f11")


@dataclass(frozen=True)
class Verdict:
    """What a job came to. ``records`` are complete: where they come from is filled in.

    ``refused`` is what our own front door found wrong: with the target (a ``TargetError``: python,
    torch, a GPU that no longer answers; the next operator there would hear the same) or the tree.
    """

    status: Status
    code: ExitCode
    message: str | None
    records: tuple[Record, ...]
    refused: MxfleetError | None = None


def interpret(
    attempt: Attempt,
    plan: Plan,
    *,
    config: Mapping[str, Any] | None,
    differing: Sequence[str] = (),
) -> Verdict:
    """Judge one attempt of a plan.

    ``config`` is what an established script read on the target, ``differing`` the operator's files
    there that are not as here; the records keep their names.
    """
    ended = _early_end(attempt)
    problems: list[str] = []
    verify_only = plan.measuring.verify_only
    by_script = attempt.job.target.established and config is not None and not verify_only
    if by_script and config is not None:
        found = _established(attempt, config, ended, problems)
    else:
        found = _own(attempt, problems, measured=not verify_only)
        if attempt.job.target.established and config is not None:
            found = [_on_which_device(record, config) for record in found]
    refused: MxfleetError | None = None
    if ended is None and not by_script:
        if not found:
            ended = _no_record(attempt)
            if ended[0] is Status.NOT_RUN:
                kind = UnusableError if ended[1] is ExitCode.TARGET else TreeError
                refused = kind(ended[2], where=attempt.job.target.name)
        elif not _explained(attempt.outcome or {}, found):
            odd = f"no record says so, but the command {how_it_ended(attempt.outcome or {})}"
            if _gave_up(attempt.outcome or {}):
                # After what it had recorded, the device no longer answered.
                odd = _words(attempt) or "the target became unusable"
                refused = DeadDeviceError(odd, where=attempt.job.target.name)
            found.append(_stand_in(attempt, Status.ERROR, odd, "end"))
    if ended is not None and not any(
        # Of ours one without a case: what was not decided may be any of them.
        record.status is ended[0] and (by_script or record.case_id is None)
        for record in found
    ):
        found.append(_stand_in(attempt, ended[0], ended[2]))
    status = _worst(found)
    # A known failure keeps its status and does not count.
    counted = _worst([record for record in found if not record.excused])
    code = ended[1] if ended is not None and counted is ended[0] else _CODES[counted]
    reason = ended[2] if ended is not None else _reason(found, status)
    told = [text for text in (reason, _few(problems)) if text]
    message = "; ".join(dict.fromkeys(told)) or None
    placed = tuple(_placed(found, attempt, plan, differing))
    return Verdict(status, code, message, placed, refused)


def _early_end(attempt: Attempt) -> tuple[Status, ExitCode, str] | None:
    """What came before its command's own end, None when it ended by itself and was heard whole."""
    # What was not fetched before the target was lost is not lost with it.
    unfetched = attempt.started and attempt.records is None
    there = "; what it had measured lies there: mxfleet pull" if unfetched else ""
    if attempt.error is not None:
        return Status.NOT_RUN, attempt.error.code, f"{_sentence(attempt.error)}{there}"
    outcome = attempt.outcome
    if outcome is None:
        message = f"cut off{there}" if attempt.started else "never started there"
        return Status.NOT_RUN, ExitCode.TARGET, message
    ended, spec = outcome["ended"], attempt.job.spec
    left = outcome.get("unkillable")
    more = f"; UNKILLABLE: {', '.join(str(p['pid']) for p in left)}" if left else ""
    if ended == "timeout":
        return Status.TIMEOUT, ExitCode.TIMEOUT, f"ended by {_limit(spec)}{more}"
    if ended == "silence":
        text = f"ended after {spec['silence']:g} s without output (--silence){more}"
        return Status.TIMEOUT, ExitCode.TIMEOUT, text
    if ended == "stopped":
        return Status.NOT_RUN, ExitCode.INTERRUPTED, f"stopped before its end{more}"
    if ended == "lost":
        return Status.NOT_RUN, ExitCode.TARGET, f"ended because the link was lost{more}"
    if ended == "refused":
        return Status.NOT_RUN, ExitCode.TARGET, outcome["message"]
    if left:
        return Status.ERROR, ExitCode.FAILED, f"its command ended, not all that it started{more}"
    if outcome.get("damaged"):
        return (
            Status.ERROR,
            ExitCode.FAILED,
            f"the job damaged what it ran in: {outcome['damaged']}",
        )
    if outcome.get("tree_changed"):
        text = f"the job changed the tree that it ran in: {outcome['tree_changed']}"
        return Status.ERROR, ExitCode.FAILED, text
    if attempt.left_out:
        what = "; ".join(f"{name}: {why}" for name, why in sorted(attempt.left_out.items()))
        return Status.ERROR, ExitCode.FAILED, f"what the job left could not be taken in: {what}"
    if outcome.get("output_lost"):
        # Markers, or the reason of a failure, may have been in what was not kept.
        return Status.ERROR, ExitCode.FAILED, outcome["output_lost"]
    return None


def _limit(spec: Mapping[str, Any]) -> str:
    """The limit that ended a job: its own, or what was left of the run's."""
    if spec.get("run_limit"):
        return f"the run's limit of {spec['run_limit']:g} s (--run-timeout)"
    return f"its limit of {spec['timeout']:g} s (--job-timeout)"


def _sentence(error: MxfleetError) -> str:
    return str(type(error)(error.message, hint=error.hint))


def _own(attempt: Attempt, problems: list[str], *, measured: bool) -> list[Record]:
    if attempt.records is None:
        return []
    records: list[Record] = []
    ids: set[str] = set()
    cases: set[str] = set()
    devices: set[tuple[str, str]] = set()
    for number, line in enumerate(attempt.records.read_bytes().split(b"\n"), 1):
        if line in (b"", b"\r"):
            continue
        place = f"{attempt.records}:{number}"
        try:
            record = judged(_without_ours(parse_line(line)))
        except ValueError as error:
            problems.append(f"{place}: {error}")
            continue
        if record.op != attempt.job.op:
            problems.append(f"{place}: a record of another operator")
            continue
        if record.measured is not measured:
            what = "only verified" if measured else "measured, not only verified"
            problems.append(f"{place}: a record of a case that was {what}")
            continue
        if record.record_id in ids:
            problems.append(f"{place}: a record_id that an earlier record has")
        elif record.case_id in cases:
            problems.append(f"{place}: a second record of one case")
        if record.device is not None:
            devices.add((record.device.kind, record.device.name))
            if len(devices) > 1:
                problems.append(f"{place}: a record of another device")
        ids.add(record.record_id)
        cases |= {record.case_id} if record.case_id is not None else set()
        records.append(record)
    if text := _few(problems):
        # What cannot be read, or is not this job's, may speak against any of the records.
        records.append(_stand_in(attempt, Status.ERROR, text, "lines"))
    return records


def _without_ours(record: Record) -> Record:
    """A record that arrived, without what only the controller can say."""
    arrived = record.model_copy()
    for key in _OURS:
        (arrived.model_extra or {}).pop(key, None)
    return arrived


def _few(problems: Sequence[str]) -> str | None:
    more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
    return "; ".join(problems[:3]) + more or None


def _established(
    attempt: Attempt,
    config: Mapping[str, Any],
    ended: tuple[Status, ExitCode, str] | None,
    problems: list[str],
) -> list[Record]:
    if attempt.outcome is None:
        return []
    spec = attempt.job.spec
    job = EstablishedJob(
        op=attempt.job.op,
        job=attempt.job.job,
        config={**config, **(spec.get("overlay") or {}).get("values", {})},
        outcome=attempt.outcome,
        stopped=(ended[0], ended[2]) if ended is not None else None,
        duration=attempt.outcome.get("seconds"),
    )
    missing = attempt.log.with_suffix(".no-csv")
    records = established_records(
        job, attempt.csv or missing, attempt.markers, report=problems.append
    )
    return [_on_which_device(record, config) for record in records]


def _on_which_device(record: Record, config: Mapping[str, Any]) -> Record:
    """The record with what our own harness notes: whether the config names another device."""
    if record.device is None:
        return record
    odd = mismatch(record.device.name, record.device.kind, config.get("device_name"))
    return record.model_copy(update={"environment": {**record.environment, "device_expected": odd}})


def _no_record(attempt: Attempt) -> tuple[Status, ExitCode, str]:
    """Our own front door left no record: its exit code says who is to blame."""
    outcome = attempt.outcome or {}
    words = _words(attempt)
    said = f": {words}" if words else ""
    if outcome.get("exit_code") == ExitCode.USAGE:
        return Status.NOT_RUN, ExitCode.USAGE, words or "the tree is wrong"
    if outcome.get("exit_code") == ExitCode.TARGET:
        return Status.NOT_RUN, ExitCode.TARGET, words or "the target is unusable"
    return Status.ERROR, ExitCode.FAILED, f"no record, the command {how_it_ended(outcome)}{said}"


def _words(attempt: Attempt) -> str:
    return attempt.last_words.removeprefix("error: ")


def _gave_up(outcome: Mapping[str, Any]) -> bool:
    """Whether our own front door itself called the target unusable."""
    return not outcome.get("signal") and outcome.get("exit_code") == ExitCode.TARGET


def _explained(outcome: Mapping[str, Any], records: Iterable[Record]) -> bool:
    """Whether ``records`` say why the command ended as it did."""
    if outcome.get("signal"):
        return False
    code = outcome.get("exit_code")
    statuses = {record.status for record in records if not record.excused}
    return code == ExitCode.OK or bool(statuses & _EXPLAINS.get(code, set()))


def _reason(records: list[Record], status: Status) -> str | None:
    for record in records:
        if record.status is status and record.error is not None:
            kind = "" if record.error.type == status.value else f"{record.error.type}: "
            return f"{kind}{record.error.message}"
    return None


def _stand_in(attempt: Attempt, status: Status, message: str, part: str = "") -> Record:
    job = attempt.job
    return Record(
        schema="mxfleet-result/1",
        record_id=f"{status.value} {part}",
        suite=mcoplib.NAME,
        op=job.op,
        status=status,
        error=Failure(type=status.value, message=message),
    ).model_copy(update={"stand_in": True})


def is_stand_in(record: Record) -> bool:
    """Whether the controller made the record for a job that left none, or not all."""
    return bool((record.model_extra or {}).get("stand_in"))


def verdict_of(records: Sequence[Record]) -> Verdict:
    """The verdict that records which were judged before stand for."""
    status = _worst(records)
    code = _CODES[_worst([record for record in records if not record.excused])]
    return Verdict(status, code, _reason(list(records), status), tuple(records))


def _worst(records: Sequence[Record]) -> Status:
    """The worst status among ``records``; nothing speaks against none."""
    found = {record.status for record in records}
    return next((status for status in _WORST_FIRST if status in found), Status.PASSED)


def _placed(
    found: Iterable[Record], attempt: Attempt, plan: Plan, differing: Sequence[str]
) -> Iterator[Record]:
    """The records with where they come from, and an identity that no other job can give.

    The same each time that the job is read; those that share one in a job stay different. A pushed
    tree is no checkout that could tell its commit, so the plan does.
    """
    job = attempt.job
    seen: Counter[str] = Counter()
    for record in found:
        extra: dict[str, Any] = {"checkout_differs": list(differing)} if differing else {}
        if attempt.unlocked:
            extra["flags"] = [*record.flags, "UNLOCKED"]
        if attempt.beside:
            extra["co_runners"] = list(attempt.beside)
        if plan.measuring.profiler:
            extra["profiler"] = shlex.join(plan.measuring.profiler)
        if not job.target.established and record.environment.get("commit") is None:
            extra["environment"] = {**record.environment, "commit": plan.commit}
        name = f"{job.job}\0{record.record_id}\0{seen[record.record_id]}"
        seen[record.record_id] += 1
        yield record.model_copy(
            update={
                "record_id": uuid.uuid5(_NAMESPACE, name).hex,
                "run": plan.run,
                "host": job.target.host.name,
                "target": job.target.name,
                "attempt": job.attempt,
                "tree": None if job.target.established else plan.tree,
                "job": job.job,
                **extra,
            }
        )
