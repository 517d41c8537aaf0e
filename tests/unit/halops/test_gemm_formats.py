"""The number formats against tables written out from their definitions, over all codes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import pytest
import torch
from kernel.gemm.formats import fp8, mxfp8, nvfp4, operand, swizzle


def small_float(code: int, exponent_bits: int, mantissa_bits: int, bias: int) -> Fraction:
    """The value of a positive code by the definition of a binary floating-point number."""
    mantissa = code & ((1 << mantissa_bits) - 1)
    exponent = code >> mantissa_bits
    assert exponent < 1 << exponent_bits
    if exponent == 0:
        return Fraction(mantissa, 1 << mantissa_bits) * Fraction(2) ** (1 - bias)
    return (1 + Fraction(mantissa, 1 << mantissa_bits)) * Fraction(2) ** (exponent - bias)


E4M3 = [small_float(code, 4, 3, 7) for code in range(0x7F)]  # 0x7F is NaN
E2M1 = [small_float(code, 2, 1, 1) for code in range(8)]


def nearest(value: Fraction, table: list[Fraction]) -> int:
    """The code of the nearest value, ties to the even code, saturating."""
    return min(range(len(table)), key=lambda code: (abs(table[code] - value), code % 2))


def probes(table: list[Fraction]) -> Iterator[Fraction]:
    """Each value, each middle, and a little to both sides of each middle; and beyond the end."""
    for low, high in itertools.pairwise(table):
        middle = (low + high) / 2
        little = (high - low) / 64
        yield from (low, middle - little, middle, middle + little)
    yield from (table[-1], table[-1] * Fraction(33, 32), table[-1] * 4)


def test_e4m3_encodes_to_nearest_even_over_its_whole_table() -> None:
    values = list(probes(E4M3))
    codes = fp8.encode(torch.tensor([float(v) for v in values])).view(torch.uint8)
    assert codes.tolist() == [nearest(v, E4M3) for v in values]
    negative = fp8.encode(torch.tensor([-float(v) for v in values])).view(torch.uint8)
    assert negative.tolist() == [nearest(v, E4M3) | 0x80 for v in values]
    assert float(E4M3[-1]) == fp8.LARGEST


def test_e4m3_decodes_every_code_and_keeps_nan() -> None:
    codes = torch.arange(0x7F, dtype=torch.uint8).view(torch.float8_e4m3fn)
    assert codes.float().tolist() == [float(v) for v in E4M3]
    assert fp8.encode(torch.tensor([math.nan])).float().isnan().all()


def test_e2m1_encodes_to_nearest_even_over_its_whole_table() -> None:
    values = list(probes(E2M1))
    codes = nvfp4.encode(torch.tensor([float(v) for v in values]))
    assert codes.tolist() == [nearest(v, E2M1) for v in values]
    negative = nvfp4.encode(torch.tensor([-float(v) for v in values]))
    assert negative.tolist() == [nearest(v, E2M1) | 8 for v in values]


def test_e2m1_decodes_every_code() -> None:
    decoded = nvfp4.decode(torch.arange(16, dtype=torch.uint8)).tolist()
    assert decoded == [float(v) for v in E2M1] + [-float(v) for v in E2M1]


def test_packing_puts_the_even_element_low_and_comes_back_for_every_pair() -> None:
    pairs = torch.cartesian_prod(torch.arange(16), torch.arange(16)).to(torch.uint8)
    packed = nvfp4.pack(pairs)
    assert packed.flatten().tolist() == [int(a) + 16 * int(b) for a, b in pairs]
    assert torch.equal(nvfp4.unpack(packed), pairs)


def test_e8m0_is_a_power_of_two_for_every_code() -> None:
    values = mxfp8.scale_values(torch.arange(256, dtype=torch.uint8))
    assert values[:-1].tolist() == [2.0 ** (code - 127) for code in range(255)]
    assert values[-1].isnan()
    exact = torch.arange(255, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    assert torch.equal(values[:-1], exact.float())


def test_e8m0_of_a_block_is_the_exponent_of_its_largest_less_that_of_e4m3() -> None:
    largest = [2.0**e * m for e in range(-126, 128) for m in (1.0, 1.5, 1.9999999)]
    codes = mxfp8.scale_codes(torch.tensor(largest))
    wanted = [max(0, math.floor(math.log2(Fraction(x))) - 8 + 127) for x in largest]
    assert codes.tolist() == wanted
    special = mxfp8.scale_codes(torch.tensor([0.0, math.nan, math.inf]))
    assert special.tolist() == [127, 255, 255]


def test_fp8_scales_bring_the_largest_of_each_block_to_448() -> None:
    torch.manual_seed(0)
    values = torch.randn(3, 5, 7)
    for block in (fp8.ROW, (2, 3), (0, 0)):
        codes, scales = fp8.quantise(values, block)
        tall, wide = block[0] or 5, block[1] or 7
        assert scales.shape == (3, math.ceil(5 / tall), math.ceil(7 / wide))
        back = fp8.dequantise(codes, scales, block)
        for matrix in range(3):
            for row in range(scales.shape[1]):
                for column in range(scales.shape[2]):
                    here = (
                        matrix,
                        slice(row * tall, (row + 1) * tall),
                        slice(column * wide, (column + 1) * wide),
                    )
                    scale = scales[matrix, row, column]
                    assert scale == values[here].abs().max() / 448
                    assert codes[here].float().abs().max() == 448
                    assert torch.equal(back[here], codes[here].double() * scale)


def test_mxfp8_of_values_it_can_hold_is_exact_and_its_blocks_are_apart() -> None:
    torch.manual_seed(0)
    elements = torch.tensor([float(v) for v in E4M3])[torch.randint(0x7F, (4, 3, 32))]
    elements[..., 0] = 448  # so that the block's exponent is known
    scales = 2.0 ** torch.randint(-20, 20, (4, 3, 1))
    values = (elements * scales).flatten(-2)
    codes, e8m0 = mxfp8.quantise(values)
    assert torch.equal(mxfp8.scale_values(e8m0), scales.squeeze(-1))
    assert torch.equal(codes.float(), elements.flatten(-2))
    assert torch.equal(mxfp8.dequantise(codes, e8m0), values.double())


def test_nvfp4_of_values_it_can_hold_is_exact_and_its_blocks_are_apart() -> None:
    torch.manual_seed(0)
    elements = nvfp4.decode(torch.randint(16, (2, 4, 3, 16), dtype=torch.uint8))
    elements[..., 5] = 6
    scales = torch.tensor([float(v) for v in E4M3])[torch.randint(1, 0x7F, (2, 4, 3, 1))]
    scales[:, 0, 0] = 448  # so that the matrix's scale is known
    values = (elements * scales).flatten(-2) * torch.tensor([0.5, 8.0]).view(2, 1, 1)
    packed, e4m3, whole = nvfp4.quantise(values)
    assert whole.flatten().tolist() == [0.5, 8.0]
    assert packed.shape == (2, 4, 24) and packed.dtype == torch.uint8
    assert torch.equal(e4m3.float(), scales.squeeze(-1))
    assert torch.equal(nvfp4.dequantise(packed, e4m3, whole), values.double())


@pytest.mark.parametrize(
    ("mode", "relative"),
    # Half a step of the elements: 2**-4 (E4M3), 2**-4 and the range lost to saturation up to 512
    # (MX), half the widest step of E2M1 (4 to 6: 1 of 6) and half a step of its E4M3 scale.
    [("w8a8-fp8", 2**-4), ("w8a8-mxfp8", 1 / 8), ("w4a4-nvfp4", 1 / 6 + 2**-4)],
)
def test_quantising_loses_no_more_than_the_format_must(mode: str, relative: float) -> None:
    torch.manual_seed(0)
    values = torch.randn(8, 96) * torch.logspace(-6, 6, 8).unsqueeze(-1)
    if mode == "w4a4-nvfp4":  # its scales span 2**18 over a whole matrix, no more
        values = torch.randn(8, 96)
    error = (operand.quantise(mode, values).dequantised() - values).abs()
    size = 16 if mode == "w4a4-nvfp4" else 32
    largest = (
        values.reshape(*values.shape[:-1], -1, size).abs().amax(-1).repeat_interleave(size, -1)
    )
    assert bool((error <= relative * largest).all())
    assert bool((error > 0).any())


@pytest.mark.parametrize("mode", operand.MODES)
def test_zeros_stay_zeros_and_nan_is_never_lost(mode: str) -> None:
    assert operand.quantise(mode, torch.zeros(2, 32)).dequantised().eq(0).all()
    values = torch.ones(2, 32)
    values[1, 3] = math.nan
    assert operand.quantise(mode, values).dequantised()[1].isnan().any()


def test_swizzled_scales_lie_where_the_formula_says() -> None:
    rows, columns = 200, 6
    scales = torch.randint(1, 256, (rows, columns), dtype=torch.uint8)
    flat = swizzle.swizzle(scales).tolist()
    assert len(flat) == 256 * 8
    for row in range(rows):
        for column in range(columns):
            tile = (row // 128) * 2 + column // 4
            r, c = row % 128, column % 4
            place = tile * 512 + (r % 32) * 16 + (r // 32) * 4 + c
            assert flat[place] == scales[row, column]
            flat[place] = 0
    assert not any(flat)  # the rest is padding


@pytest.mark.parametrize(("mode", "k"), [("w8a8-mxfp8", 48), ("w4a4-nvfp4", 24)])
def test_a_k_that_blocks_do_not_divide_is_refused(mode: str, k: int) -> None:
    with pytest.raises(ValueError, match=f"K = {k}"):
        operand.quantise(mode, torch.ones(2, k))


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="fp8"):
        operand.quantise("fp8", torch.ones(2, 32))
