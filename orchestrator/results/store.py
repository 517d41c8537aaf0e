"""The record store: every record that ever came in, one JSONL file a run.

Records are a set by ``record_id``. Adding is a union: again, in another order or from several
processes at once, the set is the same. What is in a file stays as it is, broken lines too.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from orchestrator.records import Record, parse_line
from orchestrator.results.files import locked, read_bytes, replace

Report = Callable[[str], None]
"""Takes a sentence about something that was found broken and left as it is."""

log_report: Report = logging.getLogger("orchestrator.results").warning

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def store_path(folder: Path, run: str | None) -> Path:
    """The file of ``folder`` that holds the records of ``run`` (None: run outside of mxfleet)."""
    name = _UNSAFE.sub("_", run or "").lstrip(".") or "no-run"
    return folder / f"{name}.jsonl"


def add_records(
    records: Iterable[Record], folder: Path, *, report: Report = log_report
) -> list[Path]:
    """Add ``records`` to the store in ``folder``; returns the files that hold them.

    Raises ``TreeError`` when a file cannot be written; it is then as it was.
    """
    by_path: dict[Path, dict[str, Record]] = {}
    for record in records:
        path = store_path(folder, record.run)
        by_path.setdefault(path, {}).setdefault(record.record_id, record)
    for path, new in by_path.items():
        with locked(path):
            data = read_bytes(path) or b""
            known = {record_id for record_id, _ in _parse(path, data, report)}
            lines = [
                # A lone surrogate (a runner's odd text) has no UTF-8: it becomes "?", not a crash.
                record.to_line().encode("utf-8", "replace") + b"\n"
                for record_id, record in sorted(new.items())
                if record_id not in known
            ]
            if lines:
                whole = data if not data or data.endswith(b"\n") else data + b"\n"
                replace(path, whole + b"".join(lines))
    return sorted(by_path)


def load_records(folder: Path, *, report: Report = log_report) -> list[Record]:
    """All records of the store in ``folder``, each once, ordered by file and place in it."""
    found: dict[str, Record] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for record_id, record in _parse(path, read_bytes(path) or b"", report):
            found.setdefault(record_id, record)
    return list(found.values())


def read_records(path: Path, *, report: Report = log_report) -> list[Record]:
    """The records of one JSONL file, broken lines reported with ``path:line`` and passed over."""
    return [record for _, record in _parse(path, read_bytes(path) or b"", report)]


def _parse(path: Path, data: bytes, report: Report) -> Iterator[tuple[str, Record]]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            try:
                record = parse_line(line)
            except ValueError as error:
                report(f"{path}:{number}: {error}; the line is kept and not used")
            else:
                yield record.record_id, record
