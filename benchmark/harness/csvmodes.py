"""``--generate``, ``--update`` and ``--compare``: what measured rows do to a CSV file.

All rows of a run are brought in at once: only then can be told which of them an old row, from
before the ``case_id`` column, may stand for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harness import csvlines, csvtable, files, markers
from harness.csvtable import CASE_ID, GPU_MEDIAN, Col, Row, Table
from harness.environment import device_model

# A row is replaced when the new time is more than this share below the old one.
UPDATE_GAIN = 0.05

# A case as compare reports it: Pass, Fail or None, and its row when there is one.
Compared = tuple[str, "Row | None"]


class Pair(NamedTuple):
    """Seconds of an old and a new row by the same ``timer``."""

    before: float
    after: float
    timer: str


def generate(path: Path, rows: Sequence[Row]) -> None:
    """Append the rows that the file at ``path`` lacks."""
    appended = skipped = 0
    with csvtable.locked(path):
        table = _read(path, writes=True)
        index = Index(table, rows)
        for row in rows:
            op = row.cells[Col.OP_NAME]
            if index.find(row) is not None:
                markers.say(f"[SKIP] {op} {row.cells[Col.SHAPE]} (Exists)")
                skipped += 1
                continue
            table.rows.append(table.fit(row))
            markers.say(f"[APPEND] {op}")
            appended += 1
        if appended or table.rejected:
            csvtable.write(path, table)
    markers.say(f"[SUMMARY] Appended: {appended}, Skipped: {skipped}")


def update(path: Path, rows: Sequence[Row]) -> None:
    """Replace rows of the file that got more than 5 % faster; append those it lacks."""
    updated = kept = 0
    with csvtable.locked(path):
        table = _read(path, writes=True)
        index = Index(table, rows)
        for row in rows:
            old = index.find(row)
            if old is None:
                table.rows.append(table.fit(row))
                markers.say(f"[NEW] {row.cells[Col.OP_NAME]}")
                updated += 1
            elif _faster(table, old, row):
                table.replace(old, row)
                updated += 1
            else:
                kept += 1
        if updated or table.rejected:
            csvtable.write(path, table)
    markers.say(f"[SUMMARY] Updated: {updated}, Kept: {kept}")


def _faster(table: Table, old: list[str], row: Row) -> bool:
    op = row.cells[Col.OP_NAME]
    pair = times(table.row(old), row)
    if pair is None:
        markers.say(f"[IGNORED] {op} (no timer that both rows have)")
        return False
    gain = (pair.before - pair.after) / pair.before
    if gain > UPDATE_GAIN:
        markers.say(f"[UPDATE] {op} {pair.before:.3e} -> {pair.after:.3e} Gain: {gain:.1%}")
        return True
    markers.say(f"[KEEP] {op} {'Gain' if gain >= 0 else 'Loss'}: {abs(gain):.1%}")
    return False


def compare(path: Path, op: str, cases: Sequence[Compared], output: Path | None) -> None:
    """Print how each case stands against the file at ``path``, which is not changed.

    ``output``: a CSV to which the same is appended.
    """
    table = _read(path, writes=False)
    index = Index(table, [row for _, row in cases if row is not None])
    lines = []
    for acc, row in cases:
        old = None if row is None else index.find(row)
        pair = None if row is None or old is None else times(table.row(old), row)
        share = "None" if pair is None else f"{pair.before / pair.after:.2%}"
        markers.say("Result:")
        markers.say(f"Acc verify:{acc}")
        markers.say(f"Performance verify:{share}")
        case = "" if row is None else row.extra[CASE_ID]
        both = ("", "") if pair is None else (str(pair.before), str(pair.after))
        lines.append([op, case, acc, *both, share])
    if output is not None:
        handle = files.open_regular(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        fresh = os.fstat(handle).st_size == 0
        with os.fdopen(handle, "a", encoding="utf-8", newline="") as file:
            if fresh:
                lines.insert(0, ["op_name", "case_id", "acc", "baseline", "current", "performance"])
            file.write(csvlines.join(lines))


def times(old: Row, new: Row) -> Pair | None:
    """The times of the old and the new row by the same timer; None when they share none.

    Median cold GPU time, else its mean (older rows); CPU time only where neither saw a GPU.
    """
    pairs = [
        (old.extra.get(GPU_MEDIAN, ""), new.extra.get(GPU_MEDIAN, ""), "GPU median"),
        (old.cells[Col.GPU_TIME], new.cells[Col.GPU_TIME], "GPU mean"),
    ]
    if not any(before or after for before, after, _ in pairs):
        pairs = [(old.cells[Col.CPU_TIME], new.cells[Col.CPU_TIME], "CPU mean")]
    for before, after, timer in pairs:
        was, now = csvtable.seconds(before), csvtable.seconds(after)
        if was and now:
            return Pair(was, now, timer)
    return None


def _read(path: Path, *, writes: bool) -> Table:
    """Read the table and name every line that is no row with file and number."""
    table = csvtable.read(path)
    for line in table.rejected:
        aside = f"kept aside in {csvtable.rejected_path(path)}" if writes else "not compared with"
        markers.warn(
            f"{path}:{line.number}: {line.reason}; {aside} (a comma in a cell needs quotes)"
        )
    return table


def _old_key(cells: Sequence[str]) -> tuple[str, ...]:
    """What rows without ``case_id`` go by: the device's model counts, not its index."""
    return (cells[Col.OP_NAME], device_model(cells[Col.DEVICE_NAME]), *cells[Col.OP : Col.SAMPLES])


class Index:
    """Finds a new row's older self in a table, as the table was before this run."""

    def __init__(self, table: Table, new: Sequence[Row]) -> None:
        self._table = table
        self._by_case: dict[tuple[str, ...], list[str]] = {}
        self._by_labels: dict[tuple[str, ...], list[str]] = {}
        self._by_op: dict[tuple[str, ...], list[list[str]]] = {}
        for cells in table.rows:
            case = table.extra(cells, CASE_ID)
            self._by_op.setdefault(_old_key(cells)[:2], []).append(cells)
            if case:
                self._by_case.setdefault((*_old_key(cells), case), cells)
            else:
                self._by_labels.setdefault(_old_key(cells), cells)
        keys = [_old_key(row.cells) for row in new]
        # Cases of a sweep may share their labels: which of them an old row is cannot be told.
        self._ambiguous = {key for key in keys if keys.count(key) > 1}

    def find(self, row: Row) -> list[str] | None:
        """The cells of the older self of ``row``."""
        key = _old_key(row.cells)
        found = self._by_case.get((*key, row.extra[CASE_ID]))
        if found is None and key not in self._ambiguous:
            return self._by_labels.get(key)
        return found

    def find_case(self, op: str, device_name: str, case: str, *, lone: bool) -> list[str] | None:
        """The cells of a case that did not get to its labels.

        A row without ``case_id`` is taken for it when both it and the case (``lone``) are their
        operator's only.
        """
        rows = self._by_op.get((op, device_model(device_name)), [])
        found = [cells for cells in rows if case and self._table.extra(cells, CASE_ID) == case]
        if found or not lone or len(rows) != 1 or self._table.extra(rows[0], CASE_ID):
            return found[0] if found else None
        return rows[0]
