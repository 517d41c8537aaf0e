"""Attention over a paged cache and the merge of its parts, computed with numpy, head by head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch
from faults import FAULTS, Subject

TAIL = (
    "Tensor query, Tensor key_cache, Tensor value_cache, int num_kv_heads, float scale, "
    "Tensor block_tables, Tensor seq_lens, int block_size, int max_seq_len, "
    "Tensor? alibi_slopes, str kv_cache_dtype, Tensor k_scale, Tensor v_scale, int tp_rank, "
    "int blocksparse_local_blocks, int blocksparse_vert_stride, int blocksparse_block_size, "
    "int blocksparse_head_sliding_step) -> ()"
)
TINY = {
    "num_seqs": 3,
    "seq_len": 37,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_size": 16,
    "block_size": 8,
}


def _paged(
    *,
    partition: int | None = None,
    values_by_slot: bool = False,
    keys_by_slot: bool = False,
    to_block_end: bool = False,
    interleaved_heads: bool = False,
    unscaled: bool = False,
    no_last_token: bool = False,
    next_block: bool = False,
    one_maximum: bool = False,
    one_partition: bool = False,
) -> Callable[..., None]:
    """A kernel of v1, or of v2 where there is a ``partition``; the rest are faults."""

    def attend(
        out: torch.Tensor,
        query: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        num_kv_heads: int,
        scale: float,
        block_tables: torch.Tensor,
        seq_lens: torch.Tensor,
        block_size: int,
        max_seq_len: int,
        alibi_slopes: torch.Tensor | None,
        *rest: Any,
    ) -> None:
        assert alibi_slopes is None and max_seq_len == int(seq_lens.max())
        assert block_tables.dtype is seq_lens.dtype is torch.int32
        keys, values = key_cache.double().numpy(), value_cache.double().numpy()
        if keys_by_slot:
            shape = keys.shape
            keys = keys.reshape(shape[0], shape[1], shape[3], shape[2], shape[4])
            keys = keys.transpose(0, 1, 3, 2, 4)
        if values_by_slot:
            shape = values.shape
            values = values.reshape(shape[0], shape[1], shape[3], shape[2]).transpose(0, 1, 3, 2)
        group = query.shape[1] // num_kv_heads
        for sequence, length in enumerate(seq_lens.tolist()):
            if to_block_end:
                length = -(-length // block_size) * block_size
            if no_last_token:
                length = max(1, length - 1)
            table = block_tables[sequence].tolist()
            if next_block:
                table = table[1:] + table[:1]
            positions = numpy.arange(length)
            blocks = numpy.array(table)[positions // block_size]
            offsets = positions % block_size
            for head in range(query.shape[1]):
                served = head % num_kv_heads if interleaved_heads else head // group
                # Picking blocks and slots together puts the position first.
                cached_keys = keys[blocks, served, :, offsets, :].reshape(length, -1)
                cached_values = values[blocks, served, :, offsets]
                scores = cached_keys @ query[sequence, head].double().numpy()
                scores *= 1.0 if unscaled else scale
                out[sequence, head] = torch.from_numpy(_mixed(scores, cached_values))

    def _mixed(scores: Any, cached_values: Any) -> Any:
        """Softmax of the scores over the values, partition by partition."""
        size = partition or len(scores)
        total, mixed, largest = 0.0, 0.0, -numpy.inf
        for start in range(0, size if one_partition else len(scores), size):
            part = scores[start : start + size]
            highest = max(largest, part.max())
            kept = 1.0 if one_maximum and start else numpy.exp(largest - highest)
            weights = numpy.exp(part - highest)
            mixed = mixed * kept + weights @ cached_values[start : start + size]
            total = total * kept + weights.sum()
            largest = highest
        return mixed / total

    def kernel(out: torch.Tensor, *args: Any) -> None:
        if partition is None:
            attend(out, *args)
            return
        exp_sums, max_logits, tmp_out, *others = args
        partitions = -(-int(others[6].max()) // partition)
        assert exp_sums.shape == max_logits.shape == (*out.shape[:2], partitions)
        assert tmp_out.shape == (*out.shape[:2], partitions, out.shape[2])
        attend(out, *others)

    return kernel


COMMON = {
    "values-by-slot": {"values_by_slot": True},
    "keys-by-slot": {"keys_by_slot": True},
    "to-the-blocks-end": {"to_block_end": True},
    "wrong-head": {"interleaved_heads": True},
    "unscaled": {"unscaled": True},
    "last-token-missing": {"no_last_token": True},
    "wrong-block": {"next_block": True},
}


def _merge(
    *, swapped: bool = False, naive: bool = False, infinite: bool = False, by_token: bool = False
) -> Callable[..., None]:
    def kernel(
        output: torch.Tensor,
        output_lse: torch.Tensor,
        prefix_output: torch.Tensor,
        prefix_lse: torch.Tensor,
        suffix_output: torch.Tensor,
        suffix_lse: torch.Tensor,
        prefill_tokens_with_context: int | None,
        output_scale: torch.Tensor | None = None,
    ) -> None:
        assert prefill_tokens_with_context is None and output_scale is None
        tokens, heads, _ = output.shape
        for token in range(tokens):
            for head in range(heads):
                place = (head, token)
                if by_token:  # the log-sum-exp taken for [tokens, heads]
                    place = divmod(token * heads + head, tokens)
                lse = numpy.array([prefix_lse[place], suffix_lse[place]], dtype=numpy.float32)
                if not infinite:
                    lse[numpy.isinf(lse)] = -numpy.inf
                with numpy.errstate(over="ignore", invalid="ignore"):
                    base = numpy.float32(0) if naive else lse.max()
                    weights = numpy.exp(lse - base)
                    weights = weights / weights.sum()
                    merged = numpy.logaddexp(*lse.astype(numpy.float64))
                if swapped:
                    weights = weights[::-1]
                prefix = prefix_output[token, head].double().numpy()
                suffix = suffix_output[token, head].double().numpy()
                mixed = weights[0] * prefix + weights[1] * suffix
                output[token, head] = torch.from_numpy(mixed)
                output_lse[place] = float(merged)

    return kernel


SCRATCH = {
    f"{fault}:{name}": "scratch of the operator, nobody reads it afterwards"
    for fault in FAULTS
    for name in ("exp_sums", "max_logits", "tmp_out")
}
SUBJECTS = [
    Subject(
        "paged_attention_v1",
        "_C",
        f"paged_attention_v1(Tensor! out, {TAIL}",
        _paged(),
        TINY,
        wrong={name: _paged(**fault) for name, fault in COMMON.items()},
    ),
    Subject(
        "paged_attention_v1",
        "_C",
        f"paged_attention_v1(Tensor! out, {TAIL}",
        _paged(),
        {**TINY, "dtype": "bfloat16"},
        wrong={name: _paged(**fault) for name, fault in COMMON.items()},
        label="bfloat16",
    ),
    Subject(
        "paged_attention_v2",
        "_C",
        "paged_attention_v2(Tensor! out, Tensor! exp_sums, Tensor! max_logits, Tensor! tmp_out, "
        + TAIL,
        _paged(partition=512),
        {**TINY, "seq_len": 1100},
        wrong={
            **{name: _paged(partition=512, **fault) for name, fault in COMMON.items()},
            "maxima-not-merged": _paged(partition=512, one_maximum=True),
            "first-partition-only": _paged(partition=512, one_partition=True),
        },
        harmless=SCRATCH,
    ),
    Subject(
        "merge_attn_states",
        "_C",
        "merge_attn_states(Tensor! output, Tensor(b!)? output_lse, Tensor prefix_output, "
        "Tensor prefix_lse, Tensor suffix_output, Tensor suffix_lse, "
        "int? prefill_tokens_with_context, Tensor? output_scale=None) -> ()",
        _merge(),
        {"num_tokens": 9, "num_heads": 3, "head_size": 16},
        wrong={
            "weights-swapped": _merge(swapped=True),
            "exponents-overflow": _merge(naive=True),
            "infinite-weight": _merge(infinite=True),
            "lse-by-token": _merge(by_token=True),
        },
    ),
]
