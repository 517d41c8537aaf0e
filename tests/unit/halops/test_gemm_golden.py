"""The reference of each GEMM scenario and mode against sums over the stored bits, term by term."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch
from kernel.gemm.backends import golden
from kernel.gemm.formats import operand
from kernel.gemm.formats.operand import Operand
from kernel.gemm.problem import Grouped
from kernel.gemm.scenarios import dense, group_masked, grouped_contiguous

CPU = torch.device("cpu")
# The mode and, for w8a8-fp8, where its scales lie.
FORMATS: list[dict[str, Any]] = [
    {"mode": "bf16"},
    {"mode": "w8a8-fp8"},
    {"mode": "w8a8-fp8", "fp8_scales": "block"},
    {"mode": "w8a8-mxfp8"},
    {"mode": "w4a4-nvfp4"},
]


def e4m3(code: int) -> Fraction:
    exponent, mantissa = code >> 3 & 15, code & 7
    size = Fraction(8 * (exponent > 0) + mantissa, 8) * Fraction(2) ** (max(exponent, 1) - 7)
    return -size if code & 0x80 else size


def e2m1(code: int) -> Fraction:
    exponent, mantissa = code >> 1 & 3, code & 1
    size = Fraction(2 * (exponent > 0) + mantissa, 2) * Fraction(2) ** (max(exponent, 1) - 1)
    return -size if code & 8 else size


def stored(side: Operand, row: int, k: int) -> Fraction:
    """The number of a matrix that stands at [row, k], read from its bits."""
    if side.mode == "bf16":
        return Fraction(float(side.data[row, k]))
    raw = side.data.view(torch.uint8)
    if side.mode == "w4a4-nvfp4":
        code = int(raw[row, k // 2]) >> (4 if k % 2 else 0) & 15
        scale = e4m3(int(side.scales.view(torch.uint8)[row, k // 16]))
        return e2m1(code) * scale * Fraction(float(side.whole))
    value = e4m3(int(raw[row, k]))
    if side.mode == "w8a8-mxfp8":
        return value * Fraction(2) ** (int(side.scales[row, k // 32]) - 127)
    tall, wide = side.block
    return value * Fraction(float(side.scales[row // tall, k // wide if wide else 0]))


def summed(a: Operand, b: Operand, row: int, column: int) -> float:
    length = a.data.shape[-1] * (2 if a.mode == "w4a4-nvfp4" else 1)
    terms = (stored(a, row, k) * stored(b, column, k) for k in range(length))
    return float(sum(terms, Fraction(0)))


def agree(found: float, wanted: float) -> bool:
    """Within the rounding to float32: what stands before it is exact but for float64's own."""
    return abs(found - wanted) <= 2**-24 * abs(wanted) + 1e-12


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_dense(form: dict[str, Any]) -> None:
    inputs = dense._make_inputs(form, 5, 128, 128, CPU)
    out = golden.dense(inputs)()
    assert out.shape == (5, 128)
    for row in range(5):
        for column in (0, 17, 127):
            assert agree(float(out[row, column]), summed(inputs.a, inputs.b, row, column))


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_grouped_contiguous_takes_each_rows_expert(form: dict[str, Any]) -> None:
    cfg = form | {"m_alignment": 2, "routing": "random", "seed": 3}
    inputs = grouped_contiguous._make_inputs(cfg, 4, 16, 128, 128, CPU)
    assert sum(inputs.rows) == 16 and len(set(inputs.rows)) > 1
    out = golden.contiguous(inputs)()
    assert out.shape == (16, 128)
    experts = [expert for expert, count in enumerate(inputs.rows) for _ in range(count)]
    assert inputs.expert_of_row().tolist() == experts
    for row, expert in enumerate(experts):
        for column in (0, 77):
            wanted = summed(inputs.a, inputs.b[expert], row, column)
            assert agree(float(out[row, column]), wanted)


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_group_masked_leaves_what_does_not_count_at_zero(form: dict[str, Any]) -> None:
    inputs = group_masked._make_inputs(form | {"masked_m": [2, 0, 5]}, 3, 8, 128, 128, CPU)
    out = golden.masked(inputs)()
    assert out.shape == (3, 5, 128)
    for expert, count in enumerate((2, 0, 5)):
        assert out[expert, count:].eq(0).all()
        assert inputs.a[expert].dequantised()[count:].eq(0).all()
        for row in range(count):
            for column in (3, 127):
                wanted = summed(inputs.a[expert], inputs.b[expert], row, column)
                assert agree(float(out[expert, row, column]), wanted)


def test_values_are_seeded_and_of_usual_size() -> None:
    first, again, other = (
        dense._make_inputs({"mode": "bf16", "seed": seed}, 64, 64, 64, CPU) for seed in (1, 1, 2)
    )
    assert torch.equal(first.a.data, again.a.data) and torch.equal(first.b.data, again.b.data)
    assert not torch.equal(first.a.data, other.a.data)
    assert 0.9 < float(first.a.data.float().std()) < 1.1


def test_rows_that_share_a_scale_are_not_taken_apart() -> None:
    side = operand.quantise("w8a8-fp8", torch.ones(128, 128), block=(128, 128))
    with pytest.raises(ValueError, match="share a scale"):
        side.rows(slice(3))


def test_the_contiguous_layout_has_its_ends_at_running_sums() -> None:
    side = operand.quantise("bf16", torch.ones(7, 32))
    inputs = Grouped(side, side, (4, 0, 3), torch.tensor([4, 0, 3]))
    assert inputs.ends == [4, 4, 7]
