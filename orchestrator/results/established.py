"""What an established script left behind, as records: its private CSV and its output's markers.

Such a script writes no records and often exits 0 whatever happened. A case passed only when
exactly one row is its own and says so, with a time; a marker of failure, a case without a row, or
nothing at all each become a record of their own. What went wrong in no known case becomes one
without ``case_id``, which speaks against all of the job's rows. What the script does not tell
(definition, library, environment) stays unknown.

A runner's defaults are unknown too, so the parameters are those of the config. In a sweep a row
belongs to a case only when dtype and shape say so; one that fits none, or several, is an ERROR.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from orchestrator.errors import TreeError
from orchestrator.records import (
    Device,
    Failure,
    Rates,
    Record,
    Status,
    Timer,
    Timers,
    Verification,
    judged,
)
from orchestrator.results.case_id import case_id, case_parameters
from orchestrator.results.device_csv import (
    CASE_ID,
    WIDTH,
    Column,
    DeviceTable,
    Line,
    parse_seconds,
)
from orchestrator.results.outcome import ended_well, how_it_ended
from orchestrator.results.script_rows import expand, match, one_row_a_case
from orchestrator.results.store import Report, log_report
from orchestrator.suites.markers import ABSENT, Markers

# Fixed: reading the same job again has to give the same record_id.
_NAMESPACE = uuid.UUID("6c1f0f0e-5b0b-4c55-9d0c-9a1c2c4e5d10")


@dataclass(frozen=True)
class Job:
    """What the supervisor knows of an established script's job.

    ``job`` is unique over runs, targets and attempts: the ``record_id`` follows from it.
    ``config`` is the pushed config, with the overlay of this job. ``outcome`` is the agent's word
    on the command's end. ``stopped`` is the status of a job that did not end by itself (TIMEOUT,
    ERROR for a lost one) and a sentence on it.
    """

    op: str
    job: str
    config: Mapping[str, Any]
    outcome: Mapping[str, Any]
    stopped: tuple[Status, str] | None = None
    device: Device | None = None  # as the target's facts have it; else from the row
    started: str | None = None
    duration: float | None = None


def established_records(
    job: Job, csv_path: Path, markers: Markers, *, report: Report = log_report
) -> list[Record]:
    """The records of ``job`` from its CSV (it may be missing) and the markers in its output.

    At least one record comes out. ``report`` hears of what in the CSV cannot be used
    (``path:line``).
    """
    table, lines, problem = _read(csv_path, job.op, report)
    cases = expand(job.config)
    owners = match(lines, cases)
    known = [None if owner is None else cases[owner] for owner in owners]
    records = [
        judged(_record(job, number, line, case, table))
        for number, (line, case) in enumerate(zip(lines, known, strict=True))
    ]
    if markers.failure and len(cases) == 1 and lines:
        # The only case there is failed, whatever its rows say.
        return [_with_failure(record, markers) for record in records]
    records = one_row_a_case(records, owners)
    failed = sum(record.status is Status.FAILED for record in records)
    rest = [case for number, case in enumerate(cases) if number not in owners]
    missing = max(len(rest) - owners.count(None), 0)
    accused = max(markers.verifications_failed, int(markers.failure is not None))
    if missing:
        records += _without_row(job, missing, [] if None in owners else rest, markers)
    if accused > failed + missing:
        # Which row it is that lies cannot be told.
        records.append(_caseless(job, *_why(job, markers), "failed"))
    elif not missing and (job.stopped or not (failed or ended_well(job.outcome))):
        # All rows are there and something still went wrong: in none of the cases, as far as known.
        records.append(_caseless(job, *_why(job, markers, has_row=True), "end"))
    elif job.stopped is None and job.outcome.get("exit_code") is None:
        # Killed: a case that failed, or has no row, is not the reason.
        error = Failure(type="NoResult", message=_end(job)[1])
        records.append(_caseless(job, Status.ERROR, error, "end"))
    if problem is not None and lines:
        failure = Failure(type="UnusableRow", message=problem)
        records.append(_caseless(job, Status.ERROR, failure, "problem"))
    return records


def _end(job: Job) -> tuple[Status, str]:
    return job.stopped or (Status.ERROR, f"the script {how_it_ended(job.outcome)}")


def _read(path: Path, op: str, report: Report) -> tuple[DeviceTable, list[Line], str | None]:
    """The CSV, the operator's rows in it, and the first thing in it that is no such row."""
    problems: list[str] = []
    table = DeviceTable(path)
    try:
        table = DeviceTable.read(path)
    except TreeError as error:
        problems.append(str(error))
    for rejected in table.rejected:
        problems.append(f"{path}:{rejected.number}: {rejected.reason}; the row is not used")
    lines = [line for line in table.lines if line.cells[Column.OP_NAME] == op]
    if len(lines) < len(table.lines):
        problems.append(f"{path}: a row of another operator; it is not used")
    for problem in problems:
        report(problem)
    return table, lines, problems[0] if problems else None


def _record(
    job: Job, number: int, line: Line, case: dict[str, Any] | None, table: DeviceTable
) -> Record:
    cells = line.cells
    accuracy = cells[Column.ACC_PASS].strip().lower()
    passed = {"yes": True, "no": False}.get(accuracy)
    status = {True: Status.PASSED, False: Status.FAILED, None: Status.UNVERIFIED}[passed]
    distance = _number(cells[Column.COS_DIST])
    summaries = {
        name: cells[column]
        for name, column in (("Op", Column.OP), ("dtype", Column.DTYPE), ("Shape", Column.SHAPE))
        if cells[column]
    }
    summaries |= {
        name: cell
        for name, cell in zip(table.header[WIDTH:], cells[WIDTH:], strict=True)
        if name and cell
    }
    return _base(
        job,
        case,
        status,
        seed="\x1f".join([f"row {number}", *cells]),
        device=job.device or _device(line, table),
        verification=None
        if passed is None
        else Verification(passed=passed, metrics={"one_minus_cosine": distance}),
        summaries=summaries,
        timers=_timers(cells),
        rates=Rates(
            elements_per_second=_number(cells[Column.ELEMENTS_PER_SECOND]),
            bytes_per_second=_number(cells[Column.BYTES_PER_SECOND]),
            bandwidth_utilisation=_number(cells[Column.BANDWIDTH_UTILISATION]),
        ),
    )


def _timers(cells: Sequence[str]) -> Timers:
    samples = _count(cells[Column.SAMPLES])
    cpu_noise, gpu_noise = cells[Column.CPU_NOISE], cells[Column.GPU_NOISE]

    def timer(column: Column, noise: str, count: int | None) -> Timer | None:
        mean = parse_seconds(cells[column])
        return None if mean is None else Timer(mean=mean, noise=_number(noise), samples=count)

    return Timers(
        cold_gpu=timer(Column.GPU_TIME, gpu_noise, samples),
        # The established writer puts the GPU's noise over the CPU's, which is then unknown.
        cpu=timer(Column.CPU_TIME, "" if cpu_noise == gpu_noise else cpu_noise, samples),
        batch_gpu=timer(Column.BATCH_TIME, "", _count(cells[Column.BATCH_SAMPLES])),
    )


def _with_failure(record: Record, markers: Markers) -> Record:
    metrics = {"one_minus_cosine": _number(markers.failed_distance or "")}
    old = record.verification
    if old is not None and not old.passed:
        metrics = old.metrics
    return record.model_copy(
        update={
            "status": Status.FAILED,
            "verification": Verification(passed=False, metrics=metrics),
            "error": Failure(type="FAILED", message=markers.failure or ""),
        }
    )


def _without_row(
    job: Job, count: int, rest: Sequence[dict[str, Any]], markers: Markers
) -> list[Record]:
    """``count`` records for cases that left no row; ``rest`` are those cases where known."""
    status, error = _why(job, markers)
    # A crash or an absent library concerns all of them. Which of several cases it was that failed
    # or hung is not known, nor would the script have gone on to the next.
    alike = status in (Status.ERROR, Status.UNAVAILABLE)
    known: list[dict[str, Any] | None] = [*rest]
    if len(rest) != count or not (alike or count == 1):
        known = [None] * count
    verification = None
    if status is Status.FAILED:
        distance = _number(markers.failed_distance or "")
        verification = Verification(passed=False, metrics={"one_minus_cosine": distance})
    records = [
        _base(job, known[0], status, seed="no row 0", error=error, verification=verification)
    ]
    if not alike:
        status = Status.NOT_RUN
        error = Failure(type="NOT_RUN", message="the script ended at another case of the sweep")
    return records + [
        _base(job, case, status, seed=f"no row {number}", error=error)
        for number, case in enumerate(known[1:], start=1)
    ]


def _caseless(job: Job, status: Status, error: Failure, seed: str) -> Record:
    return _base(job, None, status, seed=f"no case {seed}", error=error)


def _why(job: Job, markers: Markers, *, has_row: bool = False) -> tuple[Status, Failure]:
    trace = "\n".join(markers.traceback) or None
    failed = Failure(type="FAILED", message=markers.failure) if markers.failure else None
    if failed is not None and markers.verifications_failed:
        return Status.FAILED, failed
    if job.stopped is not None:
        status, message = job.stopped
        return status, Failure(type=status.value, message=message, traceback=trace)
    if markers.exception is not None:
        name, message = markers.exception
        status = Status.UNAVAILABLE if re.search(ABSENT, message) else Status.ERROR
        if has_row:
            status = Status.ERROR  # what measured something was not absent
        return status, Failure(type=name, message=message, traceback=trace)
    if failed is not None:
        return Status.FAILED, failed
    message = f"{_end(job)[1]}{'' if has_row else ' and left no row'}"
    return Status.ERROR, Failure(type="NoResult", message=message)


def _base(
    job: Job, case: dict[str, Any] | None, status: Status, *, seed: str, **values: Any
) -> Record:
    parameters = case_parameters(job.config) if case is None else case
    # A cell may hold bytes that are not UTF-8.
    name = f"{job.job}\x1f{job.op}\x1f{seed}".encode("utf-8", "backslashreplace").decode()
    return Record(
        schema="mxfleet-result/1",
        record_id=uuid.uuid5(_NAMESPACE, name).hex,
        suite="mcoplib",
        op=job.op,
        case_id=None if case is None else case_id(job.op, case),
        parameters=parameters,
        status=status,
        engine="nvbench",
        started=job.started,
        duration=job.duration,
        **{"device": job.device, **values},
    )


def _device(line: Line, table: DeviceTable) -> Device:
    cells = line.cells
    name = cells[Column.DEVICE_NAME]
    kind: Literal["maca", "cuda", "cpu"] = "maca" if "metax" in name.lower() else "cuda"
    gpu = (Column.GPU_TIME, Column.GPU_NOISE, Column.BATCH_SAMPLES, Column.BATCH_TIME)
    if table.extra(line, CASE_ID) and not any(cells[column].strip() for column in gpu):
        kind = "cpu"  # our own front door in a checkout: it leaves these empty there only
    return Device(kind=kind, name=name, index=_count(cells[Column.DEVICE]) or 0)


def _number(cell: str) -> float | None:
    text = cell.strip()
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        return None


def _count(cell: str) -> int | None:
    number = _number(cell)
    return None if number is None or not number.is_integer() else int(number)
