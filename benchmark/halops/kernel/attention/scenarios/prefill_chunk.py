"""Chunked prefill: a chunk of new queries attends to a cached prefix and, causally, to itself.

Sweeps ``prefix_len_list`` times ``chunk_len_list``; the keys lie in pages.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from core.backends import Adapt, Config, Launch, UnsupportedError, _move_to_front
from core.runner import Context, Options, run_case

from kernel.attention.backends import (
    cudnn_graph,
    flash_attention,
    flashinfer,
    golden,
    halops_library,
    sdpa,
)
from kernel.attention.sequences import Sequences, lengths, page_table
from kernel.attention.work import count_work

_NARROW = ("float16", "bfloat16")


def build_inputs(cfg: Config, prefix_len: int, chunk_len: int, device: torch.device) -> Sequences:
    """Normally distributed queries and cache, seeded; all sequences of the batch as long."""
    heads, kv_heads, head_dim = cfg["num_q_heads"], cfg["num_kv_heads"], cfg["head_dim"]
    page_size, batch = cfg.get("page_size", 64), cfg.get("batch_size", 1)
    assert heads % kv_heads == 0, "num_q_heads must be a multiple of num_kv_heads"
    assert chunk_len > 0, "a chunk has at least one query"
    assert prefix_len >= 0, "a prefix cannot be shorter than nothing"
    dtype = getattr(torch, cfg["dtype"])
    generator = torch.Generator(device=device).manual_seed(cfg.get("seed", 0))
    kv_lens = lengths(batch, prefix_len + chunk_len, ragged=False)
    table = page_table(kv_lens, page_size, generator)
    pages = sum(-(-length // page_size) for length in kv_lens)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    return Sequences(
        q=normal(batch * chunk_len, heads, head_dim),
        k_pages=normal(pages, page_size, kv_heads, head_dim),
        v_pages=normal(pages, page_size, kv_heads, head_dim),
        page_table=table,
        q_lens=[chunk_len] * batch,
        kv_lens=kv_lens,
        scale=1.0 / math.sqrt(head_dim),
        causal=True,
        out_dtype=dtype,
    )


def adapt_halops(inputs: Any, cfg: Config) -> Launch:
    """The library halops."""
    return halops_library.prepare_sequences("prefill_chunk", inputs)


def adapt_golden(inputs: Any, cfg: Config) -> Launch:
    """The written-out reference, in float64."""
    return golden.prepare(inputs)


def adapt_sdpa_flash(inputs: Any, cfg: Config) -> Launch:
    """Torch's FlashAttention kernel, over a dense copy."""
    if cfg["dtype"] not in _NARROW:
        raise UnsupportedError(f"sdpa_flash does not do {cfg['dtype']}")
    return sdpa.prepare_sequences("sdpa_flash", inputs)


def adapt_sdpa_efficient(inputs: Any, cfg: Config) -> Launch:
    """Torch's memory-efficient kernel, over a dense copy."""
    if cfg["dtype"] not in (*_NARROW, "float32"):
        raise UnsupportedError(f"sdpa_efficient does not do {cfg['dtype']}")
    return sdpa.prepare_sequences("sdpa_efficient", inputs)


def adapt_sdpa_cudnn(inputs: Any, cfg: Config) -> Launch:
    """Torch's call of cuDNN, over a dense copy."""
    if cfg["dtype"] not in _NARROW:
        raise UnsupportedError(f"sdpa_cudnn does not do {cfg['dtype']}")
    return sdpa.prepare_sequences("sdpa_cudnn", inputs)


def adapt_sdpa_math(inputs: Any, cfg: Config) -> Launch:
    """Torch's composition of matrix products and a softmax, over a dense copy."""
    if cfg["dtype"] not in (*_NARROW, "float32", "float64"):
        raise UnsupportedError(f"sdpa_math does not do {cfg['dtype']}")
    return sdpa.prepare_sequences("sdpa_math", inputs)


def adapt_fa2(inputs: Any, cfg: Config) -> Launch:
    """FlashAttention 2, over a packed copy."""
    if cfg["dtype"] not in _NARROW:
        raise UnsupportedError(f"fa2 does not do {cfg['dtype']}")
    return flash_attention.fa2_packed(inputs)


def adapt_fa4(inputs: Any, cfg: Config) -> Launch:
    """FlashAttention 4, over a packed copy."""
    if cfg["dtype"] not in _NARROW:
        raise UnsupportedError(f"fa4 does not do {cfg['dtype']}")
    return flash_attention.fa4_packed(inputs)


def adapt_fa4_paged(inputs: Any, cfg: Config) -> Launch:
    """FlashAttention 4, over the pages."""
    if cfg["dtype"] not in _NARROW:
        raise UnsupportedError(f"fa4_paged does not do {cfg['dtype']}")
    return flash_attention.fa4_paged(inputs)


def adapt_cudnn(inputs: Any, cfg: Config) -> Launch:
    """cuDNN through its own front end, over a dense copy."""
    if cfg["dtype"] not in _NARROW:
        raise UnsupportedError(f"cudnn does not do {cfg['dtype']}")
    return cudnn_graph.prepare_sequences(inputs)


def adapt_fi(inputs: Any, cfg: Config) -> Launch:
    """FlashInfer."""
    if cfg["dtype"] in ("float32", "float64"):
        raise UnsupportedError(f"fi does 8 and 16 bits, not {cfg['dtype']}")
    return flashinfer.paged(inputs)


def adapt_fi_trtllm_gen(inputs: Any, cfg: Config) -> Launch:
    """FlashInfer's wrapper around TensorRT-LLM's kernels."""
    if cfg["dtype"] in ("float32", "float64"):
        raise UnsupportedError(f"fi(trtllm-gen) does 8 and 16 bits, not {cfg['dtype']}")
    return flashinfer.paged(inputs, "trtllm-gen")


def adapt_fi_trtllm(inputs: Any, cfg: Config) -> Launch:
    """TensorRT-LLM's kernels, called directly."""
    if cfg["dtype"] in ("float32", "float64"):
        raise UnsupportedError(f"fi_trtllm does 8 and 16 bits, not {cfg['dtype']}")
    return flashinfer.trtllm_context(inputs)


def _get_backends() -> dict[str, Adapt]:
    return {
        "halops": adapt_halops,
        "golden": adapt_golden,
        "sdpa_flash": adapt_sdpa_flash,
        "sdpa_efficient": adapt_sdpa_efficient,
        "sdpa_cudnn": adapt_sdpa_cudnn,
        "sdpa_math": adapt_sdpa_math,
        "fa2": adapt_fa2,
        "fa4": adapt_fa4,
        "fa4_paged": adapt_fa4_paged,
        "fi": adapt_fi,
        "fi(trtllm-gen)": adapt_fi_trtllm_gen,
        "fi_trtllm": adapt_fi_trtllm,
        "cudnn": adapt_cudnn,
    }


def run_scenario(cfg: Config, ctx: Context) -> None:
    """One case for each prefix and chunk."""
    getattr(torch, cfg["dtype"])  # another spelling is refused before anything runs
    options = Options(
        refcheck=cfg.get("refcheck", True),
        refcheck_reference=cfg.get("refcheck_reference", "golden"),
        cold_l2_cache=cfg.get("cold_l2_cache", True),
        use_cuda_graph=cfg.get("use_cuda_graph", False),
        gpu_type=cfg.get("gpu_type"),
    )
    names = _move_to_front(cfg["backends"], "halops")
    for prefix_len, chunk_len in itertools.product(cfg["prefix_len_list"], cfg["chunk_len_list"]):
        params = {
            "dtype": cfg["dtype"],
            "batch_size": cfg.get("batch_size", 1),
            "prefix_len": prefix_len,
            "chunk_len": chunk_len,
            "num_q_heads": cfg["num_q_heads"],
            "num_kv_heads": cfg["num_kv_heads"],
            "head_dim": cfg["head_dim"],
            "page_size": cfg.get("page_size", 64),
            "seed": cfg.get("seed", 0),
        }
        run_case(
            ctx,
            cfg,
            params,
            _get_backends(),
            lambda prefix=prefix_len, chunk=chunk_len: build_inputs(cfg, prefix, chunk, ctx.device),  # type: ignore[misc]
            count_work,
            options,
            names=names,
        )
