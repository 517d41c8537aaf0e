"""Sums over segments of rows, as a custom operator."""

import torch
from torch import Tensor


@torch.library.custom_op("blockops::segment_mean", mutates_args=())
def segment_mean(values: Tensor, offsets: Tensor, eps: float = 0.0) -> Tensor:
    """Mean of the rows offsets[i] .. offsets[i + 1] of values; zeros for an empty segment."""
    if values.dim() != 2:
        raise ValueError(f"values must be 2D, not {values.dim()}D")
    running = torch.cumsum(values.double(), dim=0)
    padded = torch.cat((torch.zeros_like(running[:1]), running))
    sums = padded[offsets[1:]] - padded[offsets[:-1]]
    lengths = (offsets[1:] - offsets[:-1]).clamp(min=1)
    return (sums / (lengths.unsqueeze(1) + eps)).to(values.dtype)


@segment_mean.register_fake
def _(values, offsets, eps=0.0):
    return values.new_empty(offsets.shape[0] - 1, values.shape[1])


def segment_lengths(offsets: Tensor) -> Tensor:
    return offsets[1:] - offsets[:-1]
