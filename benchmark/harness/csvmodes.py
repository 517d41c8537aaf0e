"""``--generate``, ``--update`` and ``--compare``: what one measured row does to a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import csvtable, markers
from harness.csvtable import Col, Row, Table

# A row is replaced when the new time is more than this share below the old one.
UPDATE_GAIN = 0.05


@dataclass
class Tally:
    """How many rows went which way."""

    appended: int = 0
    skipped: int = 0
    updated: int = 0
    kept: int = 0

    def summary(self, mode: str) -> None:
        """Print the established summary line of ``mode`` (compare has none)."""
        if mode == "generate":
            markers.say(f"[SUMMARY] Appended: {self.appended}, Skipped: {self.skipped}")
        elif mode == "update":
            markers.say(f"[SUMMARY] Updated: {self.updated}, Kept: {self.kept}")


def times(table: Table, old: Sequence[str], new: Sequence[str]) -> tuple[float, float] | None:
    """The same timer's seconds of both rows, the best that both have; None when there is none.

    Median cold GPU time, else its mean (older rows), else CPU time.
    """
    def pick(row: Sequence[str]) -> list[float | None]:
        return [
            csvtable.seconds(table.extra(row, "GPU Median (sec)")),
            csvtable.seconds(row[Col.GPU_TIME]),
            csvtable.seconds(row[Col.CPU_TIME]),
        ]

    for before, after in zip(pick(old), pick(new), strict=True):
        if before and after:
            return before, after
    return None


def apply(path: Path, mode: str, row: Row, tally: Tally) -> None:
    """Generate or update: bring ``row`` into the file at ``path``, under its lock."""
    with csvtable.locked(path):
        table = csvtable.read(path)
        report_rejected(path, table)
        cells = table.fit(row)
        if mode == "generate":
            changed = _generate(table, cells, tally)
        else:
            changed = _update(table, cells, tally)
        if changed:
            csvtable.write(path, table)


def report_rejected(path: Path, table: Table) -> None:
    """Name every row of the wrong width with file and line."""
    for line, cells in table.rejected:
        markers.warn(
            f"{path}:{line}: {len(cells)} cells where the header has {len(table.header)}; "
            f"the row is left out (a comma in a cell needs quotes)"
        )


def _generate(table: Table, cells: list[str], tally: Tally) -> bool:
    op = cells[Col.OP_NAME]
    if table.find(cells) is not None:
        markers.say(f"[SKIP] {op} {cells[Col.SHAPE]} (Exists)")
        tally.skipped += 1
        return False
    table.rows.append(cells)
    markers.say(f"[APPEND] {op}")
    tally.appended += 1
    return True


def _update(table: Table, cells: list[str], tally: Tally) -> bool:
    op = cells[Col.OP_NAME]
    index = table.find(cells)
    if index is None:
        table.rows.append(cells)
        markers.say(f"[NEW] {op}")
        tally.updated += 1
        return True
    pair = times(table, table.rows[index], cells)
    if pair is None:
        markers.say(f"[IGNORED] {op} (no timer that both rows have)")
        tally.kept += 1
        return False
    gain = (pair[0] - pair[1]) / pair[0]
    if gain > UPDATE_GAIN:
        table.rows[index] = cells
        markers.say(f"[UPDATE] {op} {pair[0]:.3e} -> {pair[1]:.3e} Gain: {gain:.1%}")
        tally.updated += 1
        return True
    word = "Gain" if gain >= 0 else "Loss"
    markers.say(f"[KEEP] {op} {word}: {abs(gain):.1%}")
    tally.kept += 1
    return False


def compare(path: Path, op: str, acc: str, row: Row | None, output: Path | None) -> None:
    """Print how a case stands against the file; ``acc`` is Pass, Fail or None. Writes no table."""
    table = csvtable.read(path)
    report_rejected(path, table)
    baseline = current = None
    if row is not None:
        cells = table.fit(row)
        index = table.find(cells)
        pair = None if index is None else times(table, table.rows[index], cells)
        if pair is not None:
            baseline, current = pair
    share = f"{baseline / current:.2%}" if baseline and current else "None"
    markers.say("Result:")
    markers.say(f"Acc verify:{acc}")
    markers.say(f"Performance verify:{share}")
    if output is not None:
        fresh = not output.exists() or output.stat().st_size == 0
        with output.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            if fresh:
                writer.writerow(["op_name", "case_id", "acc", "baseline", "current", "performance"])
            identity = "" if row is None else row.extra["case_id"]
            writer.writerow([op, identity, acc, baseline or "", current or "", share])
