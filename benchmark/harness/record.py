"""The ``mxfleet-result/1`` record: one JSON line a case, on disk the moment the case is decided."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import uuid
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from harness import files, plain, specs
from harness.cases import case_id
from harness.errors import TreeError
from harness.loader import runner_path

SCHEMA = "mxfleet-result/1"


def definition(root: Path, op: str) -> str:
    """Sixteen hex digits over the runner and the harness: a change of either breaks the series."""
    sha = hashlib.sha256()
    for path in [runner_path(root, op), *sorted((root / "harness").rglob("*.py"))]:
        data = path.read_bytes()
        sha.update(f"{path.relative_to(root).as_posix()} {len(data)}\n".encode())
        sha.update(data)
    return sha.hexdigest()[:16]


def default_path(table: Path) -> Path:
    """Where records go when only a CSV is named: beside it."""
    return table.with_suffix(".records.jsonl")


def timestamp(seconds: float) -> str:
    """``seconds`` since the epoch as UTC with milliseconds, ``2026-11-30T21:00:00.123Z``."""
    moment = datetime.fromtimestamp(seconds, tz=timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def build(
    op: str,
    parameters: dict[str, Any],
    outcome: dict[str, Any],
    *,
    definition: str,
    device: dict[str, Any],
    environment: dict[str, Any],
    engine: str | None,
    sampling: dict[str, Any] | None,
    measured: bool,
    started: float,
    duration: float,
) -> dict[str, Any]:
    """Put a case's record together; what the case did not get to is None, never invented.

    ``measured`` false: it was only to be verified, so that it has no times does not speak against
    it.
    """
    nothing = {"cold_gpu": None, "cpu": None, "batch_gpu": None}
    no_rates = {
        "elements_per_second": None,
        "bytes_per_second": None,
        "bandwidth_utilisation": None,
    }
    return {
        "schema": SCHEMA,
        "record_id": uuid.uuid4().hex,
        "suite": "mcoplib",
        "op": op,
        "case_id": case_id(op, parameters),
        "parameters": parameters,
        "status": outcome["status"],
        "measured": measured,
        "flags": [],
        "definition": definition,
        "library": outcome.get("library"),
        "verification": outcome.get("verification"),
        "summaries": outcome.get("summaries", {}),
        "timers": outcome.get("timers", nothing),
        "repeats": outcome.get("repeats", 1),
        "repeat_spread": outcome.get("repeat_spread"),
        "sampling": sampling,
        "bytes_read": outcome.get("bytes_read"),
        "bytes_written": outcome.get("bytes_written"),
        "elements": outcome.get("elements"),
        "flops": outcome.get("flops"),
        "rates": outcome.get("rates", no_rates),
        "roofline": None,
        "device": device,
        "environment": environment,
        "engine": engine,
        "error": outcome.get("error"),
        "known_failure": None,
        "started": timestamp(started),
        "duration": round(duration, 3),
    }


def judge(result: dict[str, Any], peaks: specs.Peaks | None, dtype: str | None) -> None:
    """Add to a record what follows from it: its share of the device's ``peaks``, and the flags.

    ``dtype`` is the one that the operator computes in.
    """
    cold, batch = result["timers"]["cold_gpu"] or {}, result["timers"]["batch_gpu"] or {}
    median = cold.get("median") or cold.get("mean")
    declared = [n for n in (result["bytes_read"], result["bytes_written"]) if n is not None]
    moved = sum(declared) if declared else None
    result["roofline"] = specs.roofline(peaks, dtype, moved, result["flops"], median)
    seen = result["environment"]["board"]
    result["flags"] = specs.flags(
        roofline=result["roofline"],
        cold_median=median,
        batch_mean=batch.get("mean"),
        bytes_moved=moved,
        l2_bytes=result["device"].get("l2_bytes"),
        board_before=seen["before"],
        board_after=seen["after"],
        cpu_median=(result["timers"]["cpu"] or {}).get("median"),
        foreign=[process for moment in seen["foreign"] for process in moment or []],
    )


def append(path: Path, *records: dict[str, Any]) -> None:
    """Append ``records`` to ``path``, a line each, and see them onto the disk; safe beside others.

    Without records the file is only made, to learn early that it can be written. Raises
    ``TreeError`` when it cannot, ``ForeignFileError`` when a link or a FIFO lies there.
    """
    lines = [
        json.dumps(plain.clean(record), allow_nan=False, separators=(",", ":")) + "\n"
        for record in records
    ]
    data = "".join(lines).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = files.open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            while data:
                data = data[os.write(descriptor, data) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise TreeError(f"{path}: records cannot be written: {error.strerror}") from None
