"""Style: a torch.library operator by getattr; compared row by row in a loop."""
import pytest
import torch

import rowops

NAMES = ["gather_rows", "scatter_rows"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rows", [16, 64])
def test_rows(name, rows, columns=32, dtype=torch.float32, device="cpu"):
    op = getattr(torch.ops.rowops, name)
    table = torch.randn(rows, columns, dtype=dtype, device=device)
    index = torch.randint(0, rows, (8,), device=device)
    if name == "gather_rows":
        out = op(table, index)
        for i, row in enumerate(index.tolist()):
            expected = table[row]
            assert (out[i] - expected).abs().max().item() < 1e-6
    else:
        out = torch.zeros_like(table)
        op(out, index, table[:8])
        assert out.abs().sum() > 0
