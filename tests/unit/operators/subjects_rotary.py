"""Rotary embeddings computed as multiplication of complex numbers with numpy, head by head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch
from faults import Subject

TINY: dict[str, Any] = {
    "num_tokens": 7,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_size": 16,
    "rotary_dim": 16,
    "max_position": 32,
}
SCHEMA = (
    "rotary_embedding(Tensor positions, Tensor! query, Tensor! key, int head_size, "
    "Tensor cos_sin_cache, bool is_neox)"
)


def _pairs(size: int, is_neox: bool) -> list[tuple[int, int]]:
    half = size // 2
    return [(i, i + half) if is_neox else (2 * i, 2 * i + 1) for i in range(half)]


def _rotate(
    *,
    other_style: bool = False,
    backwards: bool = False,
    position_shift: int = 0,
    one_head: bool = False,
    sines_first: bool = False,
    whole_head: bool = False,
) -> Callable[..., None]:
    def kernel(
        positions: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        head_size: int,
        cos_sin_cache: torch.Tensor,
        is_neox: bool,
        *rest: Any,
    ) -> None:
        assert cos_sin_cache.dtype is query.dtype
        table = cos_sin_cache.double().numpy()
        half = table.shape[1] // 2
        unit = table[:, :half] + 1j * table[:, half:]
        if sines_first:
            unit = table[:, half:] + 1j * table[:, :half]
        if backwards:
            unit = unit.conj()
        pairs = _pairs(head_size if whole_head else 2 * half, is_neox != other_style)
        for x in (query, key):
            heads = x.view(len(x), -1, head_size)
            for token, position in enumerate(positions.tolist()):
                row = unit[(position + position_shift) % len(unit)]
                for head in range(heads.shape[1] - int(one_head)):
                    wide = heads[token, head].double().numpy().copy()
                    for index, (a, b) in enumerate(pairs):
                        turned = complex(wide[a], wide[b]) * row[index % half]
                        wide[a], wide[b] = turned.real, turned.imag
                    heads[token, head] = torch.from_numpy(wide)

    return kernel


def _rounding_each_product(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
    *rest: Any,
) -> None:
    """As older kernels compute: every product is a value of the dtype."""
    half = cos_sin_cache.shape[1] // 2
    for x in (query, key):
        heads = x.view(len(x), -1, head_size)
        for token, position in enumerate(positions.tolist()):
            for index, (a, b) in enumerate(_pairs(2 * half, is_neox)):
                cos, sin = cos_sin_cache[position, index], cos_sin_cache[position, half + index]
                first, second = heads[token, :, a].clone(), heads[token, :, b].clone()
                heads[token, :, a] = (first * cos) - (second * sin)
                heads[token, :, b] = (second * cos) + (first * sin)


WRONG = {
    "other-style": _rotate(other_style=True),
    "backwards": _rotate(backwards=True),
    "next-position": _rotate(position_shift=1),
    "last-head-missing": _rotate(one_head=True),
    "sines-first": _rotate(sines_first=True),
}


def _subjects(op: str, namespace: str, schema: str) -> list[Subject]:
    return [
        Subject(op, namespace, schema, _rotate(), {**TINY, "is_neox": True}, WRONG),
        Subject(op, namespace, schema, _rotate(), {**TINY, "is_neox": False}, WRONG, label="pairs"),
        Subject(
            op,
            namespace,
            schema,
            _rotate(),
            {**TINY, "is_neox": True, "rotary_dim": 8, "dtype": "float32"},
            {"whole-head": _rotate(whole_head=True)},
            label="partial-float32",
        ),
        Subject(
            op,
            namespace,
            schema,
            _rounding_each_product,
            {**TINY, "is_neox": True, "num_tokens": 64},
            label="rounding-each-product",
        ),
    ]


def _fused_rope_fwd(
    *, values_too: bool = False, no_keys: bool = False, backwards: bool = False, shift: int = 0
) -> Callable[..., None]:
    def kernel(
        qkv: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        indexes: torch.Tensor,
        force_bf16_cal: bool,
    ) -> None:
        half = qkv.shape[-1] // 2
        sign = -1 if backwards else 1
        last = qkv.shape[2] - 1
        parts = range(last + 1 if values_too else last - 1 if no_keys else last)
        for token, index in enumerate(indexes.tolist()):
            place = (index + shift) % len(cos)
            unit = cos[place].double().numpy() + sign * 1j * sin[place].double().numpy()
            for head in range(qkv.shape[1]):
                for part in parts:
                    wide = qkv[token, head, part].double().numpy()
                    turned = (wide[:half] + 1j * wide[half:]) * unit
                    joined = numpy.concatenate([turned.real, turned.imag])
                    qkv[token, head, part] = torch.from_numpy(joined)

    return kernel


SUBJECTS = [
    *_subjects(
        "vllm_rotary_embedding",
        "_C",
        SCHEMA.replace("Tensor! key", "Tensor(b!)? key").replace(
            "is_neox)", "is_neox, int rope_dim_offset=0, bool inverse=False)"
        )
        + " -> ()",
    ),
    *_subjects(
        "sgl_rotary_embedding",
        "sgl_kernel",
        SCHEMA.replace("Tensor! key", "Tensor(b!)? key") + " -> ()",
    ),
    *_subjects("rotary_embedding", "mcoplib.op", SCHEMA + " -> ()"),
    Subject(
        "fused_rope_fwd",
        "mcoplib.op",
        "fused_rope_fwd(Tensor! qkv, Tensor cos, Tensor sin, Tensor indexes, "
        "bool force_bf16_cal) -> ()",
        _fused_rope_fwd(),
        {
            "num_tokens": 7,
            "num_heads": 6,
            "num_kv_heads": 2,
            "head_size": 16,
            "max_position": 32,
        },
        wrong={
            "values-rotated": _fused_rope_fwd(values_too=True),
            "keys-left": _fused_rope_fwd(no_keys=True),
            "backwards": _fused_rope_fwd(backwards=True),
            "next-position": _fused_rope_fwd(shift=1),
        },
    ),
]
