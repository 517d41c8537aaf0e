"""What a run says: a table on the terminal, a CSV, and records (``mxfleet-result/1``)."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import plain, record, specs

from core import metrics
from core.metrics import Work
from core.refcheck import Verdict
from core.timing import Timing

SUITE = "halops"
COLUMNS = (
    "scenario",
    "case",
    "backend",
    "status",
    "median_us",
    "q25_us",
    "q75_us",
    "samples",
    "timer",
    "tflops",
    "gb_per_s",
    "roofline",
    "bound",
    "speedup",
    "worst_row_error",
    "flags",
    "reason",
)


@dataclass
class Row:
    """One backend on one point of a sweep, and what became of it.

    ``speedup``: how many times faster than the base row; None where either has no time that counts.
    """

    op: str
    scenario: str
    params: dict[str, Any]
    backend: str
    status: str
    reason: str | None = None
    work: Work | None = None
    verdict: Verdict | None = None
    timing: Timing | None = None
    roofline: dict[str, Any] | None = None
    speedup: float | None = None
    board: dict[str, Any] = field(
        default_factory=lambda: {"before": None, "after": None, "foreign": []}
    )
    started: float = 0.0
    duration: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether its time may be compared: it was measured and nothing was found wrong."""
        return self.status in ("PASSED", "UNVERIFIED") and self.timing is not None

    def flags(self, l2_bytes: int | None) -> list[str]:
        """What a reader of the time has to know, as records name it."""
        found = specs.flags(
            roofline=None,
            cold_median=None,
            batch_mean=None,
            bytes_moved=self.work.bytes_moved if self.work else None,
            l2_bytes=l2_bytes,
            board_before=self.board["before"],
            board_after=self.board["after"],
            foreign=[process for moment in self.board["foreign"] for process in moment or []],
        )
        return (["ABOVE_ROOFLINE"] if metrics.above_roofline(self.roofline) else []) + found


def first_backend(rows: Sequence[Row]) -> Row | None:
    """The first backend's row that is here at all; it may have failed, then it is no base."""
    return next((row for row in rows if row.status != "UNAVAILABLE"), None)


def first_success(rows: Sequence[Row]) -> Row | None:
    """The row of the first backend that was measured and not found wrong."""
    return next((row for row in rows if row.counts), None)


def set_speedups(rows: Sequence[Row], base: Row | None) -> None:
    """Give every row that counts its speed-up against ``base``."""
    if base is None or not base.counts or base.timing is None:
        return
    for row in rows:
        if row.counts and row.timing is not None and row.timing.timer == base.timing.timer:
            row.speedup = base.timing.median / row.timing.median


def cells(row: Row, l2_bytes: int | None) -> dict[str, str]:
    """The row by the names of ``COLUMNS``, as text; what is not known is empty."""
    timing, work = (row.timing, row.work) if row.counts else (None, None)
    summary: Mapping[str, Any] = timing.summary if timing else {}
    median = timing.median if timing else None
    roof = row.roofline or {}
    error = row.verdict.metrics.get("worst_row_error") if row.verdict else None
    values: dict[str, Any] = {
        "scenario": row.scenario,
        "case": _case(row.params),
        "backend": row.backend,
        "status": row.status,
        "median_us": _micro(median),
        "q25_us": _micro(summary.get("q25")),
        "q75_us": _micro(summary.get("q75")),
        "samples": summary.get("samples"),
        "timer": timing.timer if timing else None,
        "tflops": f"{work.flops / median / 1e12:.4g}" if work and median else None,
        "gb_per_s": f"{work.bytes_moved / median / 1e9:.4g}" if work and median else None,
        "roofline": f"{roof['fraction']:.3f}" if roof.get("fraction") is not None else None,
        "bound": roof.get("bound"),
        "speedup": f"{row.speedup:.2f}" if row.speedup is not None else None,
        "worst_row_error": f"{error:.2e}" if error is not None else None,
        "flags": " ".join(row.flags(l2_bytes)),
        "reason": row.reason,
    }
    return {name: "" if values[name] is None else str(values[name]) for name in COLUMNS}


def _micro(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds * 1e6:.2f}"


def _short(value: Any) -> str:
    return str(value).replace(" ", "")


def table(rows: Sequence[Row], l2_bytes: int | None) -> str:
    """The rows as aligned text; columns in which nothing stands are left out.

    Parameters that are the same in every row are told once, above.
    """
    if not rows:
        return "nothing was run"
    lines = [cells(row, l2_bytes) for row in rows]
    common = _common(rows)
    for line, row in zip(lines, rows, strict=True):
        line["case"] = _case({k: v for k, v in row.params.items() if k not in common})
    shown = [name for name in COLUMNS if any(line[name] for line in lines)]
    width = {name: max(len(name), *(len(line[name]) for line in lines)) for name in shown}
    text = [{name: name for name in shown}, {name: "-" * width[name] for name in shown}, *lines]
    told = ["  ".join(line[n].ljust(width[n]) for n in shown).rstrip() for line in text]
    return "\n".join([*([_case(common)] if common else []), *told])


def _common(rows: Sequence[Row]) -> dict[str, Any]:
    first, *others = [row.params for row in rows]
    missing = object()
    return {k: v for k, v in first.items() if all(o.get(k, missing) == v for o in others)}


def _case(params: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={_short(value)}" for key, value in params.items())


def csv_text(rows: Sequence[Row], l2_bytes: int | None) -> str:
    """The rows as CSV with a header of ``COLUMNS``."""
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(cells(row, l2_bytes) for row in rows)
    return buffer.getvalue()


def definition(root: Path, op: str) -> str:
    """Sixteen hex digits over the suite's code that measures ``op``: a change breaks the series."""
    sha = hashlib.sha256()
    for folder in (root / "core", root / "kernel" / op):
        for path in sorted(folder.rglob("*.py")):
            data = path.read_bytes()
            sha.update(f"{path.relative_to(root).as_posix()} {len(data)}\n".encode())
            sha.update(data)
    return sha.hexdigest()[:16]


def as_record(
    row: Row, *, definition: str, device: dict[str, Any], environment: dict[str, Any]
) -> dict[str, Any]:
    """The row as a ``mxfleet-result/1`` record.

    A time on a GPU whose cache was not emptied stands under ``batch_gpu``: it is no cold time.
    """
    timing, work = row.timing, row.work
    timers: dict[str, Any] = {"cold_gpu": None, "cpu": None, "batch_gpu": None}
    if timing is not None:
        on_cpu = device["kind"] == "cpu" or timing.timer == "cpu"
        name = "cpu" if on_cpu else ("cold_gpu" if timing.cold else "batch_gpu")
        timers[name] = timing.summary
    median = timing.median if timing else None
    roof = row.roofline or {}
    outcome: dict[str, Any] = {
        "status": row.status,
        "verification": row.verdict.as_record() if row.verdict else None,
        "summaries": {"backend": row.backend, "speedup": row.speedup, "reason": row.reason},
        "timers": timers,
        "bytes_read": work.bytes_read if work else None,
        "bytes_written": work.bytes_written if work else None,
        "flops": work.flops if work else None,
        "rates": {
            "elements_per_second": None,
            "bytes_per_second": work.bytes_moved / median if work and median else None,
            "bandwidth_utilisation": roof.get("bandwidth_fraction"),
        },
    }
    if row.status in ("ERROR", "FAILED", "UNAVAILABLE"):
        outcome["error"] = {"type": row.status, "message": row.reason or "", "traceback": None}
    if timing is not None:
        outcome["summaries"] |= {
            "timer": timing.timer,
            "cuda_graph": timing.graph,
            "cold_l2_cache": timing.cold,
            "flushed_bytes": timing.flushed_bytes,
            "warmup": timing.warmup,
            "steady": timing.steady,
        }
    parameters = {"scenario": row.scenario, **row.params, "backend": row.backend}
    made = record.build(
        f"{row.op}.{row.scenario}",
        parameters,
        outcome,
        definition=definition,
        device=device,
        environment=environment | {"board": row.board},
        engine="halops",
        sampling=None,
        measured=True,
        started=row.started,
        duration=row.duration,
    )
    made |= {
        "suite": SUITE,
        "roofline": row.roofline,
        "flags": row.flags(device.get("l2_bytes")),
    }
    return plain.clean(made)
