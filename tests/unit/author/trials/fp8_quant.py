"""Style: dtype dicts, a tuple result, several tests of one operator of which one compares most."""
import pytest
import torch

from vllm import _custom_ops as ops

FP8 = torch.float8_e4m3fn
SIZES = [s for s in range(16, 65) if s % 16 == 0]
STR_DTYPES = {"half": torch.half, "bf16": torch.bfloat16}


def _ref(x, fp8=FP8):
    info = torch.finfo(fp8)
    scale = x.abs().max(dim=-1, keepdim=True).values.float() / info.max
    scale = scale.clamp(min=1.0 / (info.max * 512.0))
    return (x.float() / scale).clamp(info.min, info.max).to(fp8), scale


def test_shape_only():
    x = torch.rand(4, 16, device="cuda")
    out, scale = ops.per_token_quant(x)
    assert out.shape == x.shape


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["half", "bf16"])
@pytest.mark.parametrize("bound", [None, 0.5])
def test_per_token_quant(size, kind, bound):
    dtype = STR_DTYPES[kind]
    x = torch.rand(8, size, dtype=dtype, device="cuda")
    scale_ub = None if bound is None else torch.tensor([bound], device="cuda")
    if bound is not None:
        x = x.clamp(max=bound)
    out, scale = ops.per_token_quant(x, scale_ub=scale_ub)
    ref, ref_scale = _ref(x)
    torch.testing.assert_close(scale, ref_scale)
    if dtype == torch.half:
        torch.testing.assert_close(out.float(), ref.float(), atol=1e-1, rtol=1e-1)
    else:
        torch.testing.assert_close(out.float(), ref.float(), atol=2e-1, rtol=2e-1)
