"""Decoding with multi-head latent attention: one latent row a token serves as key and as value.

Queries are absorbed into the latent space: ``kv_lora_rank`` + ``qk_rope_head_dim`` elements a
head. The cache has one row of that width a token, shared by all heads, whose first
``kv_lora_rank`` elements are the value; it is counted once. Sweeps ``s_kv_list`` times
``mtp_steps_list``.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from core.backends import Adapt, Config, Launch, UnsupportedError, _move_to_front
from core.runner import Context, Options, run_case

from kernel.attention.backends import flashinfer, golden, halops_library, sdpa
from kernel.attention.sequences import Sequences, lengths, page_table
from kernel.attention.work import count_work

_NARROW = ("float16", "bfloat16")


def build_inputs(cfg: Config, s_kv: int, mtp_steps: int, device: torch.device) -> Sequences:
    """Normally distributed queries and latent cache, seeded; the values are a view of the keys."""
    heads, rank = cfg["num_q_heads"], cfg.get("kv_lora_rank", 512)
    width = rank + cfg.get("qk_rope_head_dim", 64)
    page_size = cfg.get("page_size", 64)
    assert rank > 0 and width > rank, "a latent row has a part with and one without position"
    assert s_kv > mtp_steps, "s_kv counts the new queries' own keys, too"
    dtype = getattr(torch, cfg["dtype"])
    generator = torch.Generator(device=device).manual_seed(cfg.get("seed", 0))
    kv_lens = lengths(cfg.get("batch_size", 1), s_kv, cfg.get("ragged", False))
    table = page_table(kv_lens, page_size, generator)
    pages = sum(-(-length // page_size) for length in kv_lens)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    latent = normal(pages, page_size, 1, width)
    return Sequences(
        q=normal((1 + mtp_steps) * len(kv_lens), heads, width),
        k_pages=latent,
        v_pages=latent[..., :rank],
        page_table=table,
        q_lens=[1 + mtp_steps] * len(kv_lens),
        kv_lens=kv_lens,
        # Scores are those of the heads before absorption.
        scale=1.0 / math.sqrt(cfg.get("qk_nope_head_dim", 128) + width - rank),
        causal=True,
        out_dtype=dtype,
    )


def adapt_halops(inputs: Any, cfg: Config) -> Launch:
    """The library halops."""
    return halops_library.prepare_sequences("decode_mla", inputs)


def adapt_golden(inputs: Any, cfg: Config) -> Launch:
    """The written-out reference, in float64."""
    return golden.prepare(inputs)


def adapt_sdpa_efficient(inputs: Any, cfg: Config) -> Launch:
    """Torch's memory-efficient kernel, over a dense copy."""
    if cfg["dtype"] not in (*_NARROW, "float32"):
        raise UnsupportedError(f"sdpa_efficient does not do {cfg['dtype']}")
    return sdpa.prepare_sequences("sdpa_efficient", inputs)


def adapt_sdpa_math(inputs: Any, cfg: Config) -> Launch:
    """Torch's composition of matrix products and a softmax, over a dense copy."""
    if cfg["dtype"] not in (*_NARROW, "float32", "float64"):
        raise UnsupportedError(f"sdpa_math does not do {cfg['dtype']}")
    return sdpa.prepare_sequences("sdpa_math", inputs)


def adapt_fi(inputs: Any, cfg: Config) -> Launch:
    """FlashInfer's MLA kernels."""
    if cfg["dtype"] not in _NARROW:
        raise UnsupportedError(f"fi does not do {cfg['dtype']} here")
    return flashinfer.mla(inputs)


def adapt_fi_trtllm(inputs: Any, cfg: Config) -> Launch:
    """TensorRT-LLM's MLA kernels, called directly."""
    if cfg["dtype"] != "bfloat16":
        raise UnsupportedError(f"fi_trtllm does bfloat16 here, not {cfg['dtype']}")
    return flashinfer.trtllm_mla(inputs, cfg.get("qk_nope_head_dim", 128))


def _get_backends() -> dict[str, Adapt]:
    return {
        "halops": adapt_halops,
        "golden": adapt_golden,
        "sdpa_efficient": adapt_sdpa_efficient,
        "sdpa_math": adapt_sdpa_math,
        "fi": adapt_fi,
        "fi_trtllm": adapt_fi_trtllm,
    }


def run_scenario(cfg: Config, ctx: Context) -> None:
    """One case for each length of keys and number of MTP steps."""
    getattr(torch, cfg["dtype"])  # another spelling is refused before anything runs
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
            "kv_lora_rank": cfg.get("kv_lora_rank", 512),
            "qk_rope_head_dim": cfg.get("qk_rope_head_dim", 64),
            "qk_nope_head_dim": cfg.get("qk_nope_head_dim", 128),
            "page_size": cfg.get("page_size", 64),
            "ragged": cfg.get("ragged", False),
            "seed": cfg.get("seed", 0),
        }
        run_case(
            ctx,
            cfg,
            params,
            _get_backends(),
            lambda s_kv=s_kv, mtp_steps=mtp_steps: build_inputs(cfg, s_kv, mtp_steps, ctx.device),  # type: ignore[misc]
            lambda inputs: count_work(inputs, shared_latent=True),
            options,
            names=names,
        )
