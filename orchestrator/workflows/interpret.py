"""From what an attempt left to what it means: status, records and exit code.

The records decide (for established scripts: row and markers), never exit code 0 alone. A job
without any gets one record of its own that says so, so that the store knows it was tried.
"""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import ExitCode, MxfleetError, TreeError, UnusableError
from orchestrator.execute.job import Attempt
from orchestrator.execute.lines import LineSplitter
from orchestrator.records import Failure, Record, Status, parse_line
from orchestrator.results.established import Job as EstablishedJob
from orchestrator.results.established import established_records
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
_NAMESPACE = uuid.UUID("0b9d1d52-6f0c-4a4f-8f34-3c1f6a4f7f11")


@dataclass(frozen=True)
class Verdict:
    """What a job came to. ``records`` are complete: where they come from is filled in.

    ``refused`` is what our own front door found wrong before it measured anything: with the target
    (a ``TargetError``: python, torch; the next operator there would hear the same) or the tree.
    """

    status: Status
    code: ExitCode
    message: str | None
    records: tuple[Record, ...]
    refused: MxfleetError | None = None


def interpret(
    attempt: Attempt,
    *,
    run: str,
    tree: str,
    config: Mapping[str, Any] | None,
    differing: Sequence[str] = (),
) -> Verdict:
    """Judge one attempt.

    ``config`` is what an established script read on the target, ``differing`` the operator's files
    there that are not as here; the records keep their names.
    """
    ended = _early_end(attempt)
    problems: list[str] = []
    if attempt.job.target.established and config is not None:
        found = _established(attempt, config, ended, problems)
    else:
        found = _own(attempt, problems)
    refused: MxfleetError | None = None
    if not found and ended is None:
        ended = _no_record(attempt)
        if ended[0] is Status.NOT_RUN:
            kind = UnusableError if ended[1] is ExitCode.TARGET else TreeError
            refused = kind(ended[2], where=attempt.job.target.name)
    if ended is not None and not any(record.status is ended[0] for record in found):
        found.append(_stand_in(attempt, ended[0], ended[2]))
    status = next(s for s in _WORST_FIRST if any(record.status is s for record in found))
    code = ended[1] if ended is not None and status is ended[0] else _CODES[status]
    message = ended[2] if ended is not None else _reason(found, status)
    if ended is None and not attempt.job.target.established:
        outcome = attempt.outcome or {}
        if status in (Status.PASSED, Status.UNVERIFIED) and _failed_exit(outcome):
            ended_badly = f"no record failed, but the command {_how(outcome)}"
            found.append(_stand_in(attempt, Status.ERROR, ended_badly))
            status, code, message = Status.ERROR, ExitCode.FAILED, ended_badly
    if problems:
        message = "; ".join([*([message] if message else []), *problems])
    placed = tuple(_placed(record, attempt, run, tree, differing) for record in found)
    return Verdict(status, code, message, placed, refused)


def _early_end(attempt: Attempt) -> tuple[Status, ExitCode, str] | None:
    """What came before its command's own end, None when it ended by itself and was heard whole."""
    if attempt.error is not None:
        return Status.NOT_RUN, attempt.error.code, _sentence(attempt.error)
    outcome = attempt.outcome
    if outcome is None:
        message = "cut off" if attempt.started else "never started there"
        return Status.NOT_RUN, ExitCode.TARGET, message
    ended, spec = outcome["ended"], attempt.job.spec
    left = outcome.get("unkillable")
    more = f"; UNKILLABLE: {', '.join(str(p['pid']) for p in left)}" if left else ""
    if ended == "timeout":
        return Status.TIMEOUT, ExitCode.TIMEOUT, f"ended after {spec['timeout']:g} s{more}"
    if ended == "silence":
        text = f"ended after {spec['silence']:g} s without output{more}"
        return Status.TIMEOUT, ExitCode.TIMEOUT, text
    if ended == "stopped":
        return Status.NOT_RUN, ExitCode.INTERRUPTED, f"stopped before its end{more}"
    if ended == "lost":
        return Status.NOT_RUN, ExitCode.TARGET, f"ended because the link was lost{more}"
    if ended == "refused":
        return Status.NOT_RUN, ExitCode.TARGET, outcome["message"]
    if left:
        return Status.ERROR, ExitCode.FAILED, f"its command ended, not all that it started{more}"
    if outcome.get("output_lost"):
        # Markers, or the reason of a failure, may have been in what was not kept.
        return Status.ERROR, ExitCode.FAILED, outcome["output_lost"]
    return None


def _sentence(error: MxfleetError) -> str:
    return str(type(error)(error.message, hint=error.hint))


def _own(attempt: Attempt, problems: list[str]) -> list[Record]:
    records: list[Record] = []
    if attempt.records is None:
        return records
    for number, line in enumerate(attempt.records.read_bytes().splitlines(), 1):
        try:
            record = parse_line(line)
        except ValueError as error:
            problems.append(f"{attempt.records}:{number}: {error}")
            continue
        if record.op == attempt.job.op:
            records.append(record)
        else:
            problems.append(f"{attempt.records}:{number}: a record of another operator")
    if problems and all(record.status is Status.PASSED for record in records):
        # Something was measured that cannot be read: the job as a whole did not pass.
        records.append(_stand_in(attempt, Status.ERROR, problems[0]))
    return records


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
        exit_code=attempt.outcome["exit_code"],
        stopped=(ended[0], ended[2]) if ended is not None else None,
        duration=attempt.outcome.get("seconds"),
    )
    missing = attempt.log.with_suffix(".no-csv")
    return established_records(
        job, attempt.csv or missing, _log_lines(attempt.log), report=problems.append
    )


def _log_lines(log: Path) -> Iterator[str]:
    splitter = LineSplitter()
    with log.open("rb") as stream:
        while data := stream.read(1 << 16):
            yield from splitter.feed(data)
    yield from splitter.feed(b"", final=True)


def _no_record(attempt: Attempt) -> tuple[Status, ExitCode, str]:
    """Our own front door left no record: its exit code says who is to blame."""
    outcome = attempt.outcome or {}
    words = attempt.last_words.removeprefix("error: ")
    said = f": {words}" if words else ""
    if outcome.get("exit_code") == ExitCode.USAGE:
        return Status.NOT_RUN, ExitCode.USAGE, words or "the tree is wrong"
    if outcome.get("exit_code") == ExitCode.TARGET:
        return Status.NOT_RUN, ExitCode.TARGET, words or "the target is unusable"
    return Status.ERROR, ExitCode.FAILED, f"no record, the command {_how(outcome)}{said}"


def _failed_exit(outcome: Mapping[str, Any]) -> bool:
    return outcome.get("exit_code") != 0


def _how(outcome: Mapping[str, Any]) -> str:
    number = outcome.get("signal")
    if number:
        try:
            return f"was killed by {signal.Signals(number).name}"
        except ValueError:
            return f"was killed by signal {number}"
    return f"ended with exit code {outcome.get('exit_code', 'unknown')}"


def _reason(records: list[Record], status: Status) -> str | None:
    for record in records:
        if record.status is status and record.error is not None:
            return f"{record.error.type}: {record.error.message}"
    return None


def _stand_in(attempt: Attempt, status: Status, message: str) -> Record:
    job = attempt.job
    return Record(
        schema="mxfleet-result/1",
        record_id=uuid.uuid5(_NAMESPACE, f"{job.job}\0{status.value}").hex,
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
    status = next(s for s in _WORST_FIRST if any(record.status is s for record in records))
    return Verdict(status, _CODES[status], _reason(list(records), status), tuple(records))


def _placed(
    record: Record, attempt: Attempt, run: str, tree: str, differing: Sequence[str]
) -> Record:
    job = attempt.job
    extra = {"checkout_differs": list(differing)} if differing else {}
    return record.model_copy(
        update={
            "run": run,
            "host": job.target.host.name,
            "target": job.target.name,
            "attempt": job.attempt,
            "tree": None if job.target.established else tree,
            "job": job.job,
            **extra,
        }
    )
