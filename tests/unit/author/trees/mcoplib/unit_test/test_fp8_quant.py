import pytest
import torch

import mcoplib._C  # noqa: F401
from quant_utils import FP8_DTYPE, ref_dynamic_per_token_quant, ref_static_quant

DTYPES = [torch.half, torch.bfloat16, torch.float]
HIDDEN_SIZES = [17, 1024, 1025, 5137, 8192]
NUM_TOKENS = [1, 7, 4096]
SCALE_UBS = [True, False]
SEEDS = [0]


@pytest.mark.parametrize("num_tokens", NUM_TOKENS)
@pytest.mark.parametrize("hidden_size", HIDDEN_SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale_ub", SCALE_UBS)
@pytest.mark.parametrize("seed", SEEDS)
@torch.inference_mode()
def test_dynamic_per_token_scaled_fp8_quant(num_tokens, hidden_size, dtype, scale_ub, seed):
    torch.manual_seed(seed)
    # not all zeros: half of them are far from it
    x = torch.rand(num_tokens, hidden_size, dtype=dtype, device="cuda") + 1e-6
    scale_ub = torch.mean(x).to(dtype=torch.float32, device="cuda") if scale_ub else None

    ref_out, ref_scales = ref_dynamic_per_token_quant(x, FP8_DTYPE, scale_ub)

    ops_out = torch.empty(x.shape, dtype=FP8_DTYPE, device="cuda")
    ops_scales = torch.empty((num_tokens, 1), dtype=torch.float32, device="cuda")
    torch.ops._C.dynamic_per_token_scaled_fp8_quant(ops_out, x, ops_scales, scale_ub)

    torch.testing.assert_close(ref_scales, ops_scales)
    torch.testing.assert_close(
        ref_out.to(dtype=torch.float32), ops_out.to(dtype=torch.float32)
    )


@pytest.mark.parametrize("num_tokens", NUM_TOKENS)
@pytest.mark.parametrize("hidden_size", HIDDEN_SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", SEEDS)
@torch.inference_mode()
def test_static_scaled_fp8_quant(num_tokens, hidden_size, dtype, seed):
    torch.manual_seed(seed)
    x = torch.rand(num_tokens, hidden_size, dtype=dtype, device="cuda")
    scale = torch.tensor([0.0025], dtype=torch.float32, device="cuda")
    out = torch.empty_like(x, dtype=FP8_DTYPE)
    torch.ops._C.static_scaled_fp8_quant(out, x, scale)
    ref_out = ref_static_quant(x, scale)
    assert torch.allclose(out.float(), ref_out.float(), rtol=0.13, atol=1e-3)
