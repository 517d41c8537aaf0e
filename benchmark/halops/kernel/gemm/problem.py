"""The inputs of GEMM scenarios, and what a case of them has to do.

C = A B^T everywhere: A is [rows, K], B [N, K] as weights are stored, C [rows, N] in bfloat16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from core.metrics import Work, gemm_bytes, gemm_flops, mxfp8_scale_bytes, nvfp4_scale_bytes

from kernel.gemm.formats import fp8
from kernel.gemm.formats.operand import Operand

OUT_DTYPE = torch.bfloat16
# Operands are the same stored numbers for every backend, so that only summing and the rounding to
# bfloat16 (2**-9) part them, whatever the mode; Hopper's FP8 tensor cores sum in some 14 bits.
LIMIT = 2e-2

_ELEMENT_BITS = {"bf16": 16, "w8a8-fp8": 8, "w8a8-mxfp8": 8, "w4a4-nvfp4": 4}
_COMPUTE = {"bf16": "bf16", "w8a8-fp8": "fp8", "w8a8-mxfp8": "fp8", "w4a4-nvfp4": "fp4"}


@dataclass(frozen=True)
class Dense:
    """A [M, K] and B [N, K]."""

    a: Operand
    b: Operand


@dataclass(frozen=True)
class Grouped:
    """One matrix product an expert: its rows of A with its B; ``b`` is [experts, N, K].

    Contiguous: A [sum of ``rows``, K], the experts' rows one after another. Masked: A [experts,
    max_m, K], of which each expert's first ``rows`` count, and the others are zero.
    ``rows`` are known on the CPU, ``rows_device`` (int32) is what kernels read.
    """

    a: Operand
    b: Operand
    rows: tuple[int, ...]
    rows_device: torch.Tensor

    @property
    def ends(self) -> list[int]:
        """Where each expert's rows end, of the contiguous layout."""
        return [sum(self.rows[: expert + 1]) for expert in range(len(self.rows))]

    def expert_of_row(self) -> torch.Tensor:
        """The expert of each row of the contiguous layout (int32, [sum of rows])."""
        experts = torch.arange(len(self.rows), dtype=torch.int32, device=self.rows_device.device)
        return experts.repeat_interleave(self.rows_device)

    def counted(self, out: torch.Tensor) -> torch.Tensor:
        """Of a masked output [experts, max_m, N] the part that is compared, a view.

        Rows up to the longest expert's: with as many for each exactly those that count; otherwise
        also rows that are zero, because A is zero there and the backend multiplies them, too.
        """
        return out[:, : max(self.rows)]


def scale_bytes(
    mode: str, rows: int, k: int, *, block: tuple[int, int] = fp8.ROW, swizzled: bool = False
) -> int:
    """Bytes of the scales of one operand [rows, K].

    w8a8-fp8: 4 a block; w8a8-mxfp8: 1 (E8M0) per 32; w4a4-nvfp4: 1 (E4M3) per 16 and 4 for the
    whole; bf16: none. ``swizzled``: with the padding to tiles, of the two formats that have it.
    """
    if mode == "w8a8-fp8":
        return 4 * math.ceil(rows / (block[0] or rows)) * math.ceil(k / (block[1] or k))
    if mode == "w8a8-mxfp8":
        return mxfp8_scale_bytes(rows, k, swizzled)
    if mode == "w4a4-nvfp4":
        return nvfp4_scale_bytes(rows, k, swizzled)
    return 0


def dense_work(mode: str, m: int, n: int, k: int, *, blocks: bool, swizzled: bool) -> Work:
    """2 M N K FLOPs; both operands and their scales read once, C written once.

    ``blocks``: w8a8-fp8 has its scales a 1 x 128 (A) and 128 x 128 (B) instead of a row.
    """
    return grouped_work(mode, [m], n, k, blocks=blocks, swizzled=swizzled)


def grouped_work(
    mode: str, rows: Sequence[int], n: int, k: int, *, blocks: bool, swizzled: bool
) -> Work:
    """The sum over active experts, each with the rows that it has; an idle one's B is not read."""
    bits = _ELEMENT_BITS[mode]
    block_a, block_b = scale_blocks(blocks)
    flops = read = written = 0
    for count in rows:
        if count == 0:
            continue
        scales = scale_bytes(mode, count, k, block=block_a, swizzled=swizzled)
        scales += scale_bytes(mode, n, k, block=block_b, swizzled=swizzled)
        moved = gemm_bytes(count, n, k, a_bits=bits, b_bits=bits, out_bits=16, scale_bytes=scales)
        flops += gemm_flops(count, n, k)
        read, written = read + moved[0], written + moved[1]
    return Work(flops, read, written, _COMPUTE[mode])


def scale_blocks(blocks: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """The blocks (rows, K) that share a float32 scale in w8a8-fp8, of A and of B."""
    return ((1, 128), (128, 128)) if blocks else (fp8.ROW, fp8.ROW)
