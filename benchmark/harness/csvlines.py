"""A CSV text to its rows, such that one broken row costs no other; and rows to their text.

A row may span lines inside quotes. A stray quote would swallow all that follows it, so a row over
several lines that has not the width of the first one loses its first line only.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """A row: the number of its first line, its text there, and its cells or why it has none."""

    number: int
    raw: str
    cells: list[str] | str


def split(text: str) -> Iterator[Line]:
    """Yield the rows of ``text``, empty ones (no cells) too; the first one sets the width."""
    csv.field_size_limit(sys.maxsize)
    physical = list(io.StringIO(text, newline=""))
    width: int | None = None
    start = 0
    while start < len(physical):
        rows = csv.reader(iter(physical[start:]))
        taken = 0
        for cells in _guarded(rows):
            spans = rows.line_num - taken > 1
            if isinstance(cells, str) or (spans and width is not None and len(cells) != width):
                why = cells if isinstance(cells, str) else "a quote in it is not closed"
                yield Line(start + taken + 1, physical[start + taken], why)
                taken += 1
                break
            width = len(cells) if width is None else width
            raw = "".join(physical[start + taken : start + rows.line_num])
            yield Line(start + taken + 1, raw, cells)
            taken = rows.line_num
        start += taken


def join(rows: Sequence[Sequence[object]], line_end: str = "\n") -> str:
    """The text of ``rows``, from which ``split`` makes the same cells."""
    buffer = io.StringIO(newline="")
    # csv quotes the characters of its own line end only, and readers end a line at either.
    writer = csv.writer(buffer, lineterminator="\r\n")
    lines = []
    for row in rows:
        writer.writerow(row)
        lines.append(buffer.getvalue().removesuffix("\r\n") + line_end)
        buffer.seek(0)
        buffer.truncate()
    return "".join(lines)


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
