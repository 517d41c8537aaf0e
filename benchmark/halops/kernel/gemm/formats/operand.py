"""One side of a GEMM in its mode's number format: quantised once, handed to every backend alike."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from kernel.gemm.formats import fp8, mxfp8, nvfp4, swizzle

MODES = ("bf16", "w8a8-fp8", "w8a8-mxfp8", "w4a4-nvfp4")


@dataclass(frozen=True)
class Operand:
    """Values [..., rows, K] as ``mode`` stores them.

    ``data``: bfloat16, E4M3 or (NVFP4) bytes of two E2M1 [..., rows, K / 2]. ``scales``: float32 a
    block of ``block`` (w8a8-fp8), E8M0 as uint8 a 32 (w8a8-mxfp8), E4M3 a 16 (w4a4-nvfp4); None for
    bf16. ``whole``: NVFP4's float32 for each matrix [..., 1, 1].
    """

    mode: str
    data: torch.Tensor
    scales: torch.Tensor | None = None
    whole: torch.Tensor | None = None
    block: tuple[int, int] = fp8.ROW

    def dequantised(self) -> torch.Tensor:
        """The values that the stored numbers stand for, in float32 [..., rows, K]."""
        if self.mode == "w8a8-fp8" and self.scales is not None:
            return fp8.dequantise(self.data, self.scales, self.block)
        if self.mode == "w8a8-mxfp8" and self.scales is not None:
            return mxfp8.dequantise(self.data, self.scales)
        if self.mode == "w4a4-nvfp4" and self.scales is not None and self.whole is not None:
            return nvfp4.dequantise(self.data, self.scales, self.whole)
        return self.data.float()

    def __getitem__(self, index: int) -> Operand:
        """The matrix of one expert, of an operand [experts, rows, K]."""
        return Operand(
            self.mode,
            self.data[index],
            None if self.scales is None else self.scales[index],
            None if self.whole is None else self.whole[index],
            self.block,
        )


def quantise(mode: str, values: torch.Tensor, *, block: tuple[int, int] = fp8.ROW) -> Operand:
    """Float ``values`` [..., rows, K] in the format of ``mode``; ``block`` is for w8a8-fp8.

    Raises ValueError on a mode that is none of MODES, or a K that the format's blocks do not divide.
    """
    if mode == "bf16":
        return Operand(mode, values.to(torch.bfloat16))
    if mode == "w8a8-fp8":
        return Operand(mode, *fp8.quantise(values, block), block=block)
    if mode == "w8a8-mxfp8":
        return Operand(mode, *mxfp8.quantise(values))
    if mode == "w4a4-nvfp4":
        return Operand(mode, *nvfp4.quantise(values))
    raise ValueError(f"mode {mode!r} is none of {', '.join(MODES)}")


def data_bytes(mode: str, rows: int, k: int) -> int:
    """Bytes of the elements of [rows, K]: two, one or half a byte each."""
    return rows * k * {"bf16": 4, "w8a8-fp8": 2, "w8a8-mxfp8": 2, "w4a4-nvfp4": 1}[mode] // 2


def scale_bytes(
    mode: str, rows: int, k: int, *, block: tuple[int, int] = fp8.ROW, swizzled: bool = False
) -> int:
    """Bytes of the scales of one matrix [rows, K], the padding of ``swizzled`` ones included.

    w8a8-fp8: 4 a block; w8a8-mxfp8: 1 (E8M0) per 32; w4a4-nvfp4: 1 (E4M3) per 16 and 4 for the
    whole; bf16: none.
    """
    if mode == "bf16":
        return 0
    if mode == "w8a8-fp8":
        return 4 * math.ceil(rows / (block[0] or rows)) * math.ceil(k / (block[1] or k))
    columns = k // (mxfp8.BLOCK if mode == "w8a8-mxfp8" else nvfp4.BLOCK)
    count = swizzle.padded_count(rows, columns) if swizzled else rows * columns
    return count + (4 if mode == "w4a4-nvfp4" else 0)
