"""Configs checked against a checkout written as the specification spells it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.author.halops.check import check_config
from orchestrator.author.halops.facts import Checkout, Violation
from orchestrator.author.halops.read import read_checkout

ROOT = Path(__file__).parent / "checkouts" / "plain"
DECODE: dict[str, Any] = {
    "scenario": "decode_gqa",
    "dtype": "bfloat16",
    "num_q_heads": 64,
    "num_kv_heads": 8,
    "head_dim": 128,
    "batch_sizes": [1, 16],
    "s_kv_list": [4096, 8192],
    "backends": ["halops", "fi", "golden"],
}
DENSE: dict[str, Any] = {
    "scenario": "dense",
    "mode": "w8a8-mxfp8",
    "shapes": [[128, 4096, 4096]],
    "backends": ["halops", "cublas", "golden"],
}
MASKED = {**DENSE, "scenario": "group_masked", "shapes": [[8, 128, 4096, 4096]]}


@pytest.fixture(scope="module")
def checkout() -> Checkout:
    return read_checkout(ROOT)


def said(found: list[Violation]) -> list[tuple[str, str]]:
    return [(each.severity, each.rule) for each in found]


def line(checkout: Checkout, each: Violation) -> str:
    assert each.place is not None
    text = (checkout.root / each.place.path).read_text()
    return text.splitlines()[each.place.line - 1].strip()


@pytest.mark.parametrize(
    ("op", "values"), [("attention", DECODE), ("gemm", DENSE), ("gemm", MASKED)]
)
def test_a_right_config_is_right(checkout: Checkout, op: str, values: dict[str, Any]) -> None:
    assert check_config(checkout, op, values) == []


@pytest.mark.parametrize(
    ("op", "base", "change", "rule", "code"),
    [
        ("attention", DECODE, {"scenario": "decode"}, "scenario", "def run_scenario(cfg, ctx):"),
        ("attention", DECODE, {"num_kv_heads": 7}, "constraint", "assert hq % hkv == 0"),
        ("attention", DECODE, {"mtp_steps_list": [0, 7, 8]}, "constraint", "(1 + mtp) * group"),
        ("attention", DECODE, {"dtype": "bf16"}, "dtype-spelling", "getattr(torch, name)"),
        ("attention", DECODE, {"backends": ["halops", "fa4"]}, "backend", '"halops": adapt_halops'),
        ("attention", DECODE, {"s_kv_list": []}, "sweep", 'cfg["s_kv_list"]'),
        (
            "attention",
            DECODE,
            {"dtype": "fp8", "backends": ["halops", "fa2"]},
            "backend-dtype",
            'raise ValueError("fa2 has no FP8")',
        ),
        (
            "attention",
            DECODE,
            {"dtype": "e4m3", "backends": ["halops", "cudnn"]},
            "backend-dtype",
            "raise NotImplementedError",
        ),
        (
            "gemm",
            DENSE,
            {"mode": "w4a4-nvfp4", "shapes": [[1, 64, 128], [1, 64, 100]], "backends": ["halops"]},
            "constraint",
            "assert K % 16 == 0",
        ),
        ("gemm", DENSE, {"mode": "w4a4-nvfp4"}, "backend-dtype", "raise ValueError(f"),
        ("gemm", DENSE, {"mode": "int4"}, "constraint", 'raise ValueError("unknown mode")'),
        ("gemm", DENSE, {"shapes": [[1, 2, 3, 4]]}, "shape", "for M, N, K in cfg"),
        ("gemm", MASKED, {"backends": ["cublas", "halops"]}, "halops-first", "if base is None:"),
        ("gemm", MASKED, {"refcheck_reference": "gold"}, "reference", "return dict(halops="),
    ],
)
def test_a_wrong_one_is_refused_with_the_line_that_forbids_it(
    checkout: Checkout, op: str, base: dict[str, Any], change: dict[str, Any], rule: str, code: str
) -> None:
    errors = [e for e in check_config(checkout, op, {**base, **change}) if e.severity == "error"]
    assert [each.rule for each in errors] == [rule]
    assert code in line(checkout, errors[0])


def test_the_same_values_pass_in_a_branch_that_does_not_forbid_them(checkout: Checkout) -> None:
    odd = {**DENSE, "mode": "bf16", "shapes": [[1, 64, 100]]}
    assert check_config(checkout, "gemm", odd) == []


def test_a_missing_field_and_an_unknown_op(checkout: Checkout) -> None:
    few = {name: value for name, value in DECODE.items() if name != "head_dim"}
    (found,) = check_config(checkout, "attention", few)
    assert (found.rule, found.field) == ("required", "head_dim")
    (found,) = check_config(checkout, "atention", DECODE)
    assert found.rule == "op" and "attention" in found.hint


@pytest.mark.parametrize("field", ["dtype", "backends", "gpu_type", "refcheck_reference"])
@pytest.mark.parametrize("value", [[[]], {"a": 1}, 5, [None], True])
def test_values_of_any_type_are_refused_not_stumbled_over(
    checkout: Checkout, field: str, value: Any
) -> None:
    found = check_config(checkout, "attention", {**DECODE, field: value})
    assert any(each.field == field for each in found)


def test_what_is_only_told(checkout: Checkout) -> None:
    later = {**DECODE, "backends": ["fi", "halops"]}
    assert said(check_config(checkout, "attention", later)) == [("note", "halops-first")]
    strange = {**DECODE, "gpu_type": "b300"}
    assert said(check_config(checkout, "attention", strange)) == [("warning", "gpu")]
    one = {name: value for name, value in DECODE.items() if name != "batch_sizes"}
    assert said(check_config(checkout, "attention", one)) == [("warning", "batch")]
    four = {**MASKED, "mode": "w4a4-nvfp4", "backends": ["halops"], "gpu_type": "h200"}
    assert said(check_config(checkout, "gemm", four)) == [("warning", "fp4")]
    assert check_config(checkout, "gemm", {**four, "gpu_type": "b200"}) == []
    spelled = {**DECODE, "s_kv_lst": [1]}
    assert said(check_config(checkout, "attention", spelled)) == [("warning", "unread")]
