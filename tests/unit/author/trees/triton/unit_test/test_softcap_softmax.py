import pytest
import torch

from rowops.softcap import softcap_softmax


def reference(x, cap):
    capped = cap * torch.tanh(x.float() / cap)
    return torch.softmax(capped, dim=-1).to(x.dtype)


@pytest.mark.parametrize("n_rows", [1, 17, 4096])
@pytest.mark.parametrize("n_cols", [781, 4096])
@pytest.mark.parametrize("cap", [30.0, 50.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_softcap_softmax(n_rows, n_cols, cap, dtype):
    torch.manual_seed(0)
    x = torch.randn(n_rows, n_cols, device="cuda", dtype=dtype) * 20
    y = softcap_softmax(x, cap)
    torch.testing.assert_close(y, reference(x, cap))
