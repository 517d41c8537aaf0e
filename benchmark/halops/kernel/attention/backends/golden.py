"""The reference: attention written out in float64, head by head, also on the CPU."""

from __future__ import annotations

import torch
from core.backends import Launch

from kernel.attention.sequences import Sequences

# Scores are kept for this many pairs of a head group at a time: 128 MiB in float64.
_PAIRS = 1 << 24


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float,
    causal: bool,
    out: torch.Tensor,
) -> None:
    """softmax(scale Q K^T) V of one sequence into ``out``.

    ``q`` [Sq, Hq, Dqk], ``k`` [Sk, Hkv, Dqk], ``v`` [Sk, Hkv, Dvo], any dtypes; ``out`` float64
    [Sq, Hq, Dvo]. Query head h attends with the key head h // (Hq / Hkv). Causal: aligned
    bottom-right, the last query sees every key; a query that sees none gives zeros.
    """
    q_len, heads, _ = q.shape
    kv_len, kv_heads, _ = k.shape
    group = heads // kv_heads
    block = max(1, _PAIRS // max(1, group * kv_len))
    positions = torch.arange(kv_len, device=q.device)
    for head in range(kv_heads):
        keys, values = k[:, head].to(torch.float64), v[:, head].to(torch.float64)
        mine = slice(head * group, (head + 1) * group)
        for start in range(0, q_len, block):
            rows = q[start : start + block, mine].to(torch.float64)
            scores = torch.einsum("qhd,kd->qhk", rows, keys) * scale
            if causal:
                last = torch.arange(start, start + rows.shape[0], device=q.device)
                hidden = positions[None, :] > (last + (kv_len - q_len))[:, None]
                scores.masked_fill_(hidden[:, None, :], float("-inf"))
            weights = torch.softmax(scores, dim=-1).nan_to_num(0.0)
            out[start : start + block, mine] = torch.einsum("qhk,kd->qhd", weights, values)


def prepare(inputs: Sequences) -> Launch:
    """A launch over ``inputs`` that returns [T, Hq, Dvo] in float64."""
    shape = (*inputs.q.shape[:2], inputs.head_dim_vo)
    out = torch.empty(shape, dtype=torch.float64, device=inputs.q.device)

    def launch() -> torch.Tensor:
        for index in range(len(inputs.q_lens)):
            k = _scaled(inputs.gathered(inputs.k_pages, index), inputs.k_scale)
            v = _scaled(inputs.gathered(inputs.v_pages, index), inputs.v_scale)
            own = inputs.queries(index)
            attend(inputs.q[own], k, v, scale=inputs.scale, causal=inputs.causal, out=out[own])
        return out

    return launch


def _scaled(stored: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """[Sk, Hkv, D] as the numbers they stand for, float64."""
    values = stored.to(torch.float64)
    if scale is None:
        return values
    return values * (scale if scale.dim() == 0 else scale[:, None])
