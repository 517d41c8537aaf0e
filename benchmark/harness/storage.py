"""Whose bytes are whose: outputs filled with poison, and comparisons of a tensor with itself."""

from __future__ import annotations

import math

import torch


def poison(tensor: torch.Tensor) -> None:
    """Fill ``tensor`` (a view: it alone) with values that no operator leaves behind.

    Floating-point and complex: NaN. Wide integers: the largest, no index or count. Single bytes,
    where every value is an ordinary one: a random pattern; bools: a byte that is neither 0 nor 1.
    """
    tensor = tensor.detach()
    dtype = tensor.dtype
    if dtype is torch.bool:
        tensor.view(torch.uint8).fill_(0xA5)
    elif dtype.itemsize == 1 and not _has_nan(dtype):
        generator = torch.Generator(device=tensor.device).manual_seed(0xA5)
        pattern = torch.randint(
            0, 256, tensor.shape, dtype=torch.uint8, device=tensor.device, generator=generator
        )
        tensor.view(torch.uint8).copy_(pattern)
    elif dtype.is_floating_point or dtype.is_complex:
        tensor.fill_(math.nan)
    else:
        tensor.fill_(torch.iinfo(dtype).max)


def _has_nan(dtype: torch.dtype) -> bool:
    # float4_e2m1fn_x2 packs two numbers into a byte, none of them NaN.
    return dtype.is_floating_point and "float4" not in str(dtype)


def overlaps(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether an element of ``one`` lies in the same memory as one of ``other``.

    Views of one storage may lie between each other without touching, as the halves of rows do.
    """
    if one.device != other.device or one.numel() == 0 or other.numel() == 0:
        return False
    if one.layout is not torch.strided or other.layout is not torch.strided:
        return False
    first, last = zip(_span(one), _span(other), strict=True)
    if max(first) >= min(last):
        return False
    if first[0] == first[1]:
        return True
    start = min(first)
    # One byte for each byte that the two span: made only where they lie between each other.
    used = torch.zeros(max(last) - start, dtype=torch.bool, device=one.device)
    _bytes_of(one, used, start).fill_(True)
    return bool(_bytes_of(other, used, start).any())


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses of the first byte and of the one after the last."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    reach = sum((size - 1) * stride for size, stride in steps) + 1
    first = int(tensor.data_ptr())
    return first, first + reach * tensor.element_size()


def _bytes_of(tensor: torch.Tensor, used: torch.Tensor, start: int) -> torch.Tensor:
    """The view of ``used`` that has one element for each byte of ``tensor``."""
    width = tensor.element_size()
    # What is expanded lies in one place.
    kept = [(n, s) for n, s in zip(tensor.shape, tensor.stride(), strict=True) if s and n > 1]
    return used.as_strided(
        [*(n for n, _ in kept), width],
        [*(s * width for _, s in kept), 1],
        int(tensor.data_ptr()) - start,
    )
