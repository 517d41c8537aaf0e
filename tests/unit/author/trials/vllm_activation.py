"""Style: parametrised, aliases of the operator among the parameters, a layer of the framework."""
import random
from typing import Any, Callable

import pytest
import torch

from tests.kernels.utils import opcheck
from vllm.platforms import current_platform

DTYPES = [torch.half, torch.bfloat16, torch.float]
NUM_TOKENS = [7, 83, 2048]
D = [512, 13824]
SEEDS = [0]
CUDA_DEVICES = [f"cuda:{i}" for i in range(1 if torch.cuda.device_count() == 1 else 2)]


class GeluAndMul:
    approximate = "tanh"

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        gate, up = x[..., :half], x[..., half:]
        return torch.nn.functional.gelu(gate, approximate=self.approximate) * up


class SiluAndMul:
    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        gate, up = x[..., :half], x[..., half:]
        return torch.nn.functional.silu(gate) * up


@pytest.mark.parametrize(
    "layer_cls, fn",
    [
        (SiluAndMul, torch.ops._C.silu_and_mul),
        pytest.param(GeluAndMul, torch.ops._C.gelu_tanh_and_mul, id="gelu"),
    ],
)
@pytest.mark.parametrize("num_tokens", NUM_TOKENS)
@pytest.mark.parametrize("d", D)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d))
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("device", CUDA_DEVICES)
@torch.inference_mode()
def test_act_and_mul(
    layer_cls: type, fn: Callable[..., Any], num_tokens: int, d: int, dtype, seed, device
) -> None:
    current_platform.seed_everything(seed)
    torch.set_default_device(device)
    if dtype is torch.float and current_platform.is_rocm():
        pytest.skip("not there")
    x = torch.randn(num_tokens, 2 * d, dtype=dtype)
    layer = layer_cls()
    out = torch.empty(x.shape[:-1] + (d,), dtype=dtype)
    fn(out, x)
    ref_out = layer.forward_native(x)
    # The kernel rounds the same way.
    torch.testing.assert_close(out, ref_out, atol=0.0, rtol=0.0)
    opcheck(fn, (out, x))
