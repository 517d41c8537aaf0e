"""FlashInfer: its batch wrappers, and TensorRT-LLM's kernels through it.

Planning happens before anything is timed. Source: FlashInfer's API documentation of
``BatchPrefillWithRaggedKVCacheWrapper``, ``BatchPrefillWithPagedKVCacheWrapper``,
``BatchMLAPagedAttentionWrapper`` and ``trtllm_batch_decode_with_kv_cache``.
"""

from __future__ import annotations

from typing import Any

import torch
from core.backends import Launch, UnsupportedError, need_capability, need_cuda, require

from kernel.attention.sequences import Sequences

_WORKSPACE = 256 << 20


def _library(q: torch.Tensor, backend: str) -> Any:
    library = require("flashinfer", "flashinfer-python")
    need_cuda(q, backend)
    return library


def _workspace(q: torch.Tensor) -> torch.Tensor:
    # TensorRT-LLM's kernels count in it: it has to begin with zeros.
    return torch.zeros(_WORKSPACE, dtype=torch.uint8, device=q.device)


def _number(scale: torch.Tensor | None) -> float | None:
    if scale is not None and scale.dim():
        raise UnsupportedError("FlashInfer takes one scale a tensor, not one a head")
    return None if scale is None else float(scale)


def dense(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool) -> Launch:
    """Ragged prefill over [B, S, H, D] tensors, all sequences as long."""
    library = _library(q, "fi")
    wrapper = library.BatchPrefillWithRaggedKVCacheWrapper(_workspace(q), "NHD")
    starts = [
        torch.arange(t.shape[0] + 1, dtype=torch.int32, device=q.device) * t.shape[1]
        for t in (q, k)
    ]
    wrapper.plan(
        *starts,
        q.shape[2],
        k.shape[2],
        q.shape[3],
        head_dim_vo=v.shape[3],
        causal=causal,
        sm_scale=scale,
        q_data_type=q.dtype,
        kv_data_type=k.dtype,
    )
    packed = [tensor.flatten(0, 1) for tensor in (q, k, v)]
    shape = (*q.shape[:3], v.shape[3])
    return lambda: wrapper.run(*packed).view(shape)


def paged(inputs: Sequences, backend: str = "auto") -> Launch:
    """Paged prefill or decoding (a causal prefill of few queries); returns [T, Hq, Dvo].

    ``backend`` is FlashInfer's own name of the kernels, ``trtllm-gen`` say.
    """
    library = _library(inputs.q, "fi")
    if backend == "trtllm-gen":
        need_capability("fi(trtllm-gen)", 10)
    wrapper = library.BatchPrefillWithPagedKVCacheWrapper(
        _workspace(inputs.q), "NHD", backend=backend
    )
    starts, pages, lasts = inputs.page_lists()
    wrapper.plan(
        inputs.cu_q,
        starts,
        pages,
        lasts,
        inputs.q.shape[1],
        inputs.k_pages.shape[2],
        inputs.q.shape[2],
        inputs.page_size,
        causal=inputs.causal,
        sm_scale=inputs.scale,
        q_data_type=inputs.q.dtype,
        kv_data_type=inputs.k_pages.dtype,
        o_data_type=inputs.out_dtype,
    )
    scales = {"k_scale": _number(inputs.k_scale), "v_scale": _number(inputs.v_scale)}
    return lambda: wrapper.run(inputs.q, (inputs.k_pages, inputs.v_pages), **scales)


def trtllm_decode(inputs: Sequences) -> Launch:
    """TensorRT-LLM's decoding kernels, called directly; returns [T, Hq, Dvo]."""
    library = _library(inputs.q, "fi_trtllm")
    need_capability("fi_trtllm", 10)
    k_scale, v_scale = _number(inputs.k_scale), _number(inputs.v_scale)
    workspace = _workspace(inputs.q)
    # Its caches have the head before the token: [pages, Hkv, page, D].
    cache = tuple(pages.transpose(1, 2).contiguous() for pages in (inputs.k_pages, inputs.v_pages))
    return lambda: library.decode.trtllm_batch_decode_with_kv_cache(
        inputs.q,
        cache,
        workspace,
        inputs.page_table,
        inputs.seq_lens,
        max(inputs.kv_lens),
        bmm1_scale=inputs.scale * (k_scale or 1.0),
        bmm2_scale=v_scale or 1.0,
        out_dtype=inputs.out_dtype,
        q_len_per_req=inputs.q_lens[0],
    )


def trtllm_context(inputs: Sequences) -> Launch:
    """TensorRT-LLM's prefill kernels over pages, called directly; returns [T, Hq, Dvo]."""
    library = _library(inputs.q, "fi_trtllm")
    need_capability("fi_trtllm", 10)
    workspace = _workspace(inputs.q)
    cache = tuple(pages.transpose(1, 2).contiguous() for pages in (inputs.k_pages, inputs.v_pages))
    return lambda: library.prefill.trtllm_batch_context_with_kv_cache(
        inputs.q,
        cache,
        workspace,
        inputs.page_table,
        inputs.seq_lens,
        max(inputs.q_lens),
        max(inputs.kv_lens),
        inputs.scale,
        1.0,
        len(inputs.q_lens),
        inputs.cu_q,
        inputs.cu_kv,
        out_dtype=inputs.out_dtype,
    )


def mla(inputs: Sequences, backend: str = "auto") -> Launch:
    """Decoding over MLA's latent cache, whose first ``head_dim_vo`` columns are the values."""
    library = _library(inputs.q, "fi")
    wrapper = library.mla.BatchMLAPagedAttentionWrapper(_workspace(inputs.q), backend=backend)
    starts, pages, _ = inputs.page_lists()
    latent = inputs.head_dim_vo
    cache = inputs.k_pages[:, :, 0]
    wrapper.plan(
        inputs.cu_q,
        starts,
        pages,
        inputs.seq_lens,
        inputs.q.shape[1],
        latent,
        inputs.q.shape[2] - latent,
        inputs.page_size,
        inputs.causal,
        inputs.scale,
        inputs.q.dtype,
        cache.dtype,
    )
    queries = [part.contiguous() for part in (inputs.q[..., :latent], inputs.q[..., latent:])]
    return lambda: wrapper.run(*queries, cache[..., :latent], cache[..., latent:])


def trtllm_mla(inputs: Sequences, qk_nope_head_dim: int) -> Launch:
    """TensorRT-LLM's MLA decoding; returns [T, H, Dvo]. ``qk_nope_head_dim``: before absorption."""
    library = _library(inputs.q, "fi_trtllm")
    need_capability("fi_trtllm", 10)
    batch, latent = len(inputs.q_lens), inputs.head_dim_vo
    query = inputs.q.view(batch, inputs.q_lens[0], *inputs.q.shape[1:])
    workspace, cache = _workspace(inputs.q), inputs.k_pages.transpose(1, 2)
    return lambda: library.decode.trtllm_batch_decode_with_kv_cache_mla(
        query,
        cache,
        workspace,
        qk_nope_head_dim,
        latent,
        inputs.q.shape[2] - latent,
        inputs.page_table,
        inputs.seq_lens,
        max(inputs.kv_lens),
        bmm1_scale=inputs.scale,
        bmm2_scale=1.0,
    ).flatten(0, 1)
