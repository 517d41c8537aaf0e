import random

import pytest
import torch
import torch.nn.functional as F

import mcoplib._C

DTYPES = [torch.half, torch.bfloat16]
default_atol = {torch.half: 1e-3, torch.bfloat16: 1e-2, torch.float: 1e-5}
default_rtol = {torch.half: 1e-3, torch.bfloat16: 1.6e-2, torch.float: 1.3e-6}


def get_default_atol(output) -> float:
    return default_atol[output.dtype]


def get_default_rtol(output) -> float:
    return default_rtol[output.dtype]


class FatreluAndMul(torch.nn.Module):
    """x -> FATReLU(x[:d]) * x[d:]"""

    def __init__(self, threshold: float = 0.0):
        super().__init__()
        self.threshold = threshold

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        d = x.shape[-1] // 2
        x1 = x[..., :d]
        x2 = x[..., d:]
        x1 = F.threshold(x1, self.threshold, 0.0)
        return x1 * x2


@pytest.mark.parametrize("num_tokens", [7, 83, 4096])
@pytest.mark.parametrize("d", [512, 13824])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", [0])
@pytest.mark.parametrize("device", ["cuda:0"])
@torch.inference_mode()
def test_fatrelu_and_mul(num_tokens, d, dtype, seed, device):
    random.seed(seed)
    torch.manual_seed(seed)
    torch.set_default_device(device)
    x = torch.randn(num_tokens, 2 * d, dtype=dtype)
    threshold = 0.25
    layer = FatreluAndMul(threshold)
    fn = torch.ops._C.fatrelu_and_mul

    out = torch.empty(x.shape[:-1] + (d,), dtype=dtype, device=x.device)
    fn(out, x, threshold)
    ref_out = layer.forward_native(x)
    torch.testing.assert_close(out, ref_out, atol=get_default_atol(out), rtol=get_default_rtol(out))
