"""One side of a GEMM in its mode's number format: quantised once, handed to every backend alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernel.gemm.formats import fp8, mxfp8, nvfp4

MODES = ("bf16", "w8a8-fp8", "w8a8-mxfp8", "w4a4-nvfp4")


@dataclass(frozen=True)
class Operand:
    """Values [..., rows, K] as ``mode`` stores them.

    ``data``: bfloat16, E4M3 or (NVFP4) bytes of two E2M1 [..., rows, K / 2]. ``scales``: float32 a
    block of ``block`` (w8a8-fp8), E8M0 as uint8 a 32 (w8a8-mxfp8), E4M3 a 16 (w4a4-nvfp4).
    ``whole``: NVFP4's float32 for each matrix [..., 1, 1]. What a format lacks is an empty tensor.
    """

    mode: str
    data: torch.Tensor
    scales: torch.Tensor
    whole: torch.Tensor
    block: tuple[int, int] = fp8.ROW

    def dequantised(self) -> torch.Tensor:
        """The values that the stored numbers stand for, exactly: float64 [..., rows, K]."""
        if self.mode == "w8a8-fp8":
            return fp8.dequantise(self.data, self.scales, self.block)
        if self.mode == "w8a8-mxfp8":
            return mxfp8.dequantise(self.data, self.scales)
        if self.mode == "w4a4-nvfp4":
            return nvfp4.dequantise(self.data, self.scales, self.whole)
        return self.data.double()

    def __getitem__(self, index: int) -> Operand:
        """The matrix of one expert, of an operand [experts, rows, K]."""
        data, scales, whole = self.data[index], self.scales[index], self.whole[index]
        return Operand(self.mode, data, scales, whole, self.block)

    def rows(self, chosen: slice) -> Operand:
        """Some rows of a matrix [rows, K]; in w8a8-fp8 of one whose scales are those of rows."""
        if self.mode == "w8a8-fp8" and self.block[0] != 1:
            raise ValueError("rows that share a scale are not taken apart")
        return Operand(self.mode, self.data[chosen], self.scales[chosen], self.whole, self.block)


def quantise(mode: str, values: torch.Tensor, *, block: tuple[int, int] = fp8.ROW) -> Operand:
    """Float ``values`` [..., rows, K] in the format of ``mode``; ``block`` is for w8a8-fp8.

    Raises ValueError on a mode that is none of MODES, or a K that its blocks do not divide.
    """
    nothing = values.new_empty(*values.shape[:-1], 0)
    if mode == "bf16":
        return Operand(mode, values.to(torch.bfloat16), nothing, nothing)
    if mode == "w8a8-fp8":
        return Operand(mode, *fp8.quantise(values, block), nothing, block)
    if mode == "w8a8-mxfp8":
        return Operand(mode, *mxfp8.quantise(values), nothing)
    if mode == "w4a4-nvfp4":
        return Operand(mode, *nvfp4.quantise(values))
    raise ValueError(f"mode {mode!r} is none of {', '.join(MODES)}")


def normal(
    mode: str,
    shape: tuple[int, ...],
    generator: torch.Generator,
    *,
    block: tuple[int, int] = fp8.ROW,
    counted: Sequence[int] | None = None,
) -> Operand:
    """Normally distributed values of ``shape``, [rows, K] or [experts, rows, K], on its device.

    Expert by expert, so that float32 never holds more than one of them. ``counted``: how many rows
    of each expert count; those after them are zero.
    """
    if len(shape) == 2:
        values = torch.randn(shape, generator=generator, device=generator.device)
        return quantise(mode, values, block=block)
    sides = []
    for expert in range(shape[0]):
        values = torch.randn(shape[1:], generator=generator, device=generator.device)
        if counted is not None:
            values[counted[expert] :] = 0
        sides.append(quantise(mode, values, block=block))
    parts = ((side.data, side.scales, side.whole) for side in sides)
    data, scales, whole = (torch.stack(part) for part in zip(*parts, strict=True))
    return Operand(mode, data, scales, whole, block)
