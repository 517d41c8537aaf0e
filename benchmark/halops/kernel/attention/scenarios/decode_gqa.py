"""Decoding with grouped heads: each sequence has one new query and a few speculated ones.

Sweeps ``s_kv_list`` times ``mtp_steps_list`` (queries a sequence: 1 + MTP steps, causal among
themselves). ``cache_quant_type``: ``none``, or an E4M3 cache with scales ``per_tensor`` or
``per_head``. Here alone ``fp8`` and ``e4m3`` stand for ``float8_e4m3fn``, of queries and cache.
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
from kernel.attention.sequences import Sequences, lengths, page_table, quantise
from kernel.attention.work import count_work

_NARROW = ("float16", "bfloat16")
_FP8 = ("fp8", "e4m3", "float8_e4m3fn")


def _dtype(cfg: Config) -> torch.dtype:
    name = cfg["dtype"]
    if name in _FP8:
        return torch.float8_e4m3fn
    found: torch.dtype = getattr(torch, name)
    return found


def build_inputs(cfg: Config, s_kv: int, mtp_steps: int, device: torch.device) -> Sequences:
    """Normally distributed queries and cache, seeded; FP8 queries give a bfloat16 output."""
    heads, kv_heads, head_dim = cfg["num_q_heads"], cfg["num_kv_heads"], cfg["head_dim"]
    page_size = cfg.get("page_size", 64)
    kind = cfg.get("cache_quant_type", "none")
    assert heads % kv_heads == 0, "num_q_heads must be a multiple of num_kv_heads"
    group = heads // kv_heads
    most = max(cfg.get("mtp_steps_list", [0]))
    assert (1 + most) * group <= 64, "(1 + max MTP steps) * heads a group must be at most 64"
    assert s_kv > mtp_steps, "s_kv counts the new queries' own keys, too"
    dtype = _dtype(cfg)
    generator = torch.Generator(device=device).manual_seed(cfg.get("seed", 0))
    kv_lens = lengths(cfg.get("batch_size", 1), s_kv, cfg.get("ragged", False))
    table = page_table(kv_lens, page_size, generator)
    pages = sum(-(-length // page_size) for length in kv_lens)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device)

    q = normal((1 + mtp_steps) * len(kv_lens), heads, head_dim).to(dtype)
    k = normal(pages, page_size, kv_heads, head_dim)
    v = normal(pages, page_size, kv_heads, head_dim)
    k_scale = v_scale = None
    if cfg["dtype"] in _FP8 or kind != "none":
        (k, k_scale), (v, v_scale) = quantise(k, kind), quantise(v, kind)
    return Sequences(
        q=q,
        k_pages=k if k.element_size() == 1 else k.to(dtype),
        v_pages=v if v.element_size() == 1 else v.to(dtype),
        page_table=table,
        q_lens=[1 + mtp_steps] * len(kv_lens),
        kv_lens=kv_lens,
        scale=1.0 / math.sqrt(head_dim),
        causal=True,
        out_dtype=torch.bfloat16 if cfg["dtype"] in _FP8 else dtype,
        k_scale=k_scale,
        v_scale=v_scale,
    )


def adapt_halops(inputs: Any, cfg: Config) -> Launch:
    """The library halops."""
    return halops_library.prepare_sequences("decode_gqa", inputs)


def adapt_golden(inputs: Any, cfg: Config) -> Launch:
    """The written-out reference, in float64."""
    return golden.prepare(inputs)


def adapt_sdpa_flash(inputs: Any, cfg: Config) -> Launch:
    """Torch's FlashAttention kernel, over a dense copy."""
    if cfg["dtype"] in _FP8 or cfg.get("cache_quant_type", "none") != "none":
        raise UnsupportedError("sdpa_flash does not do FP8, neither queries nor cache")
    if cfg["dtype"] not in _NARROW:
        raise UnsupportedError(f"sdpa_flash does not do {cfg['dtype']}")
    return sdpa.prepare_sequences("sdpa_flash", inputs)


def adapt_sdpa_efficient(inputs: Any, cfg: Config) -> Launch:
    """Torch's memory-efficient kernel, over a dense copy."""
    if cfg["dtype"] in _FP8 or cfg.get("cache_quant_type", "none") != "none":
        raise UnsupportedError("sdpa_efficient does not do FP8, neither queries nor cache")
    if cfg["dtype"] not in (*_NARROW, "float32"):
        raise UnsupportedError(f"sdpa_efficient does not do {cfg['dtype']}")
    return sdpa.prepare_sequences("sdpa_efficient", inputs)


def adapt_sdpa_cudnn(inputs: Any, cfg: Config) -> Launch:
    """Torch's call of cuDNN, over a dense copy."""
    if cfg["dtype"] in _FP8 or cfg.get("cache_quant_type", "none") != "none":
        raise UnsupportedError("sdpa_cudnn does not do FP8, neither queries nor cache")
    if cfg["dtype"] not in _NARROW:
        raise UnsupportedError(f"sdpa_cudnn does not do {cfg['dtype']}")
    return sdpa.prepare_sequences("sdpa_cudnn", inputs)


def adapt_sdpa_math(inputs: Any, cfg: Config) -> Launch:
    """Torch's composition of matrix products and a softmax, over a dense copy."""
    if cfg["dtype"] in _FP8 or cfg.get("cache_quant_type", "none") != "none":
        raise UnsupportedError("sdpa_math does not do FP8, neither queries nor cache")
    if cfg["dtype"] not in (*_NARROW, "float32", "float64"):
        raise UnsupportedError(f"sdpa_math does not do {cfg['dtype']}")
    return sdpa.prepare_sequences("sdpa_math", inputs)


def adapt_fa2(inputs: Any, cfg: Config) -> Launch:
    """FlashAttention 2, over a dense copy."""
    if cfg["dtype"] in _FP8 or cfg.get("cache_quant_type", "none") != "none":
        raise UnsupportedError("fa2 does not do FP8, neither queries nor cache")
    if cfg["dtype"] not in _NARROW:
        raise UnsupportedError(f"fa2 does not do {cfg['dtype']}")
    return flash_attention.fa2_cache(inputs)


def adapt_fa4(inputs: Any, cfg: Config) -> Launch:
    """FlashAttention 4, over a packed copy."""
    if cfg["dtype"] in _FP8 or cfg.get("cache_quant_type", "none") != "none":
        raise UnsupportedError("fa4 does not do FP8, neither queries nor cache")
    if cfg["dtype"] not in _NARROW:
        raise UnsupportedError(f"fa4 does not do {cfg['dtype']}")
    return flash_attention.fa4_packed(inputs)


def adapt_fa4_paged(inputs: Any, cfg: Config) -> Launch:
    """FlashAttention 4, over the pages."""
    if cfg["dtype"] in _FP8 or cfg.get("cache_quant_type", "none") != "none":
        raise UnsupportedError("fa4_paged does not do FP8, neither queries nor cache")
    if cfg["dtype"] not in _NARROW:
        raise UnsupportedError(f"fa4_paged does not do {cfg['dtype']}")
    return flash_attention.fa4_paged(inputs)


def adapt_cudnn(inputs: Any, cfg: Config) -> Launch:
    """cuDNN through its own front end, over a dense copy."""
    if cfg["dtype"] in _FP8 or cfg.get("cache_quant_type", "none") != "none":
        raise UnsupportedError("cudnn does not do FP8, neither queries nor cache")
    if cfg["dtype"] not in _NARROW:
        raise UnsupportedError(f"cudnn does not do {cfg['dtype']}")
    return cudnn_graph.prepare_sequences(inputs)


def adapt_fi(inputs: Any, cfg: Config) -> Launch:
    """FlashInfer."""
    if cfg["dtype"] in ("float32", "float64"):
        raise UnsupportedError(f"fi does 8 and 16 bits, not {cfg['dtype']}")
    if cfg.get("cache_quant_type", "none") == "per_head":
        raise UnsupportedError("fi takes one scale a tensor, not one a head")
    return flashinfer.paged(inputs)


def adapt_fi_trtllm_gen(inputs: Any, cfg: Config) -> Launch:
    """FlashInfer's wrapper around TensorRT-LLM's kernels."""
    if cfg["dtype"] in ("float32", "float64"):
        raise UnsupportedError(f"fi(trtllm-gen) does 8 and 16 bits, not {cfg['dtype']}")
    if cfg.get("cache_quant_type", "none") == "per_head":
        raise UnsupportedError("fi(trtllm-gen) takes one scale a tensor, not one a head")
    return flashinfer.paged(inputs, "trtllm-gen")


def adapt_fi_trtllm(inputs: Any, cfg: Config) -> Launch:
    """TensorRT-LLM's kernels, called directly."""
    if cfg["dtype"] in ("float32", "float64"):
        raise UnsupportedError(f"fi_trtllm does 8 and 16 bits, not {cfg['dtype']}")
    if cfg.get("cache_quant_type", "none") == "per_head":
        raise UnsupportedError("fi_trtllm takes one scale a tensor, not one a head")
    return flashinfer.trtllm_decode(inputs)


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
    """One case for each length of keys and number of MTP steps."""
    _dtype(cfg)  # another spelling is refused before anything runs
    kind = cfg.get("cache_quant_type", "none")
    if kind not in ("none", "per_tensor", "per_head"):
        raise ValueError(f"cache_quant_type {kind!r}: use none, per_tensor or per_head")
    options = Options(
        refcheck=cfg.get("refcheck", True),
        refcheck_reference=cfg.get("refcheck_reference", "golden"),
        cold_l2_cache=cfg.get("cold_l2_cache", True),
        use_cuda_graph=cfg.get("use_cuda_graph", False),
        gpu_type=cfg.get("gpu_type"),
    )
    names = _move_to_front(cfg["backends"], "halops")
    sweep = itertools.product(cfg["s_kv_list"], cfg.get("mtp_steps_list", [0]))
    for s_kv, mtp_steps in sweep:
        params = {
            "dtype": cfg["dtype"],
            "batch_size": cfg.get("batch_size", 1),
            "s_kv": s_kv,
            "mtp_steps": mtp_steps,
            "num_q_heads": cfg["num_q_heads"],
            "num_kv_heads": cfg["num_kv_heads"],
            "head_dim": cfg["head_dim"],
            "page_size": cfg.get("page_size", 64),
            "cache_quant_type": kind,
            "ragged": cfg.get("ragged", False),
            "seed": cfg.get("seed", 0),
        }
        run_case(
            ctx,
            cfg,
            params,
            _get_backends(),
            lambda s_kv=s_kv, mtp_steps=mtp_steps: build_inputs(cfg, s_kv, mtp_steps, ctx.device),  # type: ignore[misc]
            count_work,
            options,
            names=names,
        )
