"""What the suite measures on a device: docs/measured/<model>.md, made from the records of a run.

``python bench/device.py`` where a GPU is runs `testall.py` on the whole suite (flags after ``--``
go to it, ``-- --library vllm`` say) and writes the table; ``--records FILE`` (repeatable) makes it
from records that are there, a later one of a case replacing an earlier one. Exit code 1 when a case
went wrong, or when a bandwidth-bound one reaches less than 0.6 of the roofline without a reason.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.errors import Failed
from common.reasons import REASONS
from common.table import grid

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT / "docs" / "measured"
WANTED = 0.6
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
# Why the time of such a row is not that of the memory.
_FLAGGED = {
    "CACHE_RESIDENT": "the data fits the L2 cache",
    "LAUNCH_BOUND": "too small: launching takes longer than the kernel",
}


def main() -> int:
    """Measure or read, write the table, print it."""
    parser = argparse.ArgumentParser(prog="bench/device.py", description=__doc__)
    parser.add_argument("--records", type=Path, action="append", metavar="FILE")
    parser.add_argument("--table", type=Path, metavar="FILE", help="default: by the device's name")
    parser.add_argument("flags", nargs="*", metavar="-- FLAGS", help="for testall")
    options = parser.parse_args()
    try:
        records = _read(options.records) if options.records else _measure(options.flags)
    except Failed as reason:
        print(f"bench/device.py: {reason}", file=sys.stderr)
        return 1
    text, problems = render(records)
    name = records[0]["device"]["name"].split()[-1].lower()
    path = options.table or MEASURED / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(text)
    for problem in problems:
        print(f"bench/device.py: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _measure(flags: Sequence[str]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="bench-device-") as folder:
        table = Path(folder, "table.csv")
        command = [sys.executable, str(ROOT / "benchmark" / "testall.py"), "--csv", str(table)]
        subprocess.run([*command, *flags], stdin=subprocess.DEVNULL, check=False)
        return _read([table.with_suffix(".records.jsonl")])


def _read(paths: Sequence[Path]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for path in paths:
        if not path.exists():
            raise Failed(f"{path}: there are no records")
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            if record["device"]["kind"] == "cpu":
                raise Failed(f"{path}: measured on a CPU; this table is of a GPU")
            found[record["op"], record["case_id"]] = record
    if not found:
        raise Failed("there are no records")
    return sorted(found.values(), key=lambda r: (r["op"], json.dumps(r["parameters"])))


def render(records: Sequence[dict[str, Any]]) -> tuple[str, list[str]]:
    """The whole file, and what is wrong with what it says."""
    measured = [r for r in records if r["status"] in ("PASSED", "UNVERIFIED")]
    if not measured:
        raise Failed("no case passed")
    first, problems, low = measured[0], [], []
    rows = []
    for record in measured:
        reason = _reason(record)
        if reason is not None:
            low.append([record["op"], _shape(record), _share(_fraction(record)), reason])
            if not reason:
                problems.append(f"{record['op']} {_shape(record)}: {_share(_fraction(record))}")
        rows.append(_row(record))
    counts = Counter(record["status"] for record in records)
    operators = {record["op"] for record in measured if record["status"] == "PASSED"}
    lines = [
        f"# {first['device']['name']}",
        "",
        f"{len(operators)} operators verified and measured, {len(records)} cases in all: "
        + ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
        + ".",
        "",
        "Made by `python bench/device.py`. Cold: median over the repeats of the median GPU time,",
        "the L2 cache flushed; spread: of the repeats' medians, (max - min) / median; batch: mean",
        "of launches back to back; noise: relative standard deviation in a repeat; share: of the",
        "peak that binds, memory bandwidth or arithmetic, from the bytes and FLOPs that the",
        "operator's own tensors make. Repeats: the processes of a row; one of a single process has",
        "no spread and is the weaker for it.",
        "",
        *grid(
            ["operator", "dtype", "shape", "cold", "repeats", "spread", "batch", "noise", "GB/s",
             "TFLOP/s", "share", "bound", "flags"],
            rows,
        ),
    ]  # fmt: skip
    if low:
        lines += [
            "",
            f"## Bandwidth-bound and below {WANTED}",
            "",
            *grid(["operator", "shape", "share", "reason"], low),
        ]
    others = [record for record in records if record not in measured]
    if others:
        table = [[r["op"], _shape(r), r["status"], _message(r)] for r in others]
        lines += [
            "",
            "## Not measured",
            "",
            *grid(["operator", "case", "status", "why"], _folded(table)),
        ]
        problems += [
            f"{r['op']}: {r['status']}: {_message(r)}"
            for r in others
            if r["status"] != "UNAVAILABLE"
        ]
    lines += ["", *(f"- {line}" for line in _foot(measured)), ""]
    return "\n".join(lines), problems


def _row(record: dict[str, Any]) -> list[str]:
    timers, rates = record["timers"], record["rates"]
    cold, batch = timers["cold_gpu"] or {}, timers["batch_gpu"] or {}
    speed = None
    if record["flops"] and cold.get("median"):
        speed = record["flops"] / cold["median"] / 1e12
    bandwidth = rates["bytes_per_second"]
    return [
        record["op"],
        str(record["summaries"].get("dtype", "")).removeprefix("torch."),
        _shape(record),
        _time(cold.get("median")),
        str(record["repeats"]),
        _share(record["repeat_spread"], 2),
        _time(batch.get("mean")),
        _share(cold.get("noise"), 1),
        "" if bandwidth is None else f"{bandwidth / 1e9:.0f}",
        "" if speed is None else f"{speed:.3g}",
        _share(_fraction(record)),
        (record["roofline"] or {}).get("bound") or "",
        " ".join(record["flags"]),
    ]


def _fraction(record: dict[str, Any]) -> float | None:
    fraction: float | None = (record["roofline"] or {}).get("fraction")
    return fraction


def _reason(record: dict[str, Any]) -> str | None:
    """Why a bandwidth-bound row is below the share wanted; empty: nobody said; None: it is not."""
    roofline = record["roofline"] or {}
    fraction = roofline.get("bandwidth_fraction")
    if roofline.get("bound") != "memory" or fraction is None or fraction >= WANTED:
        return None
    told = REASONS.get(record["op"], "")
    flagged = [text for flag, text in _FLAGGED.items() if flag in record["flags"]]
    return "; ".join([*flagged, *([told] if told else [])])


def _foot(measured: Sequence[dict[str, Any]]) -> list[str]:
    first = measured[0]
    environment, device = first["environment"], first["device"]
    nvbench = environment["nvbench"] or {}
    roofline = next((r["roofline"] for r in measured if r["roofline"]), None) or {}
    libraries = {
        f"{r['library']['name']} {r['library']['version']}: {Path(r['library']['path']).name}, "
        f"sha256 {r['library']['sha256'][:16]}…"
        for r in measured
        if (r["library"] or {}).get("sha256")
    }
    sampling = first["sampling"]
    clocks = [
        record["environment"]["board"]["after"]
        for record in measured
        if record["environment"]["board"]["after"]
    ]
    lines = [
        f"measured: {min(r['started'] for r in measured)} to {max(r['started'] for r in measured)}",
        f"device: {device['name']}, driver {environment.get('driver')}",
        f"python {environment['python']}, torch {environment['torch']}, "
        f"{nvbench.get('package')} {nvbench.get('version')}",
        f"sampling: {sampling['mode']}, criterion {sampling['criterion']}",
        f"peak bandwidth: {(roofline.get('peak_bandwidth') or 0) / 1e9:.0f} GB/s "
        f"({roofline.get('source')})",
        *sorted(libraries),
    ]
    if clocks:
        lines.append(
            f"SM clock after a case: {min(c['sm_clock_mhz'] for c in clocks)} to "
            f"{max(c['sm_clock_mhz'] for c in clocks)} MHz; temperature up to "
            f"{max(c['temperature_c'] for c in clocks)} °C"
        )
    return lines


def _shape(record: dict[str, Any]) -> str:
    return str(record["summaries"].get("Shape", ""))


def _message(record: dict[str, Any]) -> str:
    """Why a case has no time; the folders that were searched are this machine's own affair."""
    text = " ".join(str((record["error"] or {}).get("message", "")).split())
    return text.split("; folders searched")[0].split(" (/")[0][:200]


def _folded(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Rows that say the same of one operator once, with their number."""
    counted = Counter(tuple(row) for row in rows)
    return [
        [row[0], row[1] or f"{number} cases" if number > 1 else row[1], row[2], row[3]]
        for row, number in counted.items()
    ]


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    unit, name = next((u for u in _UNITS if seconds >= u[0]), _UNITS[-1])
    return f"{seconds / unit:.4g} {name}"


def _share(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:.{digits}%}"


if __name__ == "__main__":
    sys.exit(main())
