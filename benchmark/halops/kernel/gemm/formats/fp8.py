"""FP8 E4M3 (finite only: no infinity, largest 448) with float32 scales over rows or blocks.

Source: Micikevicius et al., "FP8 Formats for Deep Learning", arXiv:2209.05433, table 1.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

LARGEST = 448.0
ROW = (1, 0)
"""One scale a row: what ``torch._scaled_mm`` calls row-wise (activations a token, weights a
channel)."""


def encode(values: torch.Tensor) -> torch.Tensor:
    """``values`` as E4M3, to nearest, ties to even; beyond +-448 saturates, NaN stays NaN."""
    # A plain cast does not saturate in every release of PyTorch; some make NaN of too large values.
    return values.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)


def quantise(values: torch.Tensor, block: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Float ``values`` [..., rows, K] as E4M3 and one float32 scale a block of (rows, K).

    A 0 in ``block`` stands for the whole side. Scale = largest absolute value of the block / 448 (1
    where all are zero), value = E4M3 * scale. Blocks at the edges may be cut off. Returns E4M3
    [..., rows, K] and scales [..., ceil(rows / block rows), ceil(K / block K)].
    """
    rows, k = values.shape[-2:]
    tall, wide = block[0] or rows, block[1] or k
    padded = F.pad(values.float(), (0, -k % wide, 0, -rows % tall))
    high, long = padded.shape[-2] // tall, padded.shape[-1] // wide
    tiles = padded.reshape(*values.shape[:-2], high, tall, long, wide)
    largest = tiles.abs().amax(dim=(-3, -1))
    scales = torch.where(largest == 0, torch.ones_like(largest), largest / LARGEST)
    return encode(values.float() / _spread(scales, (tall, wide), (rows, k))), scales


def dequantise(codes: torch.Tensor, scales: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """What ``quantise`` made, [..., rows, K] in float64, which holds it exactly; same ``block``."""
    rows, k = codes.shape[-2:]
    sides = (block[0] or rows, block[1] or k)
    return codes.double() * _spread(scales, sides, (rows, k))


def _spread(scales: torch.Tensor, block: tuple[int, int], shape: tuple[int, int]) -> torch.Tensor:
    """Each block's scale at each of its elements, cut to ``shape``."""
    wide = scales.repeat_interleave(block[0], dim=-2).repeat_interleave(block[1], dim=-1)
    return wide[..., : shape[0], : shape[1]]
