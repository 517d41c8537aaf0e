"""Read what nvbench measured: its JSON with binary samples, or the CSV of ports without JSON."""

from __future__ import annotations

import array
import csv
import json
import math
import sys
from pathlib import Path
from typing import Any

from harness import timing
from harness.csvtable import seconds
from harness.engines import Measurement
from harness.engines.state import CaseState
from harness.timing import Timer

_SAMPLES_TAG = "nv/json/bin:nv/cold/sample_times"
# Our name of a statistic, and nvbench's below the tag of a timer.
_STATISTICS = {
    "mean": "mean",
    "median": "median",
    "min": "min",
    "max": "max",
    "q25": "q1",
    "q75": "q3",
    "noise": "stdev/relative",
}


def collect(state: CaseState, folder: Path) -> Measurement:
    """Return the measurement whose outputs lie in ``folder`` as ``result.json`` or ``result.csv``.

    Raises ``RuntimeError`` when nvbench left no time there.
    """
    if (folder / "result.json").exists():
        return from_json(state, folder / "result.json")
    if (folder / "result.csv").exists():
        return from_csv(state, (folder / "result.csv").read_text(encoding="utf-8"))
    raise RuntimeError("nvbench ended without a result; its own output says why")


def from_json(state: CaseState, path: Path) -> Measurement:
    """Read nvbench's JSON (numbers are strings there) and the samples beside it."""
    document = json.loads(path.read_text(encoding="utf-8"))
    states = [s for bench in document["benchmarks"] for s in bench["states"] or []]
    if len(states) != 1:
        raise RuntimeError(f"nvbench's JSON holds {len(states)} states, expected is one")
    if states[0].get("is_skipped"):
        raise RuntimeError(f"nvbench skipped the case: {states[0].get('skip_reason')}")
    summaries = {s["tag"]: _fields(s) for s in states[0]["summaries"] or []}
    values = {tag: fields.get("value") for tag, fields in summaries.items()}
    samples = _samples(summaries.get(_SAMPLES_TAG), path)

    cold = _timer(values, "nv/cold/time/gpu", samples)
    if cold["mean"] is None:
        raise RuntimeError("nvbench took no cold sample; its own output says why")
    cold["samples"] = _integer(values.get("nv/cold/sample_size"))
    cpu = _timer(values, "nv/cold/time/cpu", [])
    cpu["samples"] = cold["samples"]
    batch = _timer(values, "nv/batch/time/gpu", [])
    batch["samples"] = _integer(values.get("nv/batch/sample_size"))
    return Measurement(
        state,
        cold_gpu=cold,
        cpu=None if cpu["mean"] is None else cpu,
        batch_gpu=None if batch["mean"] is None else batch,
        elements_per_second=_number(values.get("nv/cold/bw/item_rate")),
        bytes_per_second=_number(values.get("nv/cold/bw/global/bytes_per_second")),
        bandwidth_utilisation=_number(values.get("nv/cold/bw/global/utilization")),
    )


def _fields(summary: dict[str, Any]) -> dict[str, Any]:
    return {field["name"]: field.get("value") for field in summary.get("data") or []}


def _timer(values: dict[str, Any], tag: str, samples: list[float]) -> Timer:
    timer = timing.summarise(samples) if samples else timing.unknown()
    for ours, theirs in _STATISTICS.items():
        known = _number(values.get(f"{tag}/{theirs}"))
        if known is not None:
            timer[ours] = known  # type: ignore[literal-required]
    return timer


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _integer(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _samples(fields: dict[str, Any] | None, path: Path) -> list[float]:
    """Cold GPU seconds as nvbench wrote them: little-endian float32."""
    if fields is None:
        return []
    file = Path(str(fields.get("filename")))
    places = (file, path.parent / file, path.parent.parent / file)
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        return []
    values = array.array("f", found.read_bytes())
    if sys.byteorder != "little":
        values.byteswap()
    return list(values)


def from_csv(state: CaseState, text: str) -> Measurement:
    """Read nvbench's CSV of one benchmark; names repeat, so cells go by what stands beside them."""
    rows = list(csv.reader(text.splitlines()))
    if len(rows) != 2:
        raise RuntimeError(f"nvbench's CSV holds {max(0, len(rows) - 1)} rows, expected is one")
    header, cells = rows

    def timer(name: str, *, noise_behind: bool, samples_before: int) -> Timer | None:
        if name not in header:
            return None
        at = header.index(name)
        found = timing.unknown()
        found["mean"] = seconds(cells[at])
        if noise_behind:
            found["noise"] = _share(cells[at + 1])
        found["samples"] = _integer(cells[at - samples_before])
        return None if found["mean"] is None else found

    cold = timer("GPU Time (sec)", noise_behind=True, samples_before=3)
    if cold is None:
        raise RuntimeError("nvbench's CSV holds no GPU time; its own output says why")

    def rate(name: str) -> float | None:
        return _share(cells[header.index(name)]) if name in header else None

    return Measurement(
        state,
        cold_gpu=cold,
        cpu=timer("CPU Time (sec)", noise_behind=True, samples_before=1),
        batch_gpu=timer("Batch GPU (sec)", noise_behind=False, samples_before=1),
        elements_per_second=rate("Elem/s (elem/sec)"),
        bytes_per_second=rate("GlobalMem BW (bytes/sec)"),
        bandwidth_utilisation=rate("BWUtil"),
    )


def _share(cell: str) -> float | None:
    """A plain number, or a percentage as a fraction."""
    text = cell.strip()
    if text.endswith("%"):
        number = _number(text[:-1])
        return None if number is None else number / 100
    return _number(text)
