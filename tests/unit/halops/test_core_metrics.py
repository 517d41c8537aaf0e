"""Metrics against counting one by one, and peaks against the harness' data sheets."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import pytest
from core import metrics
from harness import specs


@pytest.mark.parametrize(("q_len", "kv_len"), list(itertools.product(range(1, 8), range(1, 9))))
@pytest.mark.parametrize("causal", [True, False])
def test_attended_pairs_are_those_that_a_mask_leaves(q_len: int, kv_len: int, causal: bool) -> None:
    counted = sum(
        1
        for query, key in itertools.product(range(q_len), range(kv_len))
        # Bottom-right: the last query and the last key share a position.
        if not causal or key - (kv_len - 1) <= query - (q_len - 1)
    )
    assert metrics.attended_pairs(q_len, kv_len, causal) == counted


def test_attention_flops_count_both_products() -> None:
    # One multiply-add for each pair, head, and element of the key, then of the value.
    heads, d_qk, d_vo, pairs = 3, 5, 7, 11
    counted = sum(2 for _ in itertools.product(range(heads), range(pairs), range(d_qk + d_vo)))
    assert metrics.attention_flops(heads, d_qk, d_vo, pairs) == counted


def test_gemm_flops_and_bytes() -> None:
    assert metrics.gemm_flops(2, 3, 5) == 2 * sum(
        1 for _ in itertools.product(range(2), range(3), range(5))
    )
    # FP4: two numbers a byte.
    read, written = metrics.gemm_bytes(4, 6, 32, a_bits=4, b_bits=4, out_bits=16, scale_bytes=9)
    assert (read, written) == (4 * 32 // 2 + 6 * 32 // 2 + 9, 4 * 6 * 2)


@pytest.mark.parametrize(("rows", "k"), [(1, 16), (3, 33), (128, 64), (129, 160), (200, 4096)])
def test_scale_bytes_are_those_of_the_blocks(rows: int, k: int) -> None:
    per_32 = sum(1 for _ in range(rows) for _ in range(0, k, 32))
    per_16 = sum(1 for _ in range(rows) for _ in range(0, k, 16))
    assert metrics.mxfp8_scale_bytes(rows, k) == per_32
    assert metrics.nvfp4_scale_bytes(rows, k) == per_16 + 4
    tiles = sum(1 for _ in range(0, rows, 128) for _ in range(0, k, 32 * 4))
    assert metrics.mxfp8_scale_bytes(rows, k, swizzled=True) == tiles * 512


def test_peaks_are_those_of_the_harness() -> None:
    for key, spec in metrics.GPU_SPECS.items():
        for model in spec["models"]:
            sheet = specs.peaks(model, None)
            assert sheet is not None, model
            assert spec["bandwidth"] == pytest.approx(sheet.bandwidth)
            given = {name: spec[name] for name in specs.CLASSES if name in spec}
            theirs = {n: v for n, v in sheet.flops.items() if n != "int8"}
            assert given == pytest.approx(theirs), key
        assert ("fp4" in spec) == (key == "b200")


def test_gpu_specs_can_be_read_without_importing() -> None:
    assert metrics.__file__ is not None
    tree = ast.parse(Path(metrics.__file__).read_text())
    (found,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id == "GPU_SPECS"
        and node.value is not None
    ]
    assert ast.literal_eval(found) == metrics.GPU_SPECS


def test_the_gpu_type_is_the_detected_one() -> None:
    assert metrics.gpu_spec(None, "H200") == ("h200", None)
    assert metrics.gpu_spec("h100", "H200") == ("h100", None)
    key, note = metrics.gpu_spec(None, None)
    assert key == "b200"
    assert note is not None
    key, note = metrics.gpu_spec(None, "C600")
    assert key is None
    assert note is not None
    assert "C600" in note
    with pytest.raises(ValueError, match="h300"):
        metrics.gpu_spec("h300", "H200")


def test_a_roofline_says_which_roof_and_how_near() -> None:
    bandwidth, peak = metrics.GPU_SPECS["h200"]["bandwidth"], metrics.GPU_SPECS["h200"]["bf16"]
    bound_by_memory = metrics.Work(1, int(bandwidth), 0, "bf16")
    found = metrics.roofline("h200", bound_by_memory, 2.0)
    assert found is not None
    assert (found["bound"], found["fraction"]) == ("memory", pytest.approx(0.5))
    assert not metrics.above_roofline(found)
    bound_by_compute = metrics.Work(int(peak), 1, 0, "bf16")
    found = metrics.roofline("h200", bound_by_compute, 0.9)
    assert found is not None
    assert found["bound"] == "compute"
    assert metrics.above_roofline(found)
    assert not metrics.above_roofline(metrics.roofline("h200", bound_by_compute, 1 / 1.049))
    assert metrics.roofline(None, bound_by_compute, 1.0) is None
    without = metrics.roofline("h200", metrics.Work(1, 1, 1, "fp4"), 1.0)
    assert without is not None
    assert without["flops_fraction"] is None
    assert without["fraction"] is None
