"""Prefill over dense keys: every sequence of the batch is as long, nothing is cached before it.

Sweeps ``seq_lens``; the batch comes from ``batch_sizes``. There are no constraints of shape.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from core import metrics
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

_NARROW = ("float16", "bfloat16")


@dataclass(frozen=True)
class Inputs:
    """``q`` [B, S, Hq, D], ``k`` and ``v`` [B, S, Hkv, D], all of one dtype."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    scale: float
    causal: bool


def build_inputs(cfg: Config, seq_len: int, device: torch.device) -> Inputs:
    """Normally distributed data, seeded, so that every backend and every run sees the same."""
    batch, head_dim = cfg.get("batch_size", 1), cfg["head_dim"]
    dtype = getattr(torch, cfg["dtype"])
    generator = torch.Generator(device=device).manual_seed(cfg.get("seed", 0))

    def normal(heads: int) -> torch.Tensor:
        shape = (batch, seq_len, heads, head_dim)
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    q, k, v = (normal(cfg[name]) for name in ("num_q_heads", "num_kv_heads", "num_kv_heads"))
    return Inputs(q, k, v, 1.0 / math.sqrt(head_dim), cfg.get("causal", True))


def adapt_halops(inputs: Any, cfg: Config) -> Launch:
    """The library halops."""
    return halops_library.prepare(
        "prefill_dense",
        q=inputs.q,
        k=inputs.k,
        v=inputs.v,
        softmax_scale=inputs.scale,
        causal=inputs.causal,
    )


def adapt_golden(inputs: Any, cfg: Config) -> Launch:
    """The written-out reference, [B, S, H, D] in float64."""
    out = torch.empty_like(inputs.q, dtype=torch.float64)

    def launch() -> torch.Tensor:
        for q, k, v, o in zip(inputs.q, inputs.k, inputs.v, out, strict=True):
            golden.attend(q, k, v, scale=inputs.scale, causal=inputs.causal, out=o)
        return out

    return launch


def adapt_sdpa_flash(inputs: Any, cfg: Config) -> Launch:
    """Torch's FlashAttention kernel."""
    if cfg["dtype"] not in _NARROW:
        raise UnsupportedError(f"sdpa_flash does float16 and bfloat16, not {cfg['dtype']}")
    return sdpa.prepare("sdpa_flash", inputs.q, inputs.k, inputs.v, inputs.scale, inputs.causal)


def adapt_sdpa_efficient(inputs: Any, cfg: Config) -> Launch:
    """Torch's memory-efficient kernel."""
    if cfg["dtype"] not in (*_NARROW, "float32"):
        raise UnsupportedError(f"sdpa_efficient does 16 and 32 bits, not {cfg['dtype']}")
    return sdpa.prepare("sdpa_efficient", inputs.q, inputs.k, inputs.v, inputs.scale, inputs.causal)


def adapt_sdpa_cudnn(inputs: Any, cfg: Config) -> Launch:
    """Torch's call of cuDNN."""
    if cfg["dtype"] not in _NARROW:
        raise UnsupportedError(f"sdpa_cudnn does float16 and bfloat16, not {cfg['dtype']}")
    return sdpa.prepare("sdpa_cudnn", inputs.q, inputs.k, inputs.v, inputs.scale, inputs.causal)


def adapt_sdpa_math(inputs: Any, cfg: Config) -> Launch:
    """Torch's composition of matrix products and a softmax."""
    if cfg["dtype"] not in (*_NARROW, "float32", "float64"):
        raise UnsupportedError(f"sdpa_math does 16 to 64 bits, not {cfg['dtype']}")
    return sdpa.prepare("sdpa_math", inputs.q, inputs.k, inputs.v, inputs.scale, inputs.causal)


def adapt_fa2(inputs: Any, cfg: Config) -> Launch:
    """FlashAttention 2."""
    if cfg["dtype"] not in _NARROW:
        raise UnsupportedError(f"fa2 does float16 and bfloat16, not {cfg['dtype']}")
    return flash_attention.fa2_dense(inputs.q, inputs.k, inputs.v, inputs.scale, inputs.causal)


def adapt_fa4(inputs: Any, cfg: Config) -> Launch:
    """FlashAttention 4."""
    if cfg["dtype"] not in _NARROW:
        raise UnsupportedError(f"fa4 does float16 and bfloat16, not {cfg['dtype']}")
    return flash_attention.fa4_dense(inputs.q, inputs.k, inputs.v, inputs.scale, inputs.causal)


def adapt_fi(inputs: Any, cfg: Config) -> Launch:
    """FlashInfer."""
    if cfg["dtype"] in ("float32", "float64"):
        raise UnsupportedError(f"fi does 8 and 16 bits, not {cfg['dtype']}")
    return flashinfer.dense(inputs.q, inputs.k, inputs.v, inputs.scale, inputs.causal)


def adapt_cudnn(inputs: Any, cfg: Config) -> Launch:
    """cuDNN through its own front end."""
    if cfg["dtype"] not in _NARROW:
        raise UnsupportedError(f"cudnn does float16 and bfloat16, not {cfg['dtype']}")
    return cudnn_graph.dense(inputs.q, inputs.k, inputs.v, inputs.scale, inputs.causal)


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
        "fi": adapt_fi,
        "cudnn": adapt_cudnn,
    }


def count_work(inputs: Inputs) -> metrics.Work:
    """FLOPs and bytes of one call."""
    batch, seq_len, heads, head_dim = inputs.q.shape
    pairs = batch * metrics.attended_pairs(seq_len, seq_len, inputs.causal)
    read, written = metrics.attention_bytes(
        [seq_len] * batch,
        [seq_len] * batch,
        num_q_heads=heads,
        num_kv_heads=inputs.k.shape[2],
        head_dim_qk=head_dim,
        head_dim_vo=head_dim,
        q_bytes=inputs.q.element_size(),
        kv_bytes=inputs.k.element_size(),
        out_bytes=inputs.q.element_size(),
    )
    flops = metrics.attention_flops(heads, head_dim, head_dim, pairs)
    return metrics.Work(flops, read, written, metrics.compute_class(inputs.q.dtype))


def run_scenario(cfg: Config, ctx: Context) -> None:
    """One case for each of ``seq_lens``."""
    getattr(torch, cfg["dtype"])  # another spelling is refused before anything runs
    options = Options(
        refcheck=cfg.get("refcheck", True),
        refcheck_reference=cfg.get("refcheck_reference", "golden"),
        cold_l2_cache=cfg.get("cold_l2_cache", True),
        use_cuda_graph=cfg.get("use_cuda_graph", False),
        gpu_type=cfg.get("gpu_type"),
    )
    names = _move_to_front(cfg["backends"], "halops")
    for seq_len in cfg["seq_lens"]:
        params = {
            "dtype": cfg["dtype"],
            "batch_size": cfg.get("batch_size", 1),
            "seq_len": seq_len,
            "num_q_heads": cfg["num_q_heads"],
            "num_kv_heads": cfg["num_kv_heads"],
            "head_dim": cfg["head_dim"],
            "causal": cfg.get("causal", True),
            "seed": cfg.get("seed", 0),
        }
        run_case(
            ctx,
            cfg,
            params,
            _get_backends(),
            lambda seq_len=seq_len: build_inputs(cfg, seq_len, ctx.device),  # type: ignore[misc]
            count_work,
            options,
            names=names,
        )
