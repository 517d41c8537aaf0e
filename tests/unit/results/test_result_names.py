"""Identities that two sides compute: the controller here, the harness on the target."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.records import Record
from orchestrator.results.case_id import case_id
from orchestrator.results.device_csv import ESTABLISHED, EXTRA
from orchestrator.results.model_name import csv_name, mismatch, model_name
from orchestrator.results.rows import row_of

BENCHMARK = Path(__file__).resolve().parents[3] / "benchmark"

CONFIGS: list[dict[str, Any]] = [
    {"dtype": "bfloat16", "num_tokens": 4096, "samples": 10, "device_id": 3},
    {"num_tokens": 4096, "dtype": "bfloat16", "device_name": ["MetaX C500"]},
    {},
    {"eps": 1e-06, "ratio": 0.1, "on": True, "none": None},
    {"nested": {"b": [1, 2], "a": "é 中 😀"}, "batch_size_list": [1, 2]},
]
DEVICES = [
    ("maca", "MetaX C500", "C500"),
    ("maca", "C600u", "C600u"),
    ("cuda", "NVIDIA H200", "H200"),
    ("cuda", "NVIDIA GeForce RTX 4090", "GeForce_RTX_4090"),
    ("cuda", "AMD Instinct MI300X", "Instinct_MI300X"),
    ("cuda", "../../etc/passwd", "etc_passwd"),
    ("cpu", "Intel(R) Xeon(R) Platinum 8480+", "CPU_Intel_Xeon_Platinum_8480+"),
    ("cpu", "Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", "CPU_Intel_Xeon_E5-2680_v4"),
    ("cpu", "AMD EPYC 9554 64-Core Processor", "CPU_AMD_EPYC_9554"),
    ("cpu", "", "CPU"),
    ("cuda", "中", "unknown"),
]


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (BENCHMARK / "harness").is_dir():
        pytest.skip("this checkout has no benchmark/harness")
    monkeypatch.syspath_prepend(str(BENCHMARK))
    assert "harness" not in sys.modules or sys.modules["harness"].__file__


def test_a_case_is_its_operator_and_parameters() -> None:
    ids = [case_id("op", config) for config in CONFIGS]
    # printf '{"op":"op","parameters":{"dtype":"bfloat16","num_tokens":4096}}' | sha256sum
    assert ids[0] == ids[1] == "7b4717fdb23d7345"
    assert len(set(ids)) == len(CONFIGS) - 1
    assert case_id("other", CONFIGS[0]) != ids[0]


@pytest.mark.usefixtures("harness")
@pytest.mark.parametrize("config", CONFIGS)
def test_the_harness_computes_the_same_case_id(config: dict[str, Any]) -> None:
    from harness.cases import CaseConfig  # type: ignore[import-not-found]
    from harness.cases import case_id as harness_case_id

    assert harness_case_id("op", CaseConfig(config).parameters()) == case_id("op", config)


@pytest.mark.parametrize(("kind", "name", "model"), DEVICES)
def test_models(kind: str, name: str, model: str) -> None:
    assert model_name(name, kind) == model
    assert csv_name(model) == f"mcoplib_ops_performance_{model}.csv"


def test_long_models_have_names_of_their_own() -> None:
    models = ["A" * length for length in (71, 72, 73, 74, 400)]
    names = {csv_name(model) for model in models}
    assert len(names) == len(models)
    assert max(map(len, names)) == 100
    assert csv_name(models[1]) == f"mcoplib_ops_performance_{models[1]}.csv"


@pytest.mark.usefixtures("harness")
@pytest.mark.parametrize(("kind", "name", "model"), DEVICES)
def test_the_harness_names_models_the_same(kind: str, name: str, model: str) -> None:
    from harness.environment import device_model  # type: ignore[import-not-found]

    assert device_model(name, kind) == model


@pytest.mark.usefixtures("harness")
def test_the_harness_writes_the_same_columns() -> None:
    from harness import csvtable  # type: ignore[import-not-found]

    assert (csvtable.ESTABLISHED, csvtable.EXTRA) == (ESTABLISHED, EXTRA)


RECORDS: list[dict[str, Any]] = [
    {},
    {"flops": 10**9, "flags": ["LAUNCH_BOUND", "CONTENDED"], "repeats": 5, "repeat_spread": 0.02},
    {"timers": {"cold_gpu": {"mean": 2e-5}, "cpu": None, "batch_gpu": None}, "flops": 7},
    {
        "device": {"kind": "cpu", "name": "AMD EPYC 9554 64-Core Processor", "index": 0},
        "timers": {"cold_gpu": None, "cpu": {"mean": 2e-3, "median": 1e-3, "samples": 9}},
        "flops": 10**6,
    },
    {"summaries": {"Op": "op", "Bits": 4, "Shape": "(1, 2)"}, "flops": 0},
]


@pytest.mark.usefixtures("harness")
@pytest.mark.parametrize("changes", RECORDS)
def test_the_harness_writes_the_same_row(changes: dict[str, Any]) -> None:
    from harness import csvtable

    values: dict[str, Any] = {
        "schema": "mxfleet-result/1",
        "record_id": "1",
        "suite": "mcoplib",
        "op": "op",
        "case_id": "00000000000000aa",
        "status": "PASSED",
        "flags": [],
        "verification": {"passed": True, "metrics": {"one_minus_cosine": 1e-7}},
        "summaries": {"Op": "op", "dtype": "float16", "Shape": "(16 512)"},
        "timers": {
            "cold_gpu": {"mean": 1.5e-5, "median": 1e-5, "noise": 0.1, "samples": 40},
            "cpu": {"mean": 5e-5, "median": 4e-5, "noise": 0.2, "samples": 40},
            "batch_gpu": {"mean": 2e-5, "samples": 900},
        },
        "repeats": 1,
        "repeat_spread": None,
        "flops": None,
        "rates": {
            "elements_per_second": 1e9,
            "bytes_per_second": 2e12,
            "bandwidth_utilisation": 0.5,
        },
        "device": {"kind": "maca", "name": "MetaX C500", "index": 3, "uuid": None},
        **changes,
    }
    values["timers"] = {"cold_gpu": None, "cpu": None, "batch_gpu": None, **values["timers"]}
    theirs = csvtable.row_of(values, "1.00e-07")
    ours = row_of([Record.model_validate(values)])
    assert tuple(theirs.cells) == ours.cells
    assert theirs.extra == dict(ours.extra)


EXPECTED: list[tuple[str, str, Any, bool]] = [
    ("NVIDIA H200", "cuda", None, False),
    ("NVIDIA H200", "cuda", "", False),
    ("NVIDIA H200", "cuda", [], False),
    ("NVIDIA H200", "cuda", [" "], False),
    ("NVIDIA H200", "cuda", "NVIDIA H200", False),
    ("NVIDIA H200", "cuda", "h200", False),
    ("NVIDIA H200", "cuda", ["MetaX C500", "NVIDIA H200"], False),
    ("NVIDIA H200", "cuda", "NVIDIA H20", True),
    ("NVIDIA H200", "cuda", ["MetaX C500", 7], True),
    ("NVIDIA H200", "cuda", 7, True),
    ("MetaX C500", "maca", "C500", False),
    ("Xeon Gold", "cpu", "MetaX C500", True),
    ("Xeon Gold", "cpu", "Xeon Gold CPU @ 2.1GHz", False),
]


@pytest.mark.parametrize(("name", "kind", "expected", "odd"), EXPECTED)
def test_what_the_config_is_for(name: str, kind: str, expected: Any, odd: bool) -> None:
    assert (mismatch(name, kind, expected) is not None) is odd


@pytest.mark.usefixtures("harness")
@pytest.mark.parametrize(("name", "kind", "expected", "odd"), EXPECTED)
def test_the_harness_finds_the_same_odd(name: str, kind: str, expected: Any, odd: bool) -> None:
    from harness.environment import mismatch as harness_mismatch  # type: ignore[import-not-found]

    device = {"kind": kind, "name": name, "index": 0, "uuid": None}
    assert harness_mismatch(device, expected) == mismatch(name, kind, expected)
