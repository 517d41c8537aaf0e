"""Style: an optional key, results that are compared only where there are any."""
import pytest
import torch

from vllm import _custom_ops as ops


def rotate(x, cos, sin, neox):
    if neox:
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)


@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize("num_heads", [4])
@pytest.mark.parametrize("head_size", [32])
@pytest.mark.parametrize("use_key", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32])
@pytest.mark.parametrize("device", ["cuda:0"])
def test_rotary(is_neox, num_heads, head_size, use_key, dtype, device):
    tokens, limit = 6, 16
    positions = torch.randint(0, limit, (tokens,), device=device)
    angles = torch.rand(limit, head_size // 2, device=device)
    cache = torch.cat((angles.cos(), angles.sin()), -1).to(dtype)
    query = torch.randn(tokens, num_heads, head_size, dtype=dtype, device=device)
    key = torch.randn_like(query) if use_key else None
    expected = []
    cos, sin = cache[positions].chunk(2, -1)
    for x in (query, key):
        if x is not None:
            expected.append(rotate(x, cos[:, None], sin[:, None], is_neox))
    ops.rotary_embedding(positions, query, key, head_size, cache, is_neox)
    torch.testing.assert_close(query, expected[0], atol=1e-4, rtol=1e-4)
    if key is not None:
        torch.testing.assert_close(key, expected[1], atol=1e-4, rtol=1e-4)
