"""Records to merge and the real CSVs of the working descriptions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.records import Record

REPOSITORY = Path(__file__).resolve().parents[3]
REAL_CSVS = REPOSITORY.parent / "shared" / "data"

MakeRecord = Callable[..., Record]


@pytest.fixture
def make_record() -> MakeRecord:
    """A PASSED record of 10 µs cold on host ``h1``; keyword arguments replace keys."""
    numbers = itertools.count()

    def make(**changes: Any) -> Record:
        values: dict[str, Any] = {
            "schema": "mxfleet-result/1",
            "record_id": f"{next(numbers):032x}",
            "suite": "mcoplib",
            "op": "rms_norm",
            "case_id": "00000000000000aa",
            "status": "PASSED",
            "verification": {"passed": True, "metrics": {"one_minus_cosine": 1e-7}},
            "summaries": {"Op": "rms_norm", "dtype": "float16", "Shape": "(16 512)"},
            "timers": {"cold_gpu": {"mean": 1e-5, "median": 1e-5}, "cpu": {"mean": 5e-5}},
            "rates": {"bandwidth_utilisation": 0.5},
            "device": {"kind": "maca", "name": "MetaX C500"},
            "target": "h1",
            "run": "run-1",
        }
        return Record.model_validate(values | changes)

    return make


@pytest.fixture(params=["c500_rows.csv", "h200_rows.csv"])
def real_csv(request: pytest.FixtureRequest) -> Path:
    """A CSV that the established scripts wrote on hardware."""
    path: Path = REAL_CSVS / request.param
    if not path.is_file():
        pytest.skip(f"{path} is not on this machine")
    return path
