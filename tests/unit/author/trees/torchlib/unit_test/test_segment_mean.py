import pytest
import torch

import blockops  # noqa: F401


def mean_by_loop(values, offsets):
    rows = []
    for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist()):
        if start == end:
            rows.append(torch.zeros(values.shape[1], dtype=values.dtype, device=values.device))
        else:
            rows.append(values[start:end].float().mean(dim=0).to(values.dtype))
    return torch.stack(rows)


@pytest.mark.parametrize("num_rows", [100, 4096])
@pytest.mark.parametrize("hidden", [64, 1024])
@pytest.mark.parametrize("num_segments", [16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_segment_mean(num_rows, hidden, num_segments, dtype, device="cpu"):
    torch.manual_seed(0)
    values = torch.randn(num_rows, hidden, dtype=dtype, device=device)
    cuts = torch.sort(torch.randint(0, num_rows + 1, (num_segments - 1,), device=device)).values
    ends = torch.tensor([num_rows], device=device)
    offsets = torch.cat((torch.zeros(1, dtype=torch.int64, device=device), cuts, ends))
    out = torch.ops.blockops.segment_mean(values, offsets)
    expected = mean_by_loop(values, offsets)
    torch.testing.assert_close(out, expected, atol=1e-2, rtol=1e-2)
