"""The reader and the checks on the suite of this repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.author.halops.check import check_config
from orchestrator.author.halops.facts import Checkout, Violation
from orchestrator.author.halops.read import read_checkout

ROOT = Path(__file__).resolve().parents[4] / "benchmark" / "halops"


@pytest.fixture(scope="module")
def checkout() -> Checkout:
    return read_checkout(ROOT)


def config(checkout: Checkout, op: str, scenario: str) -> dict[str, Any]:
    """One of the suite's own configs of a scenario."""
    found = [each for each in checkout.ops[op].neighbours if each.scenario == scenario]
    return dict(found[0].values)


def errors(checkout: Checkout, op: str, values: dict[str, Any]) -> list[Violation]:
    return [each for each in check_config(checkout, op, values) if each.severity == "error"]


def test_every_scenario_is_read_whole(checkout: Checkout) -> None:
    assert checkout.todos == ()
    for op in checkout.ops.values():
        for scenario in op.scenarios.values():
            assert scenario.todos == ()
            assert {"halops", "golden"} <= set(scenario.backends), scenario.name
            assert scenario.fields["backends"].names_backends
            assert scenario.sweeps, scenario.name
    decode = checkout.scenario("attention", "decode_gqa")
    assert {each.name for each in decode.sweeps} == {"s_kv_list", "mtp_steps_list", "batch_sizes"}
    assert {"fp8", "e4m3"} <= set(decode.dtypes["dtype"].aliases)
    assert {"fp8", "e4m3"} <= set(decode.backends["fa2"].refuses)
    assert checkout.scenario("attention", "prefill_dense").constraints == ()
    assert checkout.scenario("gemm", "dense").fields["shapes"].columns == ("M", "N", "K")


@pytest.mark.parametrize(("op", "scenario"), [("attention", "decode_gqa"), ("gemm", "dense")])
def test_its_own_configs_are_right(checkout: Checkout, op: str, scenario: str) -> None:
    assert errors(checkout, op, config(checkout, op, scenario)) == []


@pytest.mark.parametrize(
    ("op", "scenario", "change", "rule"),
    [
        ("attention", "decode_gqa", {"dtype": "fp8", "backends": ["halops", "fa2"]}, "backend-dt"),
        ("attention", "decode_gqa", {"dtype": "bf16"}, "dtype-spelling"),
        ("attention", "decode_gqa", {"backends": ["halops", "fa5"]}, "backend"),
        ("attention", "decode_gqa", {"mtp_steps_list": [63]}, "constraint"),
        (
            "gemm",
            "dense",
            {"mode": "w4a4-nvfp4", "shapes": [[1, 128, 100]], "backends": ["golden"]},
            "constraint",
        ),
    ],
)
def test_wrong_ones_are_refused(
    checkout: Checkout, op: str, scenario: str, change: dict[str, Any], rule: str
) -> None:
    found = errors(checkout, op, {**config(checkout, op, scenario), **change})
    assert found and all(each.rule.startswith(rule) for each in found), [str(e) for e in found]
    assert all(each.place and (ROOT / each.place.path).is_file() for each in found)
