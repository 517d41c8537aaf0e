"""NVFP4: E2M1 elements packed two a byte, one E4M3 scale for each 16 along K, one float32 for all.

Value = E2M1 * E4M3 scale * global scale. Source: OCP Microscaling Formats 1.0, 5.3.3 (E2M1);
cuBLAS documentation, "1D block scaling for FP8 and FP4 data types" (E4M3 scales a block of 16).
"""

from __future__ import annotations

import torch

from kernel.gemm.formats import fp8

BLOCK = 16
LARGEST = 6.0
VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""E2M1 by its code without the sign; the code's bit 3 is the sign."""


def encode(values: torch.Tensor) -> torch.Tensor:
    """E2M1 codes (uint8, 0 to 15) of ``values``: nearest, ties to the even code, +-6 saturates."""
    size = values.abs()
    # The middles between neighbours; one that lies on a middle goes to the neighbour of even code.
    codes = (size > 0.25).to(torch.uint8)
    for passed in (size >= 0.75, size > 1.25, size >= 1.75, size > 2.5, size >= 3.5, size > 5.0):
        codes += passed
    return codes | (torch.signbit(values).to(torch.uint8) << 3)


def decode(codes: torch.Tensor) -> torch.Tensor:
    """E2M1 ``codes`` (uint8, 0 to 15) as float32."""
    table = torch.tensor(VALUES + tuple(-v for v in VALUES), device=codes.device)
    return table[codes.long()]


def pack(codes: torch.Tensor) -> torch.Tensor:
    """Codes [..., K] two a byte [..., K / 2]: the element of even index in the low four bits."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """The opposite of ``pack``: [..., K / 2] bytes to [..., K] codes."""
    return torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2)


def quantise(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Float ``values`` [..., rows, K] as packed E2M1, E4M3 scales and float32 global scales.

    Global scale = largest absolute value / (6 * 448) for each matrix (so that the largest block's
    scale is 448; 1 for a matrix of zeros), a block's = its largest / 6 / global scale. Returns
    uint8 [..., rows, K / 2], E4M3 [..., rows, K / 16], float32 [..., 1, 1]. Raises ValueError where
    K is no multiple of 16.
    """
    if values.shape[-1] % BLOCK:
        raise ValueError(f"K = {values.shape[-1]} is no multiple of {BLOCK}")
    values = values.float()
    largest = values.abs().amax(dim=(-2, -1), keepdim=True)
    whole = torch.where(largest == 0, torch.ones_like(largest), largest / (LARGEST * fp8.LARGEST))
    blocks = values.reshape(*values.shape[:-1], -1, BLOCK)
    scales = fp8.encode(blocks.abs().amax(dim=-1) / LARGEST / whole)
    step = (scales.float() * whole).unsqueeze(-1)
    # A block so small that its scale rounds to zero is zero.
    elements = torch.where(step == 0, torch.zeros_like(blocks), blocks / step)
    return pack(encode(elements).flatten(-2)), scales, whole


def dequantise(packed: torch.Tensor, scales: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """What ``quantise`` made, [..., rows, K] in float64, which holds it exactly."""
    blocks = decode(unpack(packed)).double().reshape(*scales.shape, BLOCK)
    return (blocks * scales.double().unsqueeze(-1)).flatten(-2) * whole
