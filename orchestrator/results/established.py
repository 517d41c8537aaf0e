"""What an established script left behind, as records: its private CSV and its output's markers.

Such a script writes no records and often exits 0 whatever happened. A case passed only when its
row says so; a marker of failure, a case without a row, or nothing at all each become a record of
their own. What the script does not tell (definition, library, environment) stays unknown.

A runner's defaults are unknown too, so the parameters are those of the config. In a sweep a row
belongs to a case only when dtype and shape say so; otherwise it has no ``case_id``.
"""

from __future__ import annotations

import itertools
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
)
from orchestrator.results.case_id import NOT_PARAMETERS, case_id, case_parameters
from orchestrator.results.device_csv import WIDTH, Column, DeviceTable, Line, parse_seconds
from orchestrator.results.store import Report, log_report

_NEVER_SWEPT = NOT_PARAMETERS | {"batch_size_list"}
# Fixed: reading the same job again has to give the same record_id.
_NAMESPACE = uuid.UUID("6c1f0f0e-5b0b-4c55-9d0c-9a1c2c4e5d10")
_VERIFY = re.compile(r"\[VERIFY\].*->\s*(PASS|FAIL)(?:.*?1-CosSim:\s*([^)\s]+))?")
_FATAL = re.compile(r"\[FATAL\]\s*(.*)")
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit))(?::\s*(.*))?\Z")
_ABSENT = re.compile(r"No module named '(?:mcoplib|cuda)\b|'_OpNamespace' '\w+' object has no attr")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


@dataclass(frozen=True)
class Job:
    """What the supervisor knows of an established script's job.

    ``job`` is unique over runs, targets and attempts: the ``record_id`` follows from it.
    ``config`` is the pushed config, with the overlay of this job. ``stopped`` is the status of a
    job that did not end by itself (TIMEOUT, ERROR for a lost one) and a sentence on it.
    """

    op: str
    job: str
    config: Mapping[str, Any]
    exit_code: int | None
    stopped: tuple[Status, str] | None = None
    device: Device | None = None  # as the target's facts have it; else from the row
    started: str | None = None
    duration: float | None = None


@dataclass
class _Markers:
    """What the output says, marker by marker."""

    failed: list[str] = field(default_factory=list)
    verification_failed: bool = False
    failed_distance: str | None = None
    exception: tuple[str, str] | None = None
    traceback: list[str] = field(default_factory=list)


def established_records(
    job: Job, csv_path: Path, output: Iterable[str], *, report: Report = log_report
) -> list[Record]:
    """The records of ``job`` from its CSV (it may be missing) and its output lines.

    At least one record comes out. ``report`` hears of what in the CSV cannot be used
    (``path:line``).
    """
    table = DeviceTable(csv_path)
    try:
        table = DeviceTable.read(csv_path)
    except TreeError as error:
        report(str(error))
    for rejected in table.rejected:
        report(f"{csv_path}:{rejected.number}: {rejected.reason}; the row is not used")
    lines = [line for line in table.lines if line.cells[Column.OP_NAME] == job.op]
    markers = _markers(output)
    cases = _expand(job.config)
    owners = _match(table, lines, cases)
    records = [
        _record(job, number, line, owner, table)
        for number, (line, owner) in enumerate(zip(lines, owners, strict=True))
    ]
    if markers.failed and len(cases) == 1 and lines:
        # The only case there is failed, whatever its row says.
        return [_with_failure(record, markers) for record in records]
    missing = len(cases) - len(lines)
    if missing > 0:
        rest = [case for case in cases if case not in owners] if None not in owners else []
        records += _without_row(job, missing, rest, markers)
    elif job.stopped or ((job.exit_code or markers.failed) and not _any_failed(records)):
        # All rows are there and something still went wrong: in none of the cases, as far as known.
        records += _without_row(job, 1, [], markers, has_row=True)
    return records


def _any_failed(records: Iterable[Record]) -> bool:
    return any(record.status is Status.FAILED for record in records)


def _expand(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parameters of each case: lists are swept, in the order of the keys."""
    parameters = case_parameters(config)
    swept = [
        key for key, value in config.items() if isinstance(value, list) and key not in _NEVER_SWEPT
    ]
    return [
        {**parameters, **dict(zip(swept, values, strict=True))}
        for values in itertools.product(*(config[key] for key in swept))
    ] or [parameters]


def _match(
    table: DeviceTable, lines: Sequence[Line], cases: Sequence[dict[str, Any]]
) -> list[dict[str, Any] | None]:
    """The case of each row, None where it cannot be told."""
    if len(cases) == 1 and len(lines) == 1:
        return [cases[0]]
    swept = {key for key in cases[0] if any(case[key] != cases[0][key] for case in cases)}
    fits = [
        [case for case in cases if all(_shows(line, key, case[key]) for key in swept)]
        if len(cases) > 1
        else []
        for line in lines
    ]
    only = [fit[0] if len(fit) == 1 else None for fit in fits]
    return [case if case is not None and only.count(case) == 1 else None for case in only]


def _shows(line: Line, key: str, value: Any) -> bool:
    dtype = line.cells[Column.DTYPE].removeprefix("torch.")
    if key == "dtype":
        return dtype == str(value).removeprefix("torch.")
    texts = [line.cells[Column.SHAPE], *line.cells[WIDTH:]]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return any(str(value) in _NUMBER.findall(text) for text in texts)
    return any(str(value) in text.split() for text in texts)


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
        device=job.device or _device(cells),
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


def _with_failure(record: Record, markers: _Markers) -> Record:
    metrics = {"one_minus_cosine": _number(markers.failed_distance or "")}
    old = record.verification
    if old is not None and not old.passed:
        metrics = old.metrics
    return record.model_copy(
        update={
            "status": Status.FAILED,
            "verification": Verification(passed=False, metrics=metrics),
            "error": Failure(type="FAILED", message=markers.failed[-1]),
        }
    )


def _without_row(
    job: Job,
    count: int,
    rest: Sequence[dict[str, Any]],
    markers: _Markers,
    *,
    has_row: bool = False,
) -> list[Record]:
    """``count`` records for cases that left no row; ``rest`` are those cases where known."""
    status, error = _why(job, markers, has_row=has_row)
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


def _why(job: Job, markers: _Markers, *, has_row: bool) -> tuple[Status, Failure]:
    trace = "\n".join(markers.traceback) or None
    failed = Failure(type="FAILED", message=markers.failed[-1]) if markers.failed else None
    if failed is not None and markers.verification_failed:
        return Status.FAILED, failed
    if job.stopped is not None:
        status, message = job.stopped
        return status, Failure(type=status.value, message=message, traceback=trace)
    if markers.exception is not None:
        name, message = markers.exception
        status = Status.UNAVAILABLE if _ABSENT.search(message) else Status.ERROR
        return status, Failure(type=name, message=message, traceback=trace)
    if failed is not None:
        return Status.FAILED, failed
    code = "an unknown exit code" if job.exit_code is None else f"exit code {job.exit_code}"
    return Status.ERROR, Failure(
        type="NoResult",
        message=f"the script ended with {code}{'' if has_row else ' and left no row'}",
    )


def _markers(output: Iterable[str]) -> _Markers:
    found = _Markers()
    inside = False
    for text in output:
        line = text.rstrip("\r\n")
        verify, fatal = _VERIFY.search(line), _FATAL.search(line)
        if verify is not None and verify[1] == "FAIL":
            found.failed.append(line.strip())
            found.verification_failed = True
            found.failed_distance = verify[2]
        elif fatal is not None:
            found.failed.append(line.strip())
        if line.startswith("Traceback (most recent call last)"):
            inside, found.traceback = True, [line]
        elif inside:
            found.traceback.append(line)
            exception = _EXCEPTION.match(line)
            if exception is not None:
                inside = False
                found.exception = (exception[1], exception[2] or "")
    return found


def _base(
    job: Job, case: dict[str, Any] | None, status: Status, *, seed: str, **values: Any
) -> Record:
    parameters = case_parameters(job.config) if case is None else case
    return Record(
        schema="mxfleet-result/1",
        record_id=uuid.uuid5(_NAMESPACE, f"{job.job}\x1f{job.op}\x1f{seed}").hex,
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


def _device(cells: Sequence[str]) -> Device:
    name = cells[Column.DEVICE_NAME]
    kind: Literal["maca", "cuda"] = "maca" if "metax" in name.lower() else "cuda"
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
