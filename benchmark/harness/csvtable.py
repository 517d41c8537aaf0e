"""The performance CSV: established columns by position, read and written without losing a cell.

Names repeat in the header (``Samples``, ``Noise``), so the first eighteen columns are always
addressed by position; what follows them (``GPU Median (sec)``, ``Flags``, ``case_id``, other
people's columns) is addressed by name.
"""

from __future__ import annotations

import fcntl
import io
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from harness import csvlines, files
from harness.errors import TreeError

ESTABLISHED = (
    "op_name",
    "Device",
    "Device Name",
    "Acc_Pass",
    "Cos_Dist",
    "Op",
    "dtype",
    "Shape",
    "Samples",
    "CPU Time (sec)",
    "Noise",
    "GPU Time (sec)",
    "Noise",
    "Elem/s (elem/sec)",
    "GlobalMem BW (bytes/sec)",
    "BWUtil",
    "Samples",
    "Batch GPU (sec)",
)
GPU_MEDIAN = "GPU Median (sec)"
REPEATS = "Repeats"
REPEAT_SPREAD = "Repeat Spread"
FLOP_RATE = "FLOP/s"
FLAGS = "Flags"
CASE_ID = "case_id"
EXTRA = (GPU_MEDIAN, REPEATS, REPEAT_SPREAD, FLOP_RATE, FLAGS, CASE_ID)
_BOM = "\ufeff"
# Micro is written with U+00B5 and with the Greek letter.
_UNITS = {
    "": 1.0,
    "s": 1.0,
    "sec": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "\u00b5s": 1e-6,
    "\u03bcs": 1e-6,
    "ns": 1e-9,
}
_TIME = re.compile(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([a-z\u00b5\u03bc]*)\s*\Z")


class Col(IntEnum):
    """Positions of the established columns."""

    OP_NAME = 0
    DEVICE = 1
    DEVICE_NAME = 2
    ACC_PASS = 3
    COS_DIST = 4
    OP = 5
    DTYPE = 6
    SHAPE = 7
    SAMPLES = 8
    CPU_TIME = 9
    CPU_NOISE = 10
    GPU_TIME = 11
    GPU_NOISE = 12
    ELEMENT_RATE = 13
    BANDWIDTH = 14
    UTILISATION = 15
    BATCH_SAMPLES = 16
    BATCH_TIME = 17


@dataclass
class Row:
    """One new row: the established cells, and further cells by column name."""

    cells: list[str]
    extra: dict[str, str]


@dataclass(frozen=True)
class Rejected:
    """A line that cannot be a row: where it stood, its text, and why."""

    number: int
    raw: str
    reason: str


@dataclass
class Table:
    """A CSV file in memory."""

    header: list[str] = field(default_factory=lambda: [*ESTABLISHED, *EXTRA])
    rows: list[list[str]] = field(default_factory=list)
    # Reported and kept aside as they are, never mended.
    rejected: list[Rejected] = field(default_factory=list)
    line_end: str = "\n"
    bom: bool = False

    def column(self, name: str) -> int | None:
        """Position of a column behind the established ones; None when there is none."""
        for position in range(len(ESTABLISHED), len(self.header)):
            if self.header[position] == name:
                return position
        return None

    def extra(self, row: Sequence[str], name: str) -> str:
        """The cell of ``row`` under an extra column, empty when there is no such column."""
        position = self.column(name)
        return "" if position is None else row[position]

    def row(self, cells: Sequence[str]) -> Row:
        """A row of this table with its further cells by column name."""
        width = len(ESTABLISHED)
        extra: dict[str, str] = {}
        for name, cell in zip(self.header[width:], cells[width:], strict=True):
            extra.setdefault(name, cell)
        return Row([*cells[:width]], extra)

    def replace(self, old: list[str], row: Row) -> None:
        """Put ``row`` in the place of ``old``; cells of columns that ``row`` lacks stay."""
        cells = self.fit(row)
        for position in range(len(ESTABLISHED), len(cells)):
            if self.header[position] not in row.extra:
                cells[position] = old[position]
        old[:] = cells

    def fit(self, row: Row) -> list[str]:
        """``row`` as cells of this table; columns it needs are added (empty for older rows)."""
        for name in [*EXTRA, *row.extra]:
            if self.column(name) is None:
                self.header.append(name)
                for older in self.rows:
                    older.append("")
        cells = row.cells + [""] * (len(self.header) - len(ESTABLISHED))
        for name, value in row.extra.items():
            position = self.column(name)
            assert position is not None
            cells[position] = value
        return cells

    def text(self) -> str:
        """The file's text, with its own line ends."""
        return (_BOM if self.bom else "") + csvlines.join([self.header, *self.rows], self.line_end)


def seconds(cell: str) -> float | None:
    """A time cell in seconds; a unit suffix is understood, a cell without a time is None."""
    match = _TIME.match(cell)
    if match is None or match[2] not in _UNITS:
        return None
    try:
        value = float(match[1]) * _UNITS[match[2]]
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def read(path: Path) -> Table:
    """Read ``path``; a file that is absent or empty gives an empty table.

    Raises ``TreeError`` when the header is not the established one, ``ForeignFileError`` when
    ``path``, links resolved, is no regular file.
    """
    try:
        text = files.read_regular(files.real(path)).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return Table()
    except OSError as error:
        raise TreeError(f"{path}: cannot be read: {error.strerror}") from None
    table = Table(bom=text.startswith(_BOM))
    text = text.removeprefix(_BOM)
    if not text.strip():
        return table
    lines = csvlines.split(text)
    first = next(lines)
    header = first.cells
    table.line_end = "\r\n" if first.raw.endswith("\r\n") else "\n"
    if isinstance(header, str) or tuple(header[: len(ESTABLISHED)]) != ESTABLISHED:
        raise TreeError(
            f"{path}:1: the columns are not those of a performance table; give another --csv"
        )
    table.header = header
    for line in lines:
        if isinstance(line.cells, str):
            table.rejected.append(Rejected(line.number, line.raw, line.cells))
        elif len(line.cells) == len(header):
            table.rows.append(line.cells)
        elif line.cells:
            reason = f"{len(line.cells)} cells where the header has {len(header)}"
            table.rejected.append(Rejected(line.number, line.raw, reason))
    return table


def rejected_path(path: Path) -> Path:
    """Where lines of the table at ``path`` that are no rows are kept."""
    path = files.real(path)
    return path.with_name(f"{path.name}.rejected.csv")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the table at ``path`` against other processes, those that merge into it included."""
    path = files.real(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Read-only and open to the umask: another user of the folder has to be able to lock too.
        lock = path.with_name(f".{path.name}.lock")
        handle = files.open_regular(lock, os.O_RDONLY | os.O_CREAT, 0o666)
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write(path: Path, table: Table) -> None:
    """Replace ``path`` in one step, under ``locked``; raises ``TreeError``, the old file intact.

    Rejected lines are safe in ``rejected_path(path)`` before the table goes on without them.
    """
    path = files.real(path)
    try:
        if table.rejected:
            _add_lines(rejected_path(path), [line.raw for line in table.rejected])
        files.replace(path, table.text().encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise _unwritable(path, error) from None


def _add_lines(path: Path, lines: Sequence[str]) -> None:
    """Append those of ``lines`` that ``path`` lacks (a crash may have left them there already)."""
    whole = [line if line.endswith(("\n", "\r")) else f"{line}\n" for line in lines]
    handle = files.open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    with os.fdopen(handle, "a+", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.seek(0)
        known = set(io.StringIO(file.read(), newline=""))
        file.writelines(line for line in whole if line not in known)
        file.flush()
        os.fsync(file.fileno())


def _unwritable(path: Path, error: OSError) -> TreeError:
    return TreeError(f"{path}: cannot be written ({error.strerror}), its old content is as it was")


def row_of(record: dict[str, Any], cos_dist: str) -> Row:
    """The row of a verified record; cells without a value are empty."""
    timers, rates, summaries = record["timers"], record["rates"], dict(record["summaries"])
    cold, cpu, batch = timers["cold_gpu"] or {}, timers["cpu"] or {}, timers["batch_gpu"] or {}
    named = [summaries.pop(name, None) for name in ("Op", "dtype", "Shape")]
    cells = [
        record["op"],
        record["device"]["index"],
        record["device"]["name"],
        "Yes",
        cos_dist,
        *named,
        (cold or cpu).get("samples"),
        cpu.get("mean"),
        cpu.get("noise"),
        cold.get("mean"),
        cold.get("noise"),
        rates["elements_per_second"],
        rates["bytes_per_second"],
        rates["bandwidth_utilisation"],
        batch.get("samples"),
        batch.get("mean"),
    ]
    extra = {name: _cell(value) for name, value in summaries.items()}
    extra |= {
        GPU_MEDIAN: _cell(cold.get("median")),
        REPEATS: _cell(record["repeats"]),
        REPEAT_SPREAD: _cell(record["repeat_spread"]),
        FLOP_RATE: _cell(_flop_rate(record)),
        FLAGS: _cell(" ".join(record["flags"])),
        CASE_ID: _cell(record["case_id"]),
    }
    return Row([_cell(value) for value in cells], extra)


def _flop_rate(record: dict[str, Any]) -> float | None:
    """Declared FLOPs over the headline time: cold GPU time, on a CPU the CPU's."""
    name = "cpu" if record["device"]["kind"] == "cpu" else "cold_gpu"
    timer = record["timers"][name] or {}
    time = timer.get("median") or timer.get("mean")
    return record["flops"] / time if time and record["flops"] is not None else None


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    # A NUL makes the csv module of Python 3.10 give up the line; a lone surrogate has no UTF-8.
    return str(value).replace("\0", "\\x00").encode("utf-8", "replace").decode("utf-8")
