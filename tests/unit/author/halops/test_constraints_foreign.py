"""Configs checked against checkouts that are written otherwise, and hostile ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from orchestrator.author.halops.check import check_config
from orchestrator.author.halops.facts import Checkout, Violation
from orchestrator.author.halops.read import read_checkout

CHECKOUTS = Path(__file__).parent / "checkouts"
SPARSE: dict[str, Any] = {
    "scenario": "decode_sparse",
    "dtype": "bfloat16",
    "q_heads": 64,
    "kv_heads": 8,
    "kv_lens": [4096, 8192],
    "batch_sizes": [1, 4],
    "backends": ["halops", "fa2", "golden"],
}
MTP: dict[str, Any] = {
    "scenario": "mtp",
    "dtype": "bfloat16",
    "num_q_heads": 32,
    "num_kv_heads": 8,
    "s_kv_list": [4096],
    "batch_sizes": [1],
    "mtp_steps_list": [0, 1, 3],
    "backends": ["halops", "fa2"],
}
CONTIGUOUS: dict[str, Any] = {
    "scenario": "grouped_contiguous",
    "mode": "w8a8-mxfp8",
    "shapes": [[4, 1024, 4096, 4096]],
    "backends": ["halops", "deep_gemm"],
}


@pytest.fixture(scope="module")
def decorated() -> Checkout:
    return read_checkout(CHECKOUTS / "decorated")


@pytest.fixture(scope="module")
def updated() -> Checkout:
    return read_checkout(CHECKOUTS / "updated")


def errors(checkout: Checkout, op: str, values: dict[str, Any]) -> list[Violation]:
    return [each for each in check_config(checkout, op, values) if each.severity == "error"]


@pytest.mark.parametrize(
    ("change", "rule", "said"),
    [
        ({"kv_heads": 7}, "constraint", "common.py:28: q % kv == 0 does not hold at q=64, kv=7"),
        ({"topk": 100}, "constraint", "decode_sparse.py:49: topk % page == 0 does not hold"),
        ({"kv_lens": [4096, 1024]}, "constraint", "decode_sparse.py:50: topk <= length"),
        ({"dtype": "fp8"}, "unknown-value", "'fp8' is none of bfloat16, float16, e4m3"),
        ({"dtype": "e4m3"}, "backend-dtype", "decode_sparse.py:37: fa2 cannot do dtype: e4m3"),
        ({"backends": ["halops", "fi"]}, "backend", "no backend 'fi'"),
        ({"gpu_type": "h200"}, "gpu", "core/gpus.py:12: gpu_type 'h200' is none of GPU_SPECS"),
    ],
)
def test_wrong_ones_of_decorated(
    decorated: Checkout, change: dict[str, Any], rule: str, said: str
) -> None:
    assert errors(decorated, "attention", SPARSE) == []
    (found,) = errors(decorated, "attention", {**SPARSE, **change})
    assert found.rule == rule and said in str(found)


@pytest.mark.parametrize(
    ("change", "rule", "said"),
    [
        ({"num_q_heads": 60}, "constraint", "mtp.py:21"),
        ({"mtp_steps_list": [1, 16]}, "constraint", "mtp.py:22: self.rows <= 64 does not hold"),
        ({"quant": "per_block", "s_kv_list": [100]}, "constraint", "mtp.py:36"),
        ({"batch_sizes": [1, 2, 512]}, "constraint", "spec['batch_size']=512"),
        ({"dtype": "bf16"}, "dtype-spelling", "mtp.py:30: torch has no dtype 'bf16'"),
        ({"dtype": "fp8"}, "backend-dtype", "mtp.py:43: fa2 cannot do dtype: fp8"),
    ],
)
def test_wrong_attention_of_updated(
    updated: Checkout, change: dict[str, Any], rule: str, said: str
) -> None:
    assert errors(updated, "attention", MTP) == []
    (found,) = errors(updated, "attention", {**MTP, **change})
    assert found.rule == rule and said in str(found)


def test_a_length_is_free_where_the_branch_does_not_apply(updated: Checkout) -> None:
    assert errors(updated, "attention", {**MTP, "s_kv_list": [100]}) == []


def test_gemm_of_updated_with_what_only_a_run_can_show(updated: Checkout) -> None:
    found = check_config(updated, "gemm", CONTIGUOUS)
    assert [(each.severity, each.rule) for each in found] == [("run", "run-only")]
    assert found[0].place and found[0].place.line == 21
    (odd,) = errors(updated, "gemm", {**CONTIGUOUS, "shapes": [[4, 1024, 4096, 4128]]})
    assert odd.rule == "constraint" and "contiguous.py:16" in str(odd)
    (few,) = errors(updated, "gemm", {**CONTIGUOUS, "shapes": [[16, 1024, 4096, 4096]]})
    assert "contiguous.py:19" in str(few) and "too few rows" in str(few)
    (first,) = errors(updated, "gemm", {**CONTIGUOUS, "backends": ["deep_gemm", "halops"]})
    assert first.rule == "halops-first" and "contiguous.py:35" in str(first)
    (refused,) = errors(updated, "gemm", {**CONTIGUOUS, "mode": "w4a4-nvfp4"})
    assert refused.rule == "backend-dtype" and "deep.py:5" in str(refused)


def test_nothing_of_a_checkout_runs_and_every_run_ends(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    shutil.copytree(CHECKOUTS / "plain", root)
    target = root / "benchmark" / "kernel" / "attention" / "scenarios" / "prefill_dense.py"
    marker = tmp_path / "ran"
    hostile = (
        f"import os, pathlib\npathlib.Path({str(marker)!r}).write_text('x')\n"
        f"os.system('touch {marker}')\n().__class__.__base__.__subclasses__()\n"
        "X = 10 ** 10 ** 10\nY = 'a' * 10 ** 12\nZ = [0] * (1 << 60)\nW = 1 << 10 ** 15\n"
        "V = f'{1:1000000000000}' + '%9999999999d' % 1\nU = list(range(10 ** 18))\n"
        "def again(n):\n    return again(n + 1) + again(n + 2)\nT = again(0)\n"
        "S = 0\nwhile True:\n    S += 1\n"
    )
    target.write_text(hostile + target.read_text())
    checkout = read_checkout(root)
    assert "decode_gqa" in checkout.ops["attention"].scenarios
    assert not marker.exists()
