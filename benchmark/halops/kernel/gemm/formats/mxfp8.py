"""MXFP8: E4M3 elements, one E8M0 scale (a power of two) for each 32 along K.

Source: OCP Microscaling Formats (MX) Specification 1.0: 5.4.1 (E8M0), 6.3 (conversion: shared
exponent = floor(log2(largest)) - 8, elements beyond +-448 saturate).
"""

from __future__ import annotations

import torch

from kernel.gemm.formats import fp8

BLOCK = 32
BIAS = 127
NAN = 255
LARGEST_EXPONENT = 8  # of E4M3: 448 = 1.75 * 2**8


def scale_codes(largest: torch.Tensor) -> torch.Tensor:
    """E8M0 (uint8) for blocks whose largest absolute values are ``largest``; zero gets 2**0."""
    exponent = torch.frexp(largest.float()).exponent.int() - 1
    codes = (exponent - LARGEST_EXPONENT + BIAS).clamp(0, NAN - 1)
    codes = torch.where(largest == 0, torch.full_like(codes, BIAS), codes)
    codes = torch.where(largest.isfinite(), codes, torch.full_like(codes, NAN))
    return codes.to(torch.uint8)


def scale_values(codes: torch.Tensor) -> torch.Tensor:
    """E8M0 ``codes`` (uint8) as float32: 2**(code - 127), 255 is NaN."""
    values = torch.ldexp(torch.ones_like(codes, dtype=torch.float32), codes.int() - BIAS)
    return torch.where(codes == NAN, torch.full_like(values, torch.nan), values)


def quantise(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Float ``values`` [..., K] as E4M3 [..., K] and E8M0 (uint8) [..., K / 32].

    Raises ValueError where K is no multiple of 32.
    """
    if values.shape[-1] % BLOCK:
        raise ValueError(f"K = {values.shape[-1]} is no multiple of {BLOCK}")
    blocks = values.float().reshape(*values.shape[:-1], -1, BLOCK)
    codes = scale_codes(blocks.abs().amax(dim=-1))
    elements = fp8.encode(blocks / scale_values(codes).unsqueeze(-1))
    return elements.flatten(-2), codes


def dequantise(elements: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """What ``quantise`` made, [..., K] in float64, which holds it exactly."""
    blocks = elements.double().reshape(*codes.shape, BLOCK)
    return (blocks * scale_values(codes).unsqueeze(-1)).flatten(-2)
