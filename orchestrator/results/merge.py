"""Records to the store and to the CSVs of their device models.

The store takes every record; a CSV only rows that passed verification everywhere. UNVERIFIED
cases have no place in a CSV either: a row there is a reference for comparing, and nothing says
that theirs is right. ``generate`` appends the rows that a file lacks, ``update`` also replaces
those that are more than 5 % faster. Merging again changes nothing, not even a file's time stamp.
What is wrong with one CSV keeps nothing out of the others. A profiler's times are no reference
either: records made under one go to the store alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from orchestrator.errors import MxfleetError, TreeError
from orchestrator.events import Merged
from orchestrator.records import Record, Status, judged
from orchestrator.results.case_name import case_names
from orchestrator.results.device_csv import (
    CASE_ID,
    GPU_MEDIAN,
    Column,
    DeviceTable,
    Line,
    Row,
    parse_seconds,
)
from orchestrator.results.files import locked
from orchestrator.results.model_name import csv_name, model_name
from orchestrator.results.rows import labels, place, refused_summaries, row_of
from orchestrator.results.store import Report, add_records, log_report

Mode = Literal["generate", "update"]

MINIMUM_GAIN = 0.05  # of the old time; less is within what the established rules call equal

_BLOCKING = frozenset({Status.FAILED, Status.ERROR, Status.TIMEOUT})


@dataclass(frozen=True, order=True)
class Withheld:
    """A case that speaks against a row; ``case`` names it among the cases of its operator.

    ``former`` says that the CSV still has a row of it, from before.
    """

    op: str
    target: str
    case: str
    status: str
    former: bool = False

    def __str__(self) -> str:
        where = f"{self.op} on {self.target}{', ' if self.case else ''}{self.case}"
        return f"{where}: {self.status}{'; its former row stays' if self.former else ''}"


@dataclass
class MergeReport:
    """What became of one CSV, and which cases got no row there."""

    path: Path
    appended: int = 0
    skipped: int = 0
    differing: int = 0  # of those skipped
    updated: int = 0
    kept: int = 0
    withheld: list[Withheld] = field(default_factory=list)

    def event(self) -> Merged:
        """The report as the event that renderers show."""
        return Merged(
            path=str(self.path),
            appended=self.appended,
            skipped=self.skipped,
            differing=self.differing,
            updated=self.updated,
            kept=self.kept,
            withheld=tuple(str(one) for one in self.withheld),
        )


class UnmergedError(TreeError):
    """CSVs that took nothing in; ``reports`` tell of the others."""

    def __init__(self, errors: Sequence[MxfleetError], reports: list[MergeReport]) -> None:
        super().__init__("; ".join(str(error) for error in errors))
        self.reports = reports


@dataclass
class _Bad:
    """A record that speaks against a row, and the rows that it keeps out."""

    record: Record
    blocked: list[Row] = field(default_factory=list)


@dataclass
class _Model:
    """What one run has for one device model."""

    rows: list[Row] = field(default_factory=list)
    bad: dict[Withheld, _Bad] = field(default_factory=dict)

    def withhold(self, record: Record, names: Mapping[str, str], *blocked: Row) -> None:
        case = names.get(record.record_id, "")
        key = Withheld(record.op, place(record), case, record.status.value)
        self.bad.setdefault(key, _Bad(record)).blocked.extend(blocked)


def merge(
    records: Iterable[Record],
    statistics_dir: Path,
    mode: Mode = "generate",
    *,
    report: Report = log_report,
) -> list[MergeReport]:
    """Take ``records`` into ``statistics_dir``; one report per device CSV that they concern.

    Cases that were only verified are left out, from the store too. The store under ``records/``
    comes first, so a full disk at a CSV loses no record. ``report`` hears of broken lines
    (``path:line``). Raises ``TreeError`` when the store cannot be written, ``UnmergedError`` once
    all is done when a CSV cannot be read or written, or is no device CSV; that file is then as it
    was.
    """
    unique: dict[str, Record] = {}
    for record in records:
        if record.measured:  # there is nothing of the others that could be compared
            unique.setdefault(record.record_id, judged(record))
    add_records(unique.values(), statistics_dir / "records", report=report)
    reports: dict[str, MergeReport] = {}
    errors: dict[str, MxfleetError] = {}
    for run in _runs([record for record in unique.values() if not record.profiled]):
        for model, content in sorted(_models(run, report).items()):
            if model in errors:
                continue
            total = reports.setdefault(model, MergeReport(statistics_dir / csv_name(model)))
            try:
                _merge_model(content, total, mode, report)
            except MxfleetError as error:
                errors[model] = error
    if errors:
        merged = [total for model, total in reports.items() if model not in errors]
        raise UnmergedError(list(errors.values()), merged)
    return list(reports.values())


def _merge_model(content: _Model, total: MergeReport, mode: Mode, report: Report) -> None:
    if content.rows:
        _merge_rows(content.rows, total, mode, report)
    if content.bad:
        withheld = _with_former(content, DeviceTable.read(total.path))
        total.withheld += sorted(set(withheld) - set(total.withheld))


def _runs(records: Sequence[Record]) -> list[list[Record]]:
    """Records run by run, oldest first; of each job its attempts taken together."""
    runs: dict[str, list[Record]] = {}
    for record in records:
        runs.setdefault(record.run or "", []).append(record)
    ordered = sorted(runs.items(), key=lambda run: (min(r.started or "" for r in run[1]), run[0]))
    return [_last_attempts(run) for _, run in ordered]


def _last_attempts(run: Sequence[Record]) -> list[Record]:
    """What each job's last attempt left, and of earlier ones the cases that it did not decide."""
    last: dict[tuple[str, ...], int] = {}
    for record in run:
        for key in _decides(record):
            last[key] = max(last.get(key, 0), record.attempt or 0)
    return [
        record
        for record in run
        if any((record.attempt or 0) == last[key] for key in _decides(record))
    ]


def _decides(record: Record) -> list[tuple[str, ...]]:
    job = (place(record), record.op)
    return [job, (*job, record.case_id)] if record.case_id is not None else [job]


def _case(record: Record) -> tuple[str, ...]:
    return (record.op, record.case_id) if record.case_id else (record.op, "", *labels(record))


def _models(run: Sequence[Record], report: Report) -> dict[str, _Model]:
    """What of one run goes to which device model, and what is withheld there."""
    models: dict[str, _Model] = {}
    cases: dict[tuple[str, tuple[str, ...]], list[Record]] = {}
    names = case_names(run)
    refused: dict[str, dict[str, None]] = {}
    for record in run:
        if record.device is None:
            continue
        model = model_name(record.device.name, record.device.kind)
        if record.status is Status.PASSED:
            cases.setdefault((model, _case(record)), []).append(record)
            refused.setdefault(record.op, {}).update(dict.fromkeys(refused_summaries(record)))
        elif record.status in _BLOCKING or record.status is Status.UNVERIFIED:
            models.setdefault(model, _Model()).withhold(record, names)
    for op, summaries in refused.items():
        for name in summaries:
            report(f"{op}: its summary {name!r} is named like a column that is there; left out")
    blocking = [record for record in run if record.status in _BLOCKING]
    for (model, case), passed in sorted(cases.items(), key=lambda item: item[0]):
        found = models.setdefault(model, _Model())
        row = row_of(passed)
        against = [record for record in blocking if _blocks(record, model, case)]
        for record in against:
            found.withhold(record, names, row)
        if not against:
            found.rows.append(row)
    return models


def _blocks(bad: Record, model: str, case: tuple[str, ...]) -> bool:
    """Whether a bad record speaks against the row of ``case`` on ``model``.

    One without a device or a case (a job that crashed) may concern any of its operator's.
    """
    if bad.op != case[0]:
        return False
    if bad.device is not None and model_name(bad.device.name, bad.device.kind) != model:
        return False
    return bad.case_id is None or (bad.op, bad.case_id) == case


def _merge_rows(rows: Sequence[Row], total: MergeReport, mode: Mode, report: Report) -> None:
    with locked(total.path):
        table = DeviceTable.read(total.path)
        for line in table.rejected:
            report(
                f"{total.path}:{line.number}: {line.reason}; kept aside in {table.rejected_path}"
            )
        index = _Index(table, rows)
        for row in rows:
            old = index.find(row)
            if old is None:
                table.append(row)
                total.appended += 1
            elif mode == "generate":
                total.skipped += 1
                total.differing += abs(_gain(table, old, row) or 0.0) > MINIMUM_GAIN
            elif _better(table, old, row):
                table.replace(old, row)
                total.updated += 1
            else:
                total.kept += 1
        table.write()


def _with_former(content: _Model, table: DeviceTable) -> list[Withheld]:
    """What is withheld, saying of each case whether ``table`` still has a row of it."""
    blocked = [row for bad in content.bad.values() for row in bad.blocked]
    index = _Index(table, [*content.rows, *blocked])
    # A row that this run put there, from another target, is no former one.
    fresh = {(row.cells[Column.OP_NAME], row.extra.get(CASE_ID, "")) for row in content.rows}
    return [
        replace(
            key,
            former=any(index.find(row) is not None for row in bad.blocked)
            or (
                (key.op, bad.record.case_id) not in fresh
                and _has_row(table, bad.record, lone=not key.case)
            ),
        )
        for key, bad in content.bad.items()
    ]


def _has_row(table: DeviceTable, record: Record, *, lone: bool) -> bool:
    """Whether ``table`` has a row of the case of ``record``, which often has no labels.

    A row without ``case_id`` is taken for it when both it and the case are their operator's only.
    """
    if record.case_id is None or record.device is None:
        return False
    key = (record.op, model_name(record.device.name))
    cases = [table.extra(line, CASE_ID) for line in table.lines if _old_key(line.cells)[:2] == key]
    return record.case_id in cases or (lone and cases == [""])


def _old_key(cells: Sequence[str]) -> tuple[str, ...]:
    """The key of rows without ``case_id``: the device's model, not its index."""
    labelled = (cells[Column.OP], cells[Column.DTYPE], cells[Column.SHAPE])
    return (cells[Column.OP_NAME], model_name(cells[Column.DEVICE_NAME]), *labelled)


class _Index:
    """Finds the line of a row, as the file was before this merge."""

    def __init__(self, table: DeviceTable, new: Sequence[Row]) -> None:
        self._full: dict[tuple[str, ...], Line] = {}
        self._old: dict[tuple[str, ...], Line] = {}
        self._any: dict[tuple[str, ...], Line] = {}
        for line in table.lines:
            key, case = _old_key(line.cells), table.extra(line, CASE_ID)
            self._any.setdefault(key, line)
            if case:
                self._full.setdefault((*key, case), line)
            else:
                self._old.setdefault(key, line)
        # Cases of a sweep may share an old key: which of them an old row is cannot be told.
        shared: dict[tuple[str, ...], set[str]] = {}
        for row in new:
            shared.setdefault(_old_key(row.cells), set()).add(row.extra.get(CASE_ID, ""))
        self._ambiguous = {key for key, cases in shared.items() if len(cases) > 1}

    def find(self, row: Row) -> Line | None:
        key, case = _old_key(row.cells), row.extra.get(CASE_ID, "")
        if not case:
            return self._old.get(key) or self._any.get(key)
        full = self._full.get((*key, case))
        if full is None and key not in self._ambiguous:
            return self._old.get(key)
        return full


def _better(table: DeviceTable, old: Line, new: Row) -> bool:
    """Whether ``new`` is more than 5 % faster than ``old`` by one timer that both have."""
    if table.extra(old, CASE_ID) and not new.extra.get(CASE_ID):
        return False  # it would put a row of unknown identity in the place of a known one
    gain = _gain(table, old, new)
    return gain is not None and gain > MINIMUM_GAIN


def _gain(table: DeviceTable, old: Line, new: Row) -> float | None:
    """How much faster ``new`` is than ``old``, relative to it, by one timer that both have."""
    pairs = [
        (table.extra(old, GPU_MEDIAN), new.extra.get(GPU_MEDIAN, "")),
        (old.cells[Column.GPU_TIME], new.cells[Column.GPU_TIME]),
    ]
    if not any(cell for pair in pairs for cell in pair):  # a CPU: no GPU time on either side
        pairs = [(old.cells[Column.CPU_TIME], new.cells[Column.CPU_TIME])]
    for before, after in pairs:
        old_time, new_time = parse_seconds(before), parse_seconds(after)
        if old_time and new_time:
            return (old_time - new_time) / old_time
    return None
