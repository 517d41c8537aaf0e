import pytest
import torch
from mcoplib import _C  # noqa: F401

ops = torch.ops._C

SHAPES = [
    (7, 64),
    (83, 769),
    (4096, 5120),
    (4096, 8192),
]
EPS = 1e-6


@pytest.fixture(params=[torch.float16, torch.bfloat16, torch.float32], ids=["fp16", "bf16", "fp32"])
def dtype(request):
    return request.param


def rms_norm_torch(x, weight, eps):
    wide = x.float()
    variance = wide.pow(2).mean(-1, keepdim=True)
    normed = wide * torch.rsqrt(variance + eps)
    return normed.to(x.dtype) * weight


@pytest.mark.parametrize("num_tokens, hidden_size", SHAPES)
def test_rms_norm(num_tokens, hidden_size, dtype):
    torch.cuda.manual_seed(42)
    x = torch.randn(num_tokens, hidden_size, dtype=dtype, device="cuda")
    weight = torch.empty(hidden_size, dtype=dtype, device="cuda").normal_(1.0, 0.1)
    out = torch.empty_like(x)
    ops.rms_norm(out, x, weight, EPS)
    expected = rms_norm_torch(x, weight, EPS)
    rtol, atol = (1e-2, 1e-2) if dtype is not torch.float32 else (1e-5, 1e-5)
    torch.testing.assert_close(out, expected, rtol=rtol, atol=atol)
