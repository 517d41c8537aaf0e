"""Cache operators computed element by element at flat addresses, as their kernels do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from faults import Subject

TINY = {"num_tokens": 12, "num_kv_heads": 2, "head_size": 16, "num_blocks": 6, "block_size": 4}


def _flat(tensor: torch.Tensor) -> Any:
    """The tensor's bits as a flat numpy array that shares its memory."""
    return tensor.view(-1).view(torch.uint8).numpy().view(f"u{tensor.element_size()}")


def _reshape_and_cache(
    *,
    padding: bool = True,
    head_shift: int = 0,
    offset_shift: int = 0,
    one_width: bool = False,
) -> Callable[..., None]:
    def kernel(
        key: torch.Tensor,
        value: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
        *rest: Any,
    ) -> None:
        _, heads, size = key.shape
        block_size, width = value_cache.shape[3], key_cache.shape[4]
        keys, values = _flat(key), _flat(value)
        key_out, value_out = _flat(key_cache), _flat(value_cache)
        for token, slot in enumerate(slot_mapping.tolist()):
            if slot < 0 and padding:
                continue
            block = slot // block_size
            offset = (slot + offset_shift) % block_size
            for head in range(heads):
                base = (block * heads + (head + head_shift) % heads) * size * block_size
                for i in range(size):
                    source = (token * heads + head) * size + i
                    group, lane = divmod(i, width)
                    place = (group * block_size + offset) * width + lane
                    if one_width:
                        place = i * block_size + offset
                    key_out[base + place] = keys[source]
                    value_out[base + i * block_size + offset] = values[source]

    return kernel


def _rows(
    first: torch.Tensor,
    cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    start: int,
    padding: bool,
    shift: int,
) -> None:
    """Write row t of ``first`` at element ``start`` of the entry in slot t."""
    width = first[0].numel()
    entry = cache[0, 0].numel()
    source, target = _flat(first), _flat(cache)
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot < 0 and padding:
            continue
        at = (slot + shift) * entry + start
        for i in range(width):
            target[(at + i) % target.size] = source[token * width + i]


def _flash(
    *, padding: bool = True, shift: int = 0, all_tokens: bool = False
) -> Callable[..., None]:
    def kernel(
        key: torch.Tensor,
        value: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
        *rest: Any,
    ) -> None:
        if all_tokens:  # what lies behind the mapping is taken for slot 0
            extra = slot_mapping.new_zeros(len(key) - len(slot_mapping))
            slot_mapping = torch.cat((slot_mapping, extra))
        _rows(key, key_cache, slot_mapping, 0, padding, 0)
        _rows(value, value_cache, slot_mapping, 0, padding, shift)

    return kernel


def _mla(*, padding: bool = True, rope_first: bool = False, shift: int = 0) -> Callable[..., None]:
    def kernel(
        kv_c: torch.Tensor,
        k_pe: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
        *rest: Any,
    ) -> None:
        starts = (k_pe.shape[1], 0) if rope_first else (0, kv_c.shape[1])
        _rows(kv_c, kv_cache, slot_mapping, starts[0], padding, shift)
        _rows(k_pe, kv_cache, slot_mapping, starts[1], padding, shift)

    return kernel


def _copy_blocks(
    *, backwards: bool = False, pairs: int | None = None, layers: int | None = None
) -> Callable[..., None]:
    def kernel(
        key_caches: list[torch.Tensor],
        value_caches: list[torch.Tensor],
        block_mapping: torch.Tensor,
    ) -> None:
        for cache in [*key_caches[:layers], *value_caches]:
            flat = _flat(cache)
            size = flat.size // len(cache)
            for pair in block_mapping.tolist()[:pairs]:
                source, target = reversed(pair) if backwards else pair
                for i in range(size):
                    flat[target * size + i] = flat[source * size + i]

    return kernel


def _swap_blocks(
    *, backwards: bool = False, pairs: int | None = None, size_factor: float = 1.0
) -> Callable[..., None]:
    def kernel(
        src: torch.Tensor, dst: torch.Tensor, block_size_in_bytes: int, block_mapping: torch.Tensor
    ) -> None:
        assert block_mapping.device.type == "cpu" and block_mapping.dtype is torch.int64
        source = _flat(src).view("u1")
        target = _flat(dst).view("u1")
        count = int(block_size_in_bytes * size_factor)
        for pair in block_mapping.tolist()[:pairs]:
            a, b = (
                block * block_size_in_bytes for block in (reversed(pair) if backwards else pair)
            )
            for i in range(count):
                target[b + i] = source[a + i]

    return kernel


def _cp_gather_cache(
    *, whole_blocks: bool = False, block_shift: int = 0, padded: bool = False
) -> Callable[..., None]:
    def kernel(
        src_cache: torch.Tensor,
        dst: torch.Tensor,
        block_table: torch.Tensor,
        cu_seq_lens: torch.Tensor,
        batch_size: int,
        seq_starts: torch.Tensor | None,
    ) -> None:
        assert block_table.dtype is cu_seq_lens.dtype is torch.int32 and seq_starts is None
        block_size, entry = src_cache.shape[1:]
        source, target = _flat(src_cache), _flat(dst)
        ends = cu_seq_lens.tolist()
        for sequence in range(batch_size):
            length = ends[sequence + 1] - ends[sequence]
            if whole_blocks:
                length = -(-length // block_size) * block_size
            for position in range(length):
                column = (position // block_size + block_shift) % block_table.shape[1]
                slot = int(block_table[sequence, column]) * block_size + position % block_size
                row = ends[sequence] + position
                if padded:
                    row = sequence * (ends[1] - ends[0]) + position
                for i in range(entry):
                    if row < len(dst):
                        target[row * entry + i] = source[slot * entry + i]

    return kernel


SUBJECTS = [
    Subject(
        "reshape_and_cache",
        "_C_cache_ops",
        "reshape_and_cache(Tensor key, Tensor value, Tensor! key_cache, Tensor! value_cache, "
        "Tensor slot_mapping, str kv_cache_dtype, Tensor k_scale, Tensor v_scale) -> ()",
        _reshape_and_cache(),
        TINY,
        wrong={
            "padding-written": _reshape_and_cache(padding=False),
            "wrong-head": _reshape_and_cache(head_shift=1),
            "wrong-slot": _reshape_and_cache(offset_shift=1),
            "keys-not-in-groups": _reshape_and_cache(one_width=True),
        },
    ),
    Subject(
        "reshape_and_cache",
        "_C_cache_ops",
        "reshape_and_cache(Tensor key, Tensor value, Tensor! key_cache, Tensor! value_cache, "
        "Tensor slot_mapping, str kv_cache_dtype, Tensor k_scale, Tensor v_scale) -> ()",
        _reshape_and_cache(),
        {**TINY, "dtype": "float32"},
        wrong={"keys-not-in-groups": _reshape_and_cache(one_width=True)},
        label="float32",
    ),
    Subject(
        "reshape_and_cache_flash",
        "_C_cache_ops",
        "reshape_and_cache_flash(Tensor key, Tensor value, Tensor! key_cache, "
        "Tensor! value_cache, Tensor slot_mapping, str kv_cache_dtype, Tensor k_scale, "
        "Tensor v_scale) -> ()",
        _flash(),
        TINY,
        wrong={
            "padding-written": _flash(padding=False),
            "wrong-slot": _flash(shift=1),
            "padded-tokens-written": _flash(all_tokens=True),
        },
    ),
    Subject(
        "concat_and_cache_mla",
        "_C_cache_ops",
        "concat_and_cache_mla(Tensor kv_c, Tensor k_pe, Tensor! kv_cache, Tensor slot_mapping, "
        "str kv_cache_dtype, Tensor scale) -> ()",
        _mla(),
        {"num_tokens": 12, "kv_lora_rank": 16, "rope_dim": 8, "num_blocks": 6, "block_size": 4},
        wrong={
            "padding-written": _mla(padding=False),
            "rope-first": _mla(rope_first=True),
            "wrong-slot": _mla(shift=1),
        },
    ),
    Subject(
        "copy_blocks",
        "_C_cache_ops",
        "copy_blocks(Tensor(a!)[] key_caches, Tensor(b!)[] value_caches, Tensor block_mapping) "
        "-> ()",
        _copy_blocks(),
        {
            "num_layers": 2,
            "num_pairs": 4,
            "num_blocks": 10,
            "num_kv_heads": 2,
            "head_size": 16,
            "block_size": 2,
        },
        wrong={
            "backwards": _copy_blocks(backwards=True),
            "one-pair-missing": _copy_blocks(pairs=3),
            "one-layer-missing": _copy_blocks(layers=1),
        },
    ),
    *(
        Subject(
            "swap_blocks",
            "_C_cache_ops",
            "swap_blocks(Tensor src, Tensor! dst, int block_size_in_bytes, Tensor block_mapping) "
            "-> ()",
            _swap_blocks(),
            {
                "direction": direction,
                "num_pairs": 4,
                "num_blocks": 10,
                "num_kv_heads": 2,
                "head_size": 8,
                "block_size": 2,
            },
            wrong={
                "backwards": _swap_blocks(backwards=True),
                "one-pair-missing": _swap_blocks(pairs=3),
                "half-blocks": _swap_blocks(size_factor=0.5),
            },
            label=direction,
        )
        for direction in ("device_to_device", "device_to_host", "host_to_device")
    ),
    Subject(
        "cp_gather_cache",
        "_C_cache_ops",
        "cp_gather_cache(Tensor src_cache, Tensor! dst, Tensor block_table, Tensor cu_seq_lens, "
        "int batch_size, Tensor? seq_starts) -> ()",
        _cp_gather_cache(),
        {"batch_size": 5, "seq_len": 10, "block_size": 4, "entry_size": 8},
        wrong={
            "whole-blocks": _cp_gather_cache(whole_blocks=True),
            "wrong-block": _cp_gather_cache(block_shift=1),
            "rows-not-packed": _cp_gather_cache(padded=True),
        },
    ),
]
