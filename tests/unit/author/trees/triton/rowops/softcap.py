"""Softmax of rows whose logits are capped smoothly first."""

import torch
import triton
import triton.language as tl


@triton.jit
def _softcap_softmax_kernel(
    out_ptr,
    x_ptr,
    out_stride,
    x_stride,
    n_cols,
    cap,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n_cols
    x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=float("-inf")).to(tl.float32)
    # tanh by the exponential: 1 - 2 / (exp(2 z) + 1)
    z = x / cap
    capped = cap * (1.0 - 2.0 / (tl.exp(2.0 * z) + 1.0))
    capped = tl.where(inside, capped, float("-inf"))
    shifted = capped - tl.max(capped, axis=0)
    numerator = tl.exp(shifted)
    result = numerator / tl.sum(numerator, axis=0)
    tl.store(out_ptr + row * out_stride + columns, result.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _scale_kernel(x_ptr, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(x_ptr + at, x * factor, mask=at < n)


def scale_(x: torch.Tensor, factor: float) -> torch.Tensor:
    """Multiply x in place."""
    n = x.numel()
    _scale_kernel[(triton.cdiv(n, 1024),)](x, factor, n, BLOCK=1024)
    return x


def softcap_softmax(x: torch.Tensor, cap: float = 30.0) -> torch.Tensor:
    """Softmax over the last dimension of cap * tanh(x / cap)."""
    assert x.dim() == 2 and x.stride(-1) == 1
    n_rows, n_cols = x.shape
    out = torch.empty_like(x)
    BLOCK = triton.next_power_of_2(n_cols)
    num_warps = 8 if BLOCK >= 2048 else 4
    _softcap_softmax_kernel[(n_rows,)](
        out, x, out.stride(0), x.stride(0), n_cols, cap, BLOCK=BLOCK, num_warps=num_warps
    )
    return out
