"""What a GEMM case asks for, counted over its tensors; and how many rows experts get."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernel.gemm import routing, settings
from kernel.gemm.formats.operand import Operand
from kernel.gemm.formats.swizzle import swizzle
from kernel.gemm.problem import dense_work, grouped_work, scale_bytes
from kernel.gemm.scenarios import dense, grouped_contiguous
from test_gemm_golden import CPU, FORMATS


def held(side: Operand, swizzled: bool) -> int:
    """Bytes of the tensors of one matrix."""
    scales = side.scales
    if swizzled and side.mode in ("w8a8-mxfp8", "w4a4-nvfp4"):
        scales = swizzle(scales)
    return side.data.nbytes + scales.nbytes + side.whole.nbytes


@pytest.mark.parametrize("swizzled", [False, True])
@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_dense_counts_every_byte_of_its_tensors_once(form: dict[str, Any], swizzled: bool) -> None:
    inputs = dense._make_inputs(form, 33, 256, 384, CPU)
    work = dense_work(form["mode"], 33, 256, 384, blocks=settings.blocks(form), swizzled=swizzled)
    assert work.flops == 2 * 33 * 256 * 384
    assert work.bytes_read == held(inputs.a, swizzled) + held(inputs.b, swizzled)
    assert work.bytes_written == 33 * 256 * 2
    known = {"bf16": "bf16", "w8a8-fp8": "fp8", "w8a8-mxfp8": "fp8", "w4a4-nvfp4": "fp4"}
    assert work.compute == known[form["mode"]]


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_grouped_counts_active_experts_with_the_rows_that_they_have(form: dict[str, Any]) -> None:
    cfg = form | {"m_alignment": 4, "routing": "random", "seed": 0}
    inputs = grouped_contiguous._make_inputs(cfg, 6, 24, 128, 128, CPU)
    assert 0 in inputs.rows
    work = grouped_work(
        form["mode"], inputs.rows, 128, 128, blocks=settings.blocks(form), swizzled=False
    )
    active = [expert for expert, count in enumerate(inputs.rows) if count]
    assert work.flops == 2 * 24 * 128 * 128
    # Each expert's product reads the scale of A as a whole, of which there is one.
    read = held(inputs.a, False) + sum(held(inputs.b[expert], False) for expert in active)
    extra = 4 * (len(active) - 1) if form["mode"] == "w4a4-nvfp4" else 0
    assert work.bytes_read == read + extra
    assert work.bytes_written == 24 * 128 * 2


def test_scales_by_hand() -> None:
    # 5 rows of K = 96: three E8M0 or six E4M3 and a float32; one tile of 128 x 4 or two.
    assert scale_bytes("w8a8-mxfp8", 5, 96) == 15
    assert scale_bytes("w8a8-mxfp8", 5, 96, swizzled=True) == 512
    assert scale_bytes("w4a4-nvfp4", 5, 96) == 34
    assert scale_bytes("w4a4-nvfp4", 5, 96, swizzled=True) == 1028
    assert scale_bytes("w8a8-fp8", 5, 96) == 20
    assert scale_bytes("w8a8-fp8", 129, 257, block=(128, 128)) == 4 * 2 * 3
    assert scale_bytes("bf16", 5, 96, swizzled=True) == 0


def contiguous(experts: int, max_m: int, **given: Any) -> tuple[int, ...]:
    defaults: dict[str, Any] = {"alignment": 16, "routing": "even", "seed": 0}
    return routing.contiguous_rows(experts, max_m, **(defaults | given))


def test_even_rows_are_what_fits_in_whole_alignments() -> None:
    assert contiguous(3, 160) == (48, 48, 48)
    assert contiguous(1, 16) == (16,)


def test_random_rows_are_as_many_together_in_whole_alignments() -> None:
    rows = contiguous(8, 1024, routing="random")
    assert sum(rows) == 1024 and len(set(rows)) > 1 and all(count % 16 == 0 for count in rows)
    assert rows == contiguous(8, 1024, routing="random")
    assert rows != contiguous(8, 1024, routing="random", seed=1)


def test_too_few_rows_and_another_routing_are_refused() -> None:
    with pytest.raises(ValueError, match="per_expert is 0"):
        contiguous(8, 127)
    with pytest.raises(ValueError, match="zipf"):
        contiguous(8, 128, routing="zipf")


def test_masked_rows() -> None:
    assert routing.masked_rows(3, 8, None) == (8, 8, 8)
    assert routing.masked_rows(3, 8, 5) == (5, 5, 5)
    assert routing.masked_rows(3, 8, [0, 8, 1]) == (0, 8, 1)
    for wrong in ([1, 2], [1, 2, 9], [-1, 2, 3], 9, 0):
        with pytest.raises(ValueError, match="masked_m"):
            routing.masked_rows(3, 8, wrong)


def test_rows_are_the_same_on_every_device_and_told_to_it() -> None:
    cfg = {"mode": "bf16", "m_alignment": 4, "routing": "random"}
    inputs = grouped_contiguous._make_inputs(cfg, 4, 32, 16, 32, CPU)
    assert inputs.rows_device.dtype == torch.int32
    assert tuple(inputs.rows_device.tolist()) == inputs.rows
