"""The CSV of one device model: established columns by position, and nothing lost on the way.

Two column names occur twice (``Samples``, ``Noise``), so the first 18 columns are known by
position; the columns behind them are known by name. A line that is not changed is written back
byte for byte: its quoting, its line end, bytes that are not UTF-8. A line of the wrong width is
neither padded nor cut: it goes, as it is, to ``NAME.csv.rejected.csv`` when the file is written.
"""

from __future__ import annotations

import csv
import io
import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from orchestrator.errors import TreeError
from orchestrator.results.files import read_bytes, replace

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
WIDTH = len(ESTABLISHED)

GPU_MEDIAN = "GPU Median (sec)"
REPEATS = "Repeats"
REPEAT_SPREAD = "Repeat Spread"
FLOP_RATE = "FLOP/s"
FLAGS = "Flags"
CASE_ID = "case_id"
EXTRA = (GPU_MEDIAN, REPEATS, REPEAT_SPREAD, FLOP_RATE, FLAGS, CASE_ID)

_BOM = b"\xef\xbb\xbf"
# Both characters that are written for micro: U+00B5 and the Greek letter.
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


class Column(IntEnum):
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
    ELEMENTS_PER_SECOND = 13
    BYTES_PER_SECOND = 14
    BANDWIDTH_UTILISATION = 15
    BATCH_SAMPLES = 16
    BATCH_TIME = 17


@dataclass(frozen=True)
class Row:
    """One row to write: the 18 established cells in order and further cells by column name."""

    cells: tuple[str, ...]
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Line:
    """One row of a file; ``raw`` is its text there, None once its cells differ from it."""

    cells: list[str]
    raw: str | None = None


@dataclass(frozen=True)
class Rejected:
    """A line that cannot be a row: where it stood, its text, and why."""

    number: int
    raw: str
    reason: str


def parse_seconds(cell: str) -> float | None:
    """Seconds of a time cell (plain seconds or a value in s, ms, us, ns); None if it is none."""
    match = _TIME.match(cell)
    if match is None or match[2] not in _UNITS:
        return None
    try:
        seconds = float(match[1]) * _UNITS[match[2]]
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None


class DeviceTable:
    """A device CSV in memory: ``header``, the rows in ``lines``, what was ``rejected``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = [*ESTABLISHED, *EXTRA]
        self.lines: list[Line] = []
        self.rejected: list[Rejected] = []
        self.changed = False
        self._bom = b""
        self._newline = "\n"
        self._header_raw: str | None = None

    @classmethod
    def read(cls, path: Path) -> DeviceTable:
        """Read ``path``; a missing or empty file is an empty table with our columns.

        Raises ``TreeError`` when the first 18 column names are not the established ones.
        """
        table = cls(path)
        data = read_bytes(path)
        if data:
            table._bom = _BOM if data.startswith(_BOM) else b""
            # Bytes that are not UTF-8 (a name in GBK, say) have to come out as they went in.
            table._parse(data[len(table._bom) :].decode("utf-8", "surrogateescape"))
        return table

    def _parse(self, text: str) -> None:
        physical = list(io.StringIO(text, newline=""))
        for number, cells, raw in _split(physical):
            if self._header_raw is None:
                self._take_header(cells, raw)
            elif isinstance(cells, str):
                self.rejected.append(Rejected(number, raw, cells))
            elif cells:  # an empty line is no row and nothing to keep
                if len(cells) == len(self.header):
                    self.lines.append(Line(cells, raw))
                else:
                    reason = f"{len(cells)} cells where the header has {len(self.header)}"
                    self.rejected.append(Rejected(number, raw, reason))

    def _take_header(self, cells: list[str] | str, raw: str) -> None:
        names = [] if isinstance(cells, str) else [cell.strip() for cell in cells]
        if tuple(names[:WIDTH]) != ESTABLISHED:
            wrong = next((p for p, name in enumerate(ESTABLISHED) if names[p : p + 1] != [name]), 0)
            found = repr(names[wrong]) if wrong < len(names) else "nothing"
            raise TreeError(
                f"column {wrong + 1} of the header is {found}, not {ESTABLISHED[wrong]!r}",
                where=f"{self.path}:1",
                hint="move the file away or give it the established columns",
            )
        self.header = names
        self._header_raw = raw
        self._newline = "\r\n" if raw.endswith("\r\n") else "\n"

    def extra(self, line: Line, name: str) -> str:
        """The cell of ``line`` in the extra column ``name``; empty where there is none."""
        position = self._extra_position(name)
        return "" if position is None else line.cells[position]

    def append(self, row: Row) -> None:
        """Add ``row`` at the end; extra columns that the file lacks are added to it."""
        self._add_columns(row)
        line = Line([*row.cells, *[""] * (len(self.header) - WIDTH)])
        self._fill(line, row)
        self.lines.append(line)

    def replace(self, line: Line, row: Row) -> None:
        """Put ``row`` in the place of ``line``; cells of columns that ``row`` lacks stay."""
        self._add_columns(row)
        line.cells[:WIDTH] = row.cells
        self._fill(line, row)

    def _fill(self, line: Line, row: Row) -> None:
        for name, cell in row.extra.items():
            position = self._extra_position(name)
            if position is not None:
                line.cells[position] = cell
        line.raw = None
        self.changed = True

    def _extra_position(self, name: str) -> int | None:
        try:
            return self.header.index(name, WIDTH)
        except ValueError:
            return None

    def _add_columns(self, row: Row) -> None:
        missing = [name for name in row.extra if self._extra_position(name) is None]
        if missing:
            self.header += missing
            self._header_raw = None
            for line in self.lines:
                line.cells += [""] * len(missing)
                line.raw = None

    def encode(self) -> bytes:
        """The file's bytes, without the rejected lines."""
        raws = [self._header_raw or self._encode(self.header)]
        raws += [
            line.raw if line.raw is not None else self._encode(line.cells) for line in self.lines
        ]
        ended = [raw if raw.endswith(("\n", "\r")) else raw + self._newline for raw in raws]
        return self._bom + "".join(ended).encode("utf-8", "surrogateescape")

    def _encode(self, cells: list[str]) -> str:
        # csv quotes the characters of its own line end only, and readers end a line at either.
        buffer = io.StringIO(newline="")
        csv.writer(buffer, lineterminator="\r\n").writerow(cells)
        return buffer.getvalue().removesuffix("\r\n") + self._newline

    @property
    def rejected_path(self) -> Path:
        """Where lines that are no rows are kept: beside the file itself, not a link to it."""
        path = self.path.resolve()
        return path.with_name(f"{path.name}.rejected.csv")

    def write(self) -> None:
        """Write what changed, under ``files.locked(path)``; raises ``TreeError``, old file intact.

        The rejected lines are safe in their own file before the CSV goes on without them.
        """
        if self.rejected:
            kept = read_bytes(self.rejected_path) or b""
            known = set(kept.splitlines(keepends=True))
            raws = [line.raw.encode("utf-8", "surrogateescape") for line in self.rejected]
            whole = [raw if raw.endswith((b"\n", b"\r")) else raw + b"\n" for raw in raws]
            # A crash between the two writes leaves them here already.
            replace(self.rejected_path, kept + b"".join(raw for raw in whole if raw not in known))
        if self.changed or self.rejected:
            replace(self.path, self.encode())
        self.changed = False
        self.rejected = []


def _split(physical: list[str]) -> Iterator[tuple[int, list[str] | str, str]]:
    """Yield (line number, cells or why there are none, text) of each row.

    A row may span lines inside quotes. When such a row has not the width of the first one, its
    quote is taken for a stray one and only its first line is given up, not all that follow.
    """
    csv.field_size_limit(sys.maxsize)
    width: int | None = None
    start = 0
    while start < len(physical):
        rows = csv.reader(iter(physical[start:]))
        taken = 0
        for cells in _guarded(rows):
            raw = "".join(physical[start + taken : start + rows.line_num])
            spans = rows.line_num - taken > 1
            if isinstance(cells, str) or (spans and width is not None and len(cells) != width):
                why = cells if isinstance(cells, str) else "a quote in it is not closed"
                yield start + taken + 1, why, physical[start + taken]
                taken += 1
                break
            width = len(cells) if width is None else width
            yield start + taken + 1, cells, raw
            taken = rows.line_num
        start += taken


def _guarded(rows: Iterator[list[str]]) -> Iterator[list[str] | str]:
    """The rows of a reader; a csv error becomes its text and ends them."""
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield str(error)
            return
