"""Tables of a report as an Excel workbook (needs openpyxl) or as CSV, written whole or not at all.

What a runner, a device or a failure's message says is text wherever it goes: a spreadsheet program
must never take it for a formula.
"""

from __future__ import annotations

import importlib
import io
import math
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import csvlines, files
from harness.errors import ForeignFileError, TreeError

Value = str | float | int | None

# Excel's number formats.
TEXT = "General"
COUNT = "0"
SECONDS = "0.000E+00"
RATE = "0.00E+00"
SHARE = "0.00%"

_LONGEST_NAME = 31
_LONGEST_CELL = 32_767
_NO_NAME = re.compile(r"[\[\]:*?/\\\x00-\x1f\ud800-\udfff\ufffe\uffff]")
# XML has no place for these.
_UNSHOWN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_RESERVED = frozenset({"history"})
_WIDTHS = (8, 60)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Sheet:
    """A table: columns by name and number format, and rows of values."""

    title: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Value]]


def require_openpyxl() -> Any:
    """Return the package; raises ``TreeError`` saying how to get it."""
    try:
        return importlib.import_module("openpyxl")
    except ImportError:
        raise TreeError(
            "an .xlsx report needs openpyxl, which this Python lacks: pip install openpyxl, "
            "or name a .csv"
        ) from None


def check_writable(path: Path) -> None:
    """Raise ``TreeError`` or ``ForeignFileError`` when ``path`` cannot be written."""
    path = files.real(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            raise ForeignFileError(f"{path}: is no regular file; name another one for the report")
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}."):
            pass
    except OSError as error:
        raise _unwritable(path, error) from None


def write_csv(path: Path, sheet: Sheet) -> None:
    """Write ``sheet`` to ``path``; text that looks like a formula gets an apostrophe in front."""
    rows = [[name for name, _ in sheet.columns]]
    rows += [[_csv_cell(value) for value in row] for row in sheet.rows]
    _save(path, csvlines.join(rows).encode("utf-8"))


def write_xlsx(path: Path, sheets: Sequence[Sheet]) -> None:
    """Write ``sheets`` as a workbook; their titles are made fit for it and different."""
    openpyxl = require_openpyxl()
    book = openpyxl.Workbook()
    book.remove(book.active)
    taken: set[str] = set()
    for sheet in sheets:
        _fill(openpyxl, book.create_sheet(sheet_name(sheet.title, taken)), sheet)
    buffer = io.BytesIO()
    book.save(buffer)
    _save(path, buffer.getvalue())


def sheet_name(title: str, taken: set[str]) -> str:
    """A name that Excel allows: 31 characters, none of ``[]:*?/\\``, not one of ``taken``.

    ``taken`` holds names in small letters, for Excel sees no difference; the new one is added.
    """
    name = _NO_NAME.sub("_", title)[:_LONGEST_NAME].strip("'").strip() or "_"
    fit, number = name, 1
    while fit.lower() in taken or fit.lower() in _RESERVED:
        number += 1
        end = f"~{number}"
        fit = name[: _LONGEST_NAME - len(end)] + end
    taken.add(fit.lower())
    return fit


def _fill(openpyxl: Any, target: Any, sheet: Sheet) -> None:
    letter = importlib.import_module("openpyxl.utils").get_column_letter
    styles = importlib.import_module("openpyxl.styles")
    bold, centred = styles.Font(bold=True), styles.Alignment(wrap_text=True, vertical="center")
    for column, (name, _) in enumerate(sheet.columns, start=1):
        cell = target.cell(1, column)
        _set(cell, name, TEXT)
        cell.font, cell.alignment = bold, centred
    for number, row in enumerate(sheet.rows, start=2):
        for column, (value, (_, kind)) in enumerate(zip(row, sheet.columns, strict=True), start=1):
            _set(target.cell(number, column), value, kind)
    target.freeze_panes = "A2"
    target.auto_filter.ref = f"A1:{letter(len(sheet.columns))}{len(sheet.rows) + 1}"
    for column, width in enumerate(_widths(sheet), start=1):
        target.column_dimensions[letter(column)].width = width


def _set(cell: Any, value: Value, kind: str) -> None:
    if value is None or value == "":
        return
    if isinstance(value, str):
        # openpyxl would take "=..." for a formula and "#N/A" for an error.
        cell.value = _text(value)
        cell.data_type = "s"
        cell.quotePrefix = value.startswith(_FORMULA)
    elif math.isfinite(value):
        cell.value = value
        cell.number_format = kind


def _text(value: str) -> str:
    shown = _UNSHOWN.sub("\ufffd", value).encode("utf-8", "replace").decode("utf-8")
    return shown if len(shown) <= _LONGEST_CELL else f"{shown[: _LONGEST_CELL - 1]}…"


def _csv_cell(value: Value) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if not isinstance(value, str):
        return repr(value)
    text = _text(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _widths(sheet: Sheet) -> Iterator[int]:
    """Room for the longest text of a column; a heading may take two lines."""
    least, most = _WIDTHS
    for column, (name, _) in enumerate(sheet.columns):
        texts = [row[column] for row in sheet.rows]
        longest = max((len(text) if isinstance(text, str) else 10 for text in texts), default=0)
        yield min(most, max(least, longest, len(name) // 2 + 4) + 2)


def _save(path: Path, data: bytes) -> None:
    path = files.real(path)
    try:
        files.replace(path, data)
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> TreeError:
    return TreeError(f"{path}: the report cannot be written: {error.strerror}")
