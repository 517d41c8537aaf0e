import itertools

import pytest
import torch
from mcoplib import sgl_kernel  # noqa: F401

CASES = list(itertools.product([1, 16, 512, 4096], [4, 32, 128], [1, 4]))


@pytest.mark.parametrize("num_tokens, num_experts, topk", CASES)
def test_topk_softmax(num_tokens, num_experts, topk):
    gating_output = torch.randn((num_tokens, num_experts), dtype=torch.float32, device="cuda")
    topk_weights = torch.empty((num_tokens, topk), dtype=torch.float32, device="cuda")
    topk_indices = torch.empty((num_tokens, topk), dtype=torch.int32, device="cuda")

    torch.ops.sgl_kernel.topk_softmax(
        topk_weights, topk_indices, gating_output, renormalize=False, moe_softcapping=0.0,
        correction_bias=None,
    )

    softmax_output = torch.softmax(gating_output, dim=-1)
    topk_weights_ref, topk_indices_ref = torch.topk(softmax_output, topk, dim=-1)

    assert torch.allclose(topk_weights_ref, topk_weights, atol=1e-3, rtol=1e-3), "weights differ"
    assert torch.equal(
        topk_indices_ref.int().sort(dim=-1)[0], topk_indices.sort(dim=-1)[0]
    ), "experts differ"
