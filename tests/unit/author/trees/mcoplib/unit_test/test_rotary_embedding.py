import math
from itertools import product

import pytest
import torch

import mcoplib._C


def rotate_neox(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rotate_gptj(x: torch.Tensor) -> torch.Tensor:
    even = x[..., ::2]
    odd = x[..., 1::2]
    return torch.stack((-odd, even), dim=-1).flatten(-2)


def apply_rotary(x, cos, sin, is_neox):
    """x: [tokens, heads, rotary_dim]; cos, sin: [tokens, rotary_dim / 2]."""
    if is_neox:
        cos = cos.repeat(1, 2).unsqueeze(1)
        sin = sin.repeat(1, 2).unsqueeze(1)
        return x * cos + rotate_neox(x) * sin
    cos = cos.repeat_interleave(2, dim=-1).unsqueeze(1)
    sin = sin.repeat_interleave(2, dim=-1).unsqueeze(1)
    return x * cos + rotate_gptj(x) * sin


def ref_rotary_embedding(positions, x, head_size, cos_sin_cache, is_neox):
    rotary_dim = cos_sin_cache.shape[1]
    rows = cos_sin_cache.index_select(0, positions.flatten())
    cos, sin = rows.float().chunk(2, dim=-1)
    heads = x.view(positions.numel(), -1, head_size)
    turned = apply_rotary(heads[..., :rotary_dim].float(), cos, sin, is_neox)
    kept = heads[..., rotary_dim:]
    return torch.cat((turned.to(x.dtype), kept), dim=-1).reshape(x.shape)


def make_cache(max_position, rotary_dim, base, dtype):
    exponent = torch.arange(0, rotary_dim, 2, dtype=torch.float) / rotary_dim
    inv_freq = 1.0 / torch.pow(base, exponent)
    angles = torch.outer(torch.arange(max_position, dtype=torch.float), inv_freq)
    return torch.cat((angles.cos(), angles.sin()), dim=-1).to(dtype)


IS_NEOX = [True, False]
DTYPES = [torch.half, torch.bfloat16, torch.float32]
HEAD_SIZES = [64, 128]
ROTARY_DIMS = [None, 32]  # None: the whole head
NUM_HEADS = [(32, 8), (7, 1)]
BATCHES = list(product([1, 5], [11, 1024]))


@pytest.mark.parametrize("is_neox", IS_NEOX)
@pytest.mark.parametrize("batch_size, seq_len", [(1, 11), (5, 1024)])
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), NUM_HEADS)
@pytest.mark.parametrize("head_size", HEAD_SIZES)
@pytest.mark.parametrize("rotary_dim", ROTARY_DIMS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("use_key", [True, False])
@torch.inference_mode()
def test_rotary_embedding(
    is_neox,
    batch_size,
    seq_len,
    num_heads,
    num_kv_heads,
    head_size,
    rotary_dim,
    dtype,
    use_key,
    max_position=8192,
    base=10000.0,
    seed=0,
    device="cuda:0",
):
    if rotary_dim is None:
        rotary_dim = head_size
    if not use_key and num_kv_heads == 1:
        pytest.skip("the same as with the other heads")
    torch.manual_seed(seed)
    torch.set_default_device(device)
    cos_sin_cache = make_cache(max_position, rotary_dim, base, dtype)
    positions = torch.randint(0, max_position, (batch_size, seq_len))
    query = torch.randn(batch_size, seq_len, num_heads * head_size, dtype=dtype)
    key = torch.randn(batch_size, seq_len, num_kv_heads * head_size, dtype=dtype) if use_key else None

    ref_query = ref_rotary_embedding(positions, query.clone(), head_size, cos_sin_cache, is_neox)
    ref_key = None
    if key is not None:
        ref_key = ref_rotary_embedding(positions, key.clone(), head_size, cos_sin_cache, is_neox)

    torch.ops._C.rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox)

    tolerance = {torch.half: 1e-3, torch.bfloat16: 1e-2, torch.float32: 1e-5}[dtype]
    torch.testing.assert_close(query, ref_query, atol=tolerance, rtol=1e-2)
    if key is not None:
        torch.testing.assert_close(key, ref_key, atol=tolerance, rtol=1e-2)
    assert not math.isnan(query.float().sum().item())
