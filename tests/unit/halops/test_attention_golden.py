"""Every scenario's reference against attention in plain loops over Python numbers."""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest
import torch
from kernel.attention.sequences import Sequences

CPU = torch.device("cpu")


def _naive(
    q: list[Any], k: list[Any], v: list[Any], scale: float, causal: bool
) -> list[list[list[float]]]:
    """One sequence: q [Sq][Hq][D], k [Sk][Hkv][D], v [Sk][Hkv][Dv]."""
    group = len(q[0]) // len(k[0])
    out = []
    for i, heads in enumerate(q):
        row = []
        for h, query in enumerate(heads):
            last = len(k) - len(q) + i if causal else len(k) - 1
            scores = [
                scale * math.fsum(a * b for a, b in zip(query, k[j][h // group], strict=True))
                for j in range(last + 1)
            ]
            top = max(scores)
            weights = [math.exp(score - top) for score in scores]
            total = math.fsum(weights)
            row.append(
                [
                    math.fsum(w * v[j][h // group][d] for j, w in enumerate(weights)) / total
                    for d in range(len(v[0][0]))
                ]
            )
        out.append(row)
    return out


def _stored(pages: torch.Tensor, scale: torch.Tensor | None, page: int, slot: int) -> list[Any]:
    """One token of the cache as [Hkv][D] numbers, with its scale."""
    heads = pages[page, slot].to(torch.float64).tolist()
    if scale is None:
        return heads  # type: ignore[no-any-return]
    factors = scale.tolist() if scale.dim() else [scale.item()] * len(heads)
    return [[f * x for x in head] for f, head in zip(factors, heads, strict=True)]


def _expected(inputs: Sequences) -> torch.Tensor:
    size = inputs.k_pages.shape[1]
    rows: list[Any] = []
    start = 0
    for index, (q_len, kv_len) in enumerate(zip(inputs.q_lens, inputs.kv_lens, strict=True)):
        table = inputs.page_table[index].tolist()
        where = [(table[t // size], t % size) for t in range(kv_len)]
        k = [_stored(inputs.k_pages, inputs.k_scale, *at) for at in where]
        v = [_stored(inputs.v_pages, inputs.v_scale, *at) for at in where]
        q = inputs.q[start : start + q_len].to(torch.float64).tolist()
        rows += _naive(q, k, v, inputs.scale, inputs.causal)
        start += q_len
    return torch.tensor(rows, dtype=torch.float64)


GQA = {"num_q_heads": 4, "num_kv_heads": 2, "head_dim": 8, "page_size": 4, "dtype": "bfloat16"}
MLA = {"num_q_heads": 3, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "page_size": 4}
CASES = [
    ("prefill_paged", GQA | {"batch_size": 3, "ragged": True}, (9,)),
    ("prefill_paged", GQA | {"batch_size": 2, "causal": False}, (6,)),
    ("prefill_chunk", GQA | {"batch_size": 2}, (5, 3)),
    ("prefill_chunk", GQA | {"batch_size": 1}, (0, 4)),
    ("decode_gqa", GQA | {"batch_size": 3, "ragged": True}, (10, 0)),
    ("decode_gqa", GQA | {"mtp_steps_list": [0, 2]}, (10, 2)),
    ("decode_gqa", GQA | {"dtype": "fp8"}, (10, 1)),
    ("decode_gqa", GQA | {"dtype": "e4m3", "cache_quant_type": "per_tensor"}, (7, 0)),
    ("decode_gqa", GQA | {"cache_quant_type": "per_head"}, (7, 0)),
    ("decode_mla", MLA | {"dtype": "bfloat16", "batch_size": 2, "ragged": True}, (9, 1)),
]


@pytest.mark.parametrize(("scenario", "cfg", "point"), CASES)
def test_the_reference_of_paged_sequences(
    scenario: str, cfg: dict[str, Any], point: tuple[int, ...]
) -> None:
    module = importlib.import_module(f"kernel.attention.scenarios.{scenario}")
    inputs = module.build_inputs(cfg, *point, CPU)
    out = module.adapt_golden(inputs, cfg)()
    assert out.dtype is torch.float64
    torch.testing.assert_close(out, _expected(inputs), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("causal", [True, False])
def test_the_reference_of_dense_prefill(causal: bool) -> None:
    from kernel.attention.scenarios import prefill_dense

    cfg = GQA | {"batch_size": 2, "causal": causal}
    inputs = prefill_dense.build_inputs(cfg, 7, CPU)
    out = prefill_dense.adapt_golden(inputs, cfg)()
    for index in range(2):
        q, k, v = (t[index].to(torch.float64).tolist() for t in (inputs.q, inputs.k, inputs.v))
        expected = torch.tensor(_naive(q, k, v, inputs.scale, causal), dtype=torch.float64)
        torch.testing.assert_close(out[index], expected, rtol=1e-12, atol=1e-12)


def test_blocks_of_queries_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernel.attention.backends import golden
    from kernel.attention.scenarios import prefill_chunk

    inputs = prefill_chunk.build_inputs(GQA, 6, 7, CPU)
    whole = golden.prepare(inputs)().clone()
    monkeypatch.setattr(golden, "_PAIRS", 50)
    torch.testing.assert_close(golden.prepare(inputs)(), whole, rtol=1e-14, atol=1e-14)


def test_queries_before_the_first_key_give_zeros() -> None:
    from kernel.attention.backends import golden

    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(n, 1, 4, generator=generator) for n in (3, 1, 1))
    out = torch.full((3, 1, 4), math.nan, dtype=torch.float64)
    golden.attend(q, k, v, scale=1.0, causal=True, out=out)
    assert out[:2].abs().max() == 0
    torch.testing.assert_close(out[2], v[0].double())
