import pytest
import torch

import mcoplib._moe_C  # noqa: F401


def torch_topk_softmax(gating_output, topk, renormalize):
    scores = torch.softmax(gating_output.float(), dim=-1)
    topk_weights, topk_ids = torch.topk(scores, topk, dim=-1)
    if renormalize:
        topk_weights = topk_weights / topk_weights.sum(dim=-1, keepdim=True)
    return topk_weights, topk_ids.to(torch.int32)


@pytest.mark.parametrize("num_tokens", [1, 33, 1024])
@pytest.mark.parametrize("num_experts", [8, 64, 256])
@pytest.mark.parametrize("topk", [2, 6])
@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_topk_softmax(num_tokens, num_experts, topk, renormalize, dtype):
    torch.manual_seed(0)
    gating_output = torch.randn((num_tokens, num_experts), dtype=dtype, device="cuda")
    topk_weights = torch.empty((num_tokens, topk), dtype=torch.float32, device="cuda")
    topk_indices = torch.empty((num_tokens, topk), dtype=torch.int32, device="cuda")
    token_expert_indices = torch.empty_like(topk_indices)

    torch.ops._moe_C.topk_softmax(
        topk_weights, topk_indices, token_expert_indices, gating_output, renormalize
    )
    ref_weights, ref_indices = torch_topk_softmax(gating_output, topk, renormalize)

    # experts of equal weight may come in any order
    sorted_indices, order = torch.sort(topk_indices, dim=-1)
    ref_sorted_indices, ref_order = torch.sort(ref_indices, dim=-1)
    assert torch.equal(sorted_indices, ref_sorted_indices)
    torch.testing.assert_close(
        topk_weights.gather(1, order), ref_weights.gather(1, ref_order), atol=1e-5, rtol=1e-5
    )
