"""FlashAttention: version 2 (``flash_attn``) and version 4 (``flash_attn.cute``).

Both align a causal mask bottom-right. Sources: the packages' docstrings of ``flash_attn_func``,
``flash_attn_varlen_func`` and ``flash_attn_with_kvcache``.
"""

from __future__ import annotations

from typing import Any

import torch
from core.backends import Launch, need_cuda, require

from kernel.attention.sequences import Sequences


def _fa2() -> Any:
    return require("flash_attn", "flash-attn")


def _fa4() -> Any:
    return require("flash_attn.cute", "flash-attn-4")


def fa2_dense(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool
) -> Launch:
    """Version 2 over [B, S, H, D]."""
    library = _fa2()
    need_cuda(q, "fa2")
    return lambda: library.flash_attn_func(q, k, v, softmax_scale=scale, causal=causal)


def fa4_dense(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool
) -> Launch:
    """Version 4 over [B, S, H, D]."""
    library = _fa4()
    need_cuda(q, "fa4")
    return lambda: _output(library.flash_attn_func(q, k, v, softmax_scale=scale, causal=causal))


def fa2_packed(inputs: Sequences) -> Launch:
    """Version 2 over keys and values packed one sequence after the other."""
    library = _fa2()
    need_cuda(inputs.q, "fa2")
    k, v = inputs.packed(inputs.k_pages), inputs.packed(inputs.v_pages)
    starts, most = (inputs.cu_q, inputs.cu_kv), (max(inputs.q_lens), max(inputs.kv_lens))
    return lambda: library.flash_attn_varlen_func(
        inputs.q, k, v, *starts, *most, softmax_scale=inputs.scale, causal=inputs.causal
    )


def fa2_cache(inputs: Sequences) -> Launch:
    """Version 2's decoding (it splits the keys) over a dense cache."""
    library = _fa2()
    need_cuda(inputs.q, "fa2")
    q, k, v = inputs.dense()

    def launch() -> torch.Tensor:
        out: torch.Tensor = library.flash_attn_with_kvcache(
            q,
            k,
            v,
            cache_seqlens=inputs.seq_lens,
            softmax_scale=inputs.scale,
            causal=inputs.causal,
        )
        return out.flatten(0, 1)

    return launch


def fa4_packed(inputs: Sequences) -> Launch:
    """Version 4 over packed keys and values."""
    library = _fa4()
    need_cuda(inputs.q, "fa4")
    k, v = inputs.packed(inputs.k_pages), inputs.packed(inputs.v_pages)
    return lambda: _output(
        library.flash_attn_varlen_func(
            inputs.q,
            k,
            v,
            cu_seqlens_q=inputs.cu_q,
            cu_seqlens_k=inputs.cu_kv,
            softmax_scale=inputs.scale,
            causal=inputs.causal,
        )
    )


def fa4_paged(inputs: Sequences) -> Launch:
    """Version 4 over the pages themselves."""
    library = _fa4()
    need_cuda(inputs.q, "fa4_paged")
    return lambda: _output(
        library.flash_attn_varlen_func(
            inputs.q,
            inputs.k_pages,
            inputs.v_pages,
            cu_seqlens_q=inputs.cu_q,
            seqused_k=inputs.seq_lens,
            page_table=inputs.page_table,
            softmax_scale=inputs.scale,
            causal=inputs.causal,
        )
    )


def _output(returned: Any) -> torch.Tensor:
    # Version 4 returns the logarithms of the sums, too.
    out: torch.Tensor = returned[0] if isinstance(returned, tuple) else returned
    return out
