"""awq_dequantize against a step-by-step reference."""
import os

import pytest
import torch

import mcoplib._C  # noqa: F401

device = "cuda"
AWQ_ORDER = [0, 4, 1, 5, 2, 6, 3, 7]
threshold = float(os.environ.get("AWQ_THRESHOLD", "0.05"))


def unpack_awq(packed: torch.Tensor, bits: int = 4) -> torch.Tensor:
    # [rows, columns / 8] -> [rows, columns]
    shifts = torch.arange(0, 32, bits, device=packed.device)
    nibbles = torch.bitwise_right_shift(packed[:, :, None], shifts[None, None, :])
    nibbles = torch.bitwise_and(nibbles, (1 << bits) - 1)
    ordered = nibbles[:, :, AWQ_ORDER]
    return ordered.reshape(packed.shape[0], -1)


def awq_dequantize_torch(qweight, scales, qzeros, group_size):
    weights = unpack_awq(qweight)
    zeros = unpack_awq(qzeros)
    rows_scales = scales.repeat_interleave(group_size, dim=0)
    rows_zeros = zeros.repeat_interleave(group_size, dim=0)
    centred = weights - rows_zeros
    return centred.to(scales.dtype) * rows_scales


# qweight - [R     , C // 8], int32
# scales  - [R // G, C     ], float16
# zeros   - [R // G, C // 8], int32
@pytest.mark.parametrize("qweight_rows", [3584, 18944, 4096])
@pytest.mark.parametrize("qweight_cols", [448, 576, 512])
@pytest.mark.parametrize("group_size", [128])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_awq_dequantize(qweight_rows, qweight_cols, group_size, dtype):
    torch.manual_seed(0)
    qweight = torch.randint(0, torch.iinfo(torch.int32).max, (qweight_rows, qweight_cols), dtype=torch.int32, device=device)
    scales = torch.rand(qweight_rows // group_size, qweight_cols * 8, dtype=dtype, device=device)
    zeros = torch.randint(0, torch.iinfo(torch.int32).max, (qweight_rows // group_size, qweight_cols), dtype=torch.int32, device=device)

    out = torch.ops._C.awq_dequantize(qweight, scales, zeros, 0, 0, 0)

    assert not (torch.any(torch.isinf(out)) or torch.any(torch.isnan(out)))
    expected = awq_dequantize_torch(qweight, scales, zeros, group_size)
    max_diff = (out - expected).abs().max()
    assert max_diff < threshold
