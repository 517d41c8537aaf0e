"""Style: a version among the parameters chooses the operator; Python's random makes the tables."""
import random
from typing import List, Optional, Tuple

import pytest
import torch

from tests.kernels.allclose_default import get_default_atol, get_default_rtol
from vllm import _custom_ops as ops
from vllm.platforms import current_platform
from vllm.utils import cdiv, get_max_shared_memory_bytes

FLOAT32_BYTES = torch.finfo(torch.float).bits // 8
MAX_SEQ_LEN = 64
NUM_BLOCKS = 128
PARTITION_SIZE = 512
NUM_HEADS = [(8, 8), (8, 2)]


def _make_caches(num_blocks: int, block_size: int, num_kv_heads: int, head_size: int, dtype):
    x = 16 // torch.tensor([], dtype=dtype).element_size()
    key_cache = torch.empty(num_blocks, num_kv_heads, head_size // x, block_size, x, dtype=dtype)
    value_cache = torch.empty(num_blocks, num_kv_heads, head_size, block_size, dtype=dtype)
    for cache in (key_cache, value_cache):
        cache.uniform_(-0.1, 0.1)
    return key_cache, value_cache


def _reference(output, query, queries_per_kv, key_cache, value_cache, tables, lens, scale) -> None:
    block_size = value_cache.shape[3]
    for i in range(query.shape[0]):
        length = int(lens[i])
        rows: List[torch.Tensor] = []
        cols: List[torch.Tensor] = []
        for j in range(length):
            block, offset = int(tables[i, j // block_size]), j % block_size
            rows.append(key_cache[block, :, :, offset, :].flatten(1))
            cols.append(value_cache[block, :, :, offset])
        keys = torch.stack(rows, 1).repeat_interleave(queries_per_kv, 0)
        values = torch.stack(cols, 1).repeat_interleave(queries_per_kv, 0)
        weights = torch.einsum("hd,hkd->hk", query[i].float(), keys.float()) * scale
        out = torch.einsum("hk,hkd->hd", weights.softmax(-1), values.float())
        output[i].copy_(out, non_blocking=True)


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("num_seqs", [3])
@pytest.mark.parametrize("num_heads", NUM_HEADS)
@pytest.mark.parametrize("head_size", [64, 80])
@pytest.mark.parametrize("block_size", [8, 16])
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
@pytest.mark.parametrize("seed", [0])
@pytest.mark.parametrize("device", ["cuda:0"])
def test_paged_attention(
    version: str,
    num_seqs: int,
    num_heads: Tuple[int, int],
    head_size: int,
    block_size: int,
    dtype: torch.dtype,
    seed: int,
    device: str,
) -> None:
    if version == "v2" and head_size == 80:
        pytest.skip()
    current_platform.seed_everything(seed)
    torch.set_default_device(device)
    scale = float(1.0 / (head_size**0.5))
    num_query_heads, num_kv_heads = num_heads
    query = torch.empty(num_seqs, num_query_heads, head_size, dtype=dtype)
    query.uniform_(-scale, scale)
    assert num_query_heads % num_kv_heads == 0
    num_queries_per_kv = num_query_heads // num_kv_heads
    alibi_slopes: Optional[torch.Tensor] = None

    seq_lens = [random.randint(1, MAX_SEQ_LEN) for _ in range(num_seqs)]
    seq_lens[-1] = MAX_SEQ_LEN
    max_seq_len = max(seq_lens)
    seq_lens = torch.tensor(seq_lens, dtype=torch.int)

    # Block tables: any block may be used twice.
    blocks_per_seq = cdiv(max_seq_len, block_size)
    block_tables_lst: List[List[int]] = []
    for _ in range(num_seqs):
        block_tables_lst.append(
            [random.randint(0, NUM_BLOCKS - 1) for _ in range(blocks_per_seq)]
        )
    block_tables = torch.tensor(block_tables_lst, dtype=torch.int)
    key_cache, value_cache = _make_caches(NUM_BLOCKS, block_size, num_kv_heads, head_size, dtype)

    output = torch.empty_like(query)
    if version == "v1":
        ops.paged_attention_v1(
            output, query, key_cache, value_cache, num_kv_heads, scale, block_tables, seq_lens,
            block_size, max_seq_len, alibi_slopes, "auto",
        )
    elif version == "v2":
        num_partitions = (max_seq_len + PARTITION_SIZE - 1) // PARTITION_SIZE
        tmp_output = torch.empty(size=(num_seqs, num_query_heads, num_partitions, head_size))
        ops.paged_attention_v2(
            output, tmp_output, query, key_cache, value_cache, num_kv_heads, scale, block_tables,
            seq_lens, block_size, max_seq_len, alibi_slopes, "auto",
        )
    else:
        raise AssertionError(f"Unknown version: {version}")

    ref_output = torch.empty_like(query)
    _reference(
        ref_output, query, num_queries_per_kv, key_cache, value_cache, block_tables, seq_lens, scale
    )
    atol = get_default_atol(output) if current_platform.is_rocm() else 1e-3
    rtol = get_default_rtol(output) if current_platform.is_rocm() else 1e-5
    torch.testing.assert_close(output, ref_output, atol=atol, rtol=rtol)
