"""Style: one layer with and without the residual; the residual chooses the operator."""
import pytest
import torch
from torch import nn

import vllm._custom_ops as ops


class Norm(nn.Module):
    def __init__(self, hidden_size: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, x, residual=None):
        dtype = x.dtype
        x = x.float()
        if residual is not None:
            x = x + residual.float()
            residual = x.to(dtype)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        x = x.to(dtype) * self.weight
        return x if residual is None else (x, residual)


@pytest.mark.parametrize("num_tokens", [7, 83])
@pytest.mark.parametrize("hidden_size", [8, 768])
@pytest.mark.parametrize("add_residual", [False, True])
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
@pytest.mark.parametrize("strided", [False, True])
@torch.inference_mode()
def test_norm(num_tokens, hidden_size, add_residual, dtype, strided, default_config):
    torch.manual_seed(0)
    layer = Norm(hidden_size).to(dtype=dtype, device="cuda")
    layer.weight.data.normal_(mean=1.0, std=0.1)
    scale = 1 / (2 * hidden_size)
    last_dim = 2 * hidden_size if strided else hidden_size
    x = torch.randn(num_tokens, last_dim, dtype=dtype, device="cuda")
    x = x[..., :hidden_size]
    assert x.is_contiguous() != strided
    x *= scale
    residual = torch.randn_like(x) * scale if add_residual else None

    # NOTE: the reference runs first, because the layer works in place.
    ref_out = layer(x, residual)
    if add_residual:
        ops.fused_add_rms_norm(x, residual, layer.weight.data, layer.variance_epsilon)
        torch.testing.assert_close(x, ref_out[0], atol=1e-2, rtol=1e-2)
        torch.testing.assert_close(residual, ref_out[1], atol=1e-2, rtol=1e-2)
    else:
        out = torch.empty_like(x)
        ops.rms_norm(out, x, layer.weight.data, layer.variance_epsilon)
        torch.testing.assert_close(out, ref_out, atol=1e-2, rtol=1e-2)
