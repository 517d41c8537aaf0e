"""Prefill over dense keys: every sequence of the batch is as long, nothing is cached before it.

Sweeps ``seq_lens``; the batch comes from ``batch_sizes``. There are no constraints of shape.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from core import metrics
from core.backends import Adapt, Config, Launch, _move_to_front
from core.runner import Context, Options, run_case

from kernel.attention.backends import golden, sdpa


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


def adapt_golden(inputs: Any, cfg: Config) -> Launch:
    """The written-out reference, [B, S, Hq, D] in float64."""
    out = torch.empty_like(inputs.q, dtype=torch.float64)

    def launch() -> torch.Tensor:
        for q, k, v, o in zip(inputs.q, inputs.k, inputs.v, out, strict=True):
            golden.attend(q, k, v, scale=inputs.scale, causal=inputs.causal, out=o)
        return out

    return launch


def _adapt_sdpa(name: str, inputs: Any, cfg: Config) -> Launch:
    sdpa.refuse(name, cfg["dtype"])
    return sdpa.prepare(name, inputs.q, inputs.k, inputs.v, inputs.scale, inputs.causal)


def adapt_sdpa_flash(inputs: Any, cfg: Config) -> Launch:
    """Torch's FlashAttention kernel."""
    return _adapt_sdpa("sdpa_flash", inputs, cfg)


def adapt_sdpa_efficient(inputs: Any, cfg: Config) -> Launch:
    """Torch's memory-efficient kernel."""
    return _adapt_sdpa("sdpa_efficient", inputs, cfg)


def adapt_sdpa_cudnn(inputs: Any, cfg: Config) -> Launch:
    """Torch's call of cuDNN."""
    return _adapt_sdpa("sdpa_cudnn", inputs, cfg)


def adapt_sdpa_math(inputs: Any, cfg: Config) -> Launch:
    """Torch's composition of matrix products and a softmax."""
    return _adapt_sdpa("sdpa_math", inputs, cfg)


def _get_backends() -> dict[str, Adapt]:
    return {
        "golden": adapt_golden,
        "sdpa_flash": adapt_sdpa_flash,
        "sdpa_efficient": adapt_sdpa_efficient,
        "sdpa_cudnn": adapt_sdpa_cudnn,
        "sdpa_math": adapt_sdpa_math,
    }


def _work(cfg: Config, inputs: Inputs) -> metrics.Work:
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
    getattr(torch, cfg["dtype"])
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
        }
        run_case(
            ctx,
            cfg,
            params,
            _get_backends(),
            lambda seq_len=seq_len: build_inputs(cfg, seq_len, ctx.device),  # type: ignore[misc]
            lambda inputs: _work(cfg, inputs),
            options,
            names=names,
        )
