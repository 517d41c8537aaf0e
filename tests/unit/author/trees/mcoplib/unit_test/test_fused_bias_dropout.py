import numpy as np
import pytest
import torch

from mcoplib import op


def bias_dropout_add(x, bias, residual, prob):
    y = x.float() + bias.float()
    y = torch.nn.functional.dropout(y, p=prob, training=prob > 0)
    return (residual.float() + y).to(x.dtype)


@pytest.mark.parametrize(
    "batch, seq_len, hidden_size", [(1, 128, 1024), (2, 2048, 4096), (1, 4096, 8192)]
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_fused_bias_dropout(batch, seq_len, hidden_size, dtype):
    torch_dtype = getattr(torch, dtype)
    prob = 0.0  # what is dropped is random: nothing here
    shape = (batch, seq_len, hidden_size)
    x = torch.randn(shape, dtype=torch_dtype).cuda()
    bias = torch.randn(hidden_size, dtype=torch_dtype).cuda()
    residual = torch.randn(shape, dtype=torch_dtype).cuda()
    out = op.fused_bias_dropout(x, bias, residual, dropout_prob=prob)
    golden = bias_dropout_add(x, bias, residual, prob)
    np.testing.assert_allclose(
        out.float().cpu().numpy(), golden.float().cpu().numpy(), rtol=1e-2, atol=1e-2
    )
