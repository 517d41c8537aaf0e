"""torch.nn.functional.scaled_dot_product_attention, each of its kernels by name."""

from __future__ import annotations

import torch
from core.backends import Launch, UnavailableError, need_cuda
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from kernel.attention.sequences import Sequences

KERNELS = {
    "sdpa_flash": SDPBackend.FLASH_ATTENTION,
    "sdpa_efficient": SDPBackend.EFFICIENT_ATTENTION,
    "sdpa_cudnn": SDPBackend.CUDNN_ATTENTION,
    "sdpa_math": SDPBackend.MATH,
}


def prepare(
    name: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool
) -> Launch:
    """A launch over [B, S, H, D] tensors that returns [B, Sq, Hq, Dvo].

    Raises ``UnavailableError`` where torch does not take this kernel for these tensors.
    """
    if name in ("sdpa_cudnn", "sdpa_efficient"):
        need_cuda(q, name)
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    # The one last query sees every key.
    causal = causal and q.shape[2] > 1
    square = q.shape[2] == k.shape[2]
    # Torch's own causal flag aligns top-left; that is the same only where the lengths are.
    bias = causal_lower_right(q.shape[2], k.shape[2]) if causal and not square else None
    grouped = q.shape[1] != k.shape[1]

    def launch() -> torch.Tensor:
        with sdpa_kernel(KERNELS[name]):
            out: torch.Tensor = scaled_dot_product_attention(
                q,
                k,
                v,
                attn_mask=bias,
                is_causal=causal and square,
                scale=scale,
                enable_gqa=grouped,
            )
        return out.transpose(1, 2)

    try:
        launch()
    except RuntimeError as error:
        if "No available kernel" in str(error):
            raise UnavailableError(f"torch has no {name} kernel for these tensors here") from None
        raise
    return launch


def prepare_sequences(name: str, inputs: Sequences) -> Launch:
    """The same over ``inputs``, gathered from their pages beforehand; returns [T, Hq, Dvo].

    Raises ``UnsupportedError`` where lengths differ.
    """
    launch = prepare(name, *inputs.dense(), inputs.scale, inputs.causal)
    return lambda: launch().flatten(0, 1)
