"""A front door without torch for the tests: it hashes, really measures that, and keeps records.

Speaks what mxfleet asks of its own suite: ``--op --csv --generate --records --set``, a record a
case, flushed at once, and the exit code that says how it went.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import statistics
import sys
import time
import traceback
import uuid
from pathlib import Path
from typing import Any

SUPPORTED_OPERATORS = [
    "probe_digest",
    "probe_linger",
    "probe_speak",
]

HERE = Path(__file__).resolve().parent


class Records:
    """Appends records; each is on the disk before the next case begins."""

    def __init__(self, path: str, op: str, config: dict[str, Any]) -> None:
        self._path = Path(path)
        self._op = op
        self._config = config

    def measured(self, size: int, samples: int) -> None:
        """Hash ``size`` bytes ``samples`` times and keep what that took."""
        data = os.urandom(size)
        first = hashlib.sha256(data).hexdigest()
        took = []
        for _ in range(samples):
            began = time.perf_counter()
            again = hashlib.sha256(data).hexdigest()
            took.append(time.perf_counter() - began)
        mean = statistics.mean(took)
        self._write(
            status="PASSED" if again == first else "FAILED",
            parameters={"size": size, "dtype": "uint8"},
            verification={"passed": again == first, "metrics": {"one_minus_cosine": 0.0}},
            timers={
                "cold_gpu": None,
                "cpu": {
                    "mean": mean,
                    "median": statistics.median(took),
                    "noise": statistics.pstdev(took) / mean,
                    "samples": samples,
                },
                "batch_gpu": None,
            },
            summaries={"Op": self._op, "dtype": "uint8", "Shape": f"({size})"},
        )

    def failed(self, error: BaseException) -> None:
        """Keep the record of a case that raised."""
        message = {"type": type(error).__name__, "message": str(error)}
        self._write(status="ERROR", parameters=self._config, error=message)

    def _write(self, *, parameters: dict[str, Any], **values: Any) -> None:
        identity = json.dumps({"op": self._op, **parameters}, sort_keys=True)
        record = {
            "schema": "mxfleet-result/1",
            "record_id": uuid.uuid4().hex,
            "suite": "mcoplib",
            "op": self._op,
            "case_id": hashlib.sha256(identity.encode()).hexdigest()[:16],
            "parameters": parameters,
            "device": {"kind": "cpu", "name": "Probe Processor", "index": 0},
            "engine": "torch",
            **values,
        }
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record) + "\n")
            stream.flush()
            os.fsync(stream.fileno())


def main() -> int:
    """Run one operator."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--op", required=True, choices=SUPPORTED_OPERATORS)
    parser.add_argument("--csv", required=True)
    parser.add_argument("--generate", action="store_true")
    parser.add_argument("--records", required=True)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--repeats")  # one process, however many are asked for
    parser.add_argument("--device")  # there is only the processor
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args()
    config = json.loads((HERE / "config" / f"{options.op}.json").read_text(encoding="utf-8"))
    for pair in options.set:
        name, _, value = pair.partition("=")
        config[name] = json.loads(value)
    sys.path.insert(0, str(HERE / "runners"))
    runner = importlib.import_module(f"mcoplib_mxbenchmark_{options.op}_runners")
    records = Records(options.records, options.op, config)
    try:
        runner.Runner(options.op, config).run(records)
    except Exception as error:  # noqa: BLE001 - a case that raises is a result
        traceback.print_exc()
        records.failed(error)
        return 1
    print(f"[SUMMARY] {options.op} done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
