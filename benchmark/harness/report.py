"""testall's comparison with a table, as ``.xlsx`` (a summary, a sheet an operator) or ``.csv``.

Every case is in it, also one that failed or never ran: its status says why it has no number.
``pair`` finds each record's row of the table, ``write`` makes the file, whole or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness import csvmodes, csvtable, sheets
from harness.csvtable import Col, Row
from harness.errors import TreeError
from harness.sheets import COUNT, RATE, SECONDS, SHARE, TEXT, Sheet, Value

Record = dict[str, Any]
Entry = tuple[Record, "Row | None"]
"""A case's record, and the row of the table that it is held against."""

SUFFIXES = (".xlsx", ".csv")
_IDENTITY = (("op",), ("device", "name"), ("case_id",))


class _Column(NamedTuple):
    """A table's column on an operator's sheet, where doubled names are told apart.

    ``gap`` is how baseline and current are held against each other: ``change`` is a share of the
    baseline, ``difference`` is in the column's own unit, an empty one is no number.
    """

    title: str
    kind: str = TEXT
    gap: str = ""


_ESTABLISHED = (
    _Column("op_name"),
    _Column("Device", COUNT),
    _Column("Device Name"),
    _Column("Acc_Pass"),
    _Column("Cos_Dist", RATE, "difference"),
    _Column("Op"),
    _Column("dtype"),
    _Column("Shape"),
    _Column("Samples", COUNT, "difference"),
    _Column("CPU Time (sec)", SECONDS, "change"),
    _Column("CPU Noise", SHARE, "difference"),
    _Column("GPU Time (sec)", SECONDS, "change"),
    _Column("GPU Noise", SHARE, "difference"),
    _Column("Elem/s (elem/sec)", RATE, "change"),
    _Column("GlobalMem BW (bytes/sec)", RATE, "change"),
    _Column("BWUtil", SHARE, "difference"),
    _Column("Batch Samples", COUNT, "difference"),
    _Column("Batch GPU (sec)", SECONDS, "change"),
)
_EXTRA = (
    _Column(csvtable.GPU_MEDIAN, SECONDS, "change"),
    _Column(csvtable.REPEATS, COUNT, "difference"),
    _Column(csvtable.REPEAT_SPREAD, SHARE, "difference"),
    _Column(csvtable.FLOP_RATE, RATE, "change"),
    _Column(csvtable.FLAGS),
    _Column(csvtable.CASE_ID),
)
_SUMMARY = (
    ("Operator", TEXT),
    ("Case", TEXT),
    ("Device", TEXT),
    ("Acc verify", TEXT),
    ("Baseline time (sec)", SECONDS),
    ("Current time (sec)", SECONDS),
    ("Performance", SHARE),
    ("Status", TEXT),
    ("Flags", TEXT),
    ("Noise", SHARE),
    ("Repeat spread", SHARE),
    ("Timer", TEXT),
    ("Note", TEXT),
)


def check(path: Path) -> None:
    """Raise ``TreeError`` or ``ForeignFileError`` when no report can be written to ``path``."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise TreeError(f"--output {path}: name a file that ends in {' or '.join(SUFFIXES)}")
    if suffix == ".xlsx":
        sheets.require_openpyxl()
    sheets.check_writable(path)


def stand_in(op: str, status: str, message: str) -> Record:
    """What stands for an operator in a report when no record says what became of it."""
    return {"op": op, "status": status, "error": {"type": status, "message": message}}


def pair(table: Path, records: Sequence[Record]) -> list[Entry]:
    """All ``records`` of a run with their rows of ``table``, found by the rules of ``csvmodes``.

    Raises ``TreeError`` when ``table`` is no performance table.
    """
    old = csvtable.read(table)
    rows = [_row(record) for record in records]
    index = csvmodes.Index(old, [row for row in rows if row is not None])
    cases: dict[str, set[str]] = {}
    for record in records:
        cases.setdefault(_text(record, "op"), set()).add(_text(record, "case_id"))
    entries: list[Entry] = []
    for record, row in zip(records, rows, strict=True):
        found = None if row is None else index.find(row)
        if found is None and record.get("status") != "PASSED":
            # It may not have got to its labels.
            op, device, case = (_text(record, *path) for path in _IDENTITY)
            found = index.find_case(op, device, case, lone=len(cases[op]) == 1)
        entries.append((record, None if found is None else old.row(found)))
    return entries


def write(path: Path, entries: Sequence[Entry]) -> None:
    """Write the report on ``entries`` to ``path``; raises ``TreeError``, an old file intact."""
    by_op: dict[str, list[_Case]] = {}
    for (record, old), name in zip(entries, _names([record for record, _ in entries]), strict=True):
        case = _Case(record, old, _row(record), name)
        by_op.setdefault(_text(record, "op"), []).append(case)
    lines = [_summary(case) for cases in by_op.values() for case in cases]
    summary = Sheet("Summary", _SUMMARY, lines)
    if path.suffix.lower() == ".csv":
        sheets.write_csv(path, summary)
    else:
        sheets.write_xlsx(path, [summary, *(_details(op, by_op[op]) for op in by_op)])


class _Case(NamedTuple):
    record: Record
    old: Row | None
    new: Row | None
    swept: str

    @property
    def name(self) -> str:
        """What tells it from the operator's other cases, else its dtype and shape."""
        row = self.new or self.old
        labels = [] if row is None else [row.cells[Col.DTYPE], row.cells[Col.SHAPE]]
        return self.swept or " ".join(label for label in labels if label)


def _row(record: Record) -> Row | None:
    """The row of a record of any status; None for one that is not as the harness writes it."""
    distance = _get(record, "verification", "metrics", "one_minus_cosine")
    try:
        row = csvtable.row_of(record, f"{distance:.2e}" if distance is not None else "")
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        return None
    passed = {"PASSED": "Yes", "FAILED": "No"}
    row.cells[Col.ACC_PASS] = passed.get(_text(record, "status"), "")
    return row


def _summary(case: _Case) -> list[Value]:
    record, old, new = case.record, case.old, case.new
    status = _text(record, "status")
    pair = None
    if status == "PASSED" and old is not None and new is not None:
        pair = csvmodes.times(old, new)
    before, after = _time(old), _time(new)
    if pair is not None:
        before, after = (pair.before, pair.timer), (pair.after, pair.timer)
    noise = Col.CPU_NOISE if after[1] == "CPU mean" else Col.GPU_NOISE
    return [
        _text(record, "op"),
        case.name,
        _text(record, "device", "name"),
        {"PASSED": "Pass", "FAILED": "Fail"}.get(status, "None"),
        before[0],
        after[0],
        None if pair is None else pair.before / pair.after,
        status,
        "" if new is None else new.extra[csvtable.FLAGS],
        None if new is None or after[0] is None else _number(new.cells[noise]),
        None if new is None else _number(new.extra[csvtable.REPEAT_SPREAD]),
        after[1] or before[1],
        "; ".join(_notes(record, old, compared=pair is not None)),
    ]


def _time(row: Row | None) -> tuple[float | None, str]:
    """Seconds of a row that is held against nothing, and the timer."""
    pair = None if row is None else csvmodes.times(row, row)
    return (None, "") if pair is None else (pair.before, pair.timer)


def _notes(record: Record, old: Row | None, *, compared: bool) -> list[str]:
    status, notes = _text(record, "status"), []
    if message := _text(record, "error", "message"):
        kind = _text(record, "error", "type")
        notes.append(message if kind in ("", status) else f"{kind}: {message}")
    if reason := _text(record, "known_failure", "reason"):
        day = _text(record, "known_failure", "expires")
        until = "expired" if _get(record, "known_failure", "expired") else "until"
        notes.append(f"known failure ({until} {day}): {reason}")
    limits = _get(record, "verification", "thresholds")
    for limit in limits if isinstance(limits, list) else ():
        if _get(limit, "outside_rules"):
            reason = _text(limit, "reason") or "no reason given"
            what = f"{_text(limit, 'check')} threshold {_text(limit, 'threshold')}".strip()
            notes.append(f"{what} is outside the rules: {reason}")
    if overruled := _get(record, "verification", "overruled"):
        notes.append(f"the runner passes what the check refused: {_listed(overruled)}")
    if _get(record, "verification", "own_check"):
        notes.append("verified by a check of the runner's own")
    if expected := _text(record, "environment", "device_expected"):
        notes.append(expected)
    if status == "PASSED" and not compared:
        notes.append("no row in the table" if old is None else "no timer that both rows have")
    return [" ".join(note.split()) for note in notes]


def _details(op: str, cases: Sequence[_Case]) -> Sheet:
    """Each column of the baseline row and of the current one side by side, and what differs."""
    rows = [row for case in cases for row in (case.old, case.new) if row is not None]
    ours = [column.title for column in _EXTRA]
    others = dict.fromkeys(name for row in rows for name in row.extra if name not in ours)
    named = [*_EXTRA, *map(_Column, others)]
    columns = [("Case", TEXT), ("Status", TEXT)]
    for column in (*_ESTABLISHED, *named):
        columns += [(f"{column.title} {side}", column.kind) for side in ("baseline", "current")]
        if column.gap:
            kind = SHARE if column.gap == "change" else column.kind
            columns.append((f"{column.title} {column.gap}", kind))
    lines = []
    for case in cases:
        line: list[Value] = [case.name, _text(case.record, "status")]
        for place, column in enumerate(_ESTABLISHED):
            both = ["" if row is None else row.cells[place] for row in (case.old, case.new)]
            line += _beside(column, *both)
        for column in named:
            both = [
                "" if r is None else r.extra.get(column.title, "") for r in (case.old, case.new)
            ]
            line += _beside(column, *both)
        lines.append(line)
    return Sheet(op, columns, lines)


def _beside(column: _Column, before: str, after: str) -> list[Value]:
    if column.kind == TEXT:
        return [before, after]
    numbers = [
        csvtable.seconds(c) if column.kind == SECONDS else _number(c) for c in (before, after)
    ]
    shown = [n if n is not None else cell for n, cell in zip(numbers, (before, after), strict=True)]
    if not column.gap:
        return [*shown]
    old, new = numbers
    gap = None
    if old is not None and new is not None:
        gap = new - old
        if column.gap == "change":
            gap = gap / old if old else None
    return [*shown, gap]


def _names(records: Sequence[Record]) -> list[str]:
    """For each record the parameters in which its operator's cases differ: ``rows=8 bits=4``."""
    by_op: dict[str, list[dict[str, Any]]] = {}
    each = []
    for record in records:
        found = _get(record, "parameters")
        parameters = found if isinstance(found, dict) else {}
        cases = by_op.setdefault(_text(record, "op"), [])
        if parameters:
            cases.append(parameters)
        each.append((parameters, cases))
    names = []
    for parameters, cases in each:
        swept = [key for key in parameters if len({repr(case.get(key)) for case in cases}) > 1]
        names.append(" ".join(f"{key}={parameters[key]}" for key in swept))
    return names


def _get(value: Any, *path: str) -> Any:
    """What lies at ``path`` in a record; None where it does not have that."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text(value: Any, *path: str) -> str:
    found = _get(value, *path)
    return "" if found is None else str(found)


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _number(cell: str) -> float | None:
    """A number, also one in percent; None for anything else."""
    share = cell.strip().endswith("%")
    try:
        value = float(cell.strip().removesuffix("%"))
    except ValueError:
        return None
    return (value / 100 if share else value) if math.isfinite(value) else None
