import pytest
import torch

import blockops  # noqa: F401


def quantize_ref(x, block_size):
    n, d = x.shape
    blocks = x.float().view(n, d // block_size, block_size)
    scales = blocks.abs().amax(dim=-1).clamp(min=1e-10) / 127.0
    q = torch.round(blocks / scales.unsqueeze(-1))
    return q.view(n, d).to(torch.int8), scales


@pytest.mark.parametrize("rows", [3, 4096])
@pytest.mark.parametrize("columns", [256, 4096])
@pytest.mark.parametrize("block_size", [128])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_quantize_blocks(rows, columns, block_size, dtype, device="cpu"):
    torch.manual_seed(0)
    x = torch.randn(rows, columns, dtype=dtype, device=device)
    out = torch.empty(rows, columns, dtype=torch.int8, device=device)
    scales = torch.empty(rows, columns // block_size, dtype=torch.float32, device=device)
    torch.ops.blockops.quantize_blocks(out, scales, x, block_size)
    q, s = quantize_ref(x, block_size)
    torch.testing.assert_close(scales, s)
    assert (out.int() - q.int()).abs().max() <= 1
