"""Style: itertools.product, sorted before they are compared, a script below."""
import itertools
import sys

import pytest
import torch
from sgl_kernel import topk_softmax


@pytest.mark.parametrize(
    "num_tokens, num_experts, topk",
    list(itertools.product([1, 16, 128], [4, 8, 16], [1, 2, 4])),
)
def test_topk_softmax(num_tokens, num_experts, topk):
    if topk > num_experts:
        pytest.skip("nothing to choose")
    gating_output = torch.randn((num_tokens, num_experts), dtype=torch.float32, device="cuda")
    topk_weights = torch.empty((num_tokens, topk), dtype=torch.float32, device="cuda")
    topk_indices = torch.empty((num_tokens, topk), dtype=torch.int32, device="cuda")
    topk_softmax(topk_weights, topk_indices, gating_output, renormalize=False)

    softmax_output = torch.softmax(gating_output, dim=-1)
    weights_ref, indices_ref = torch.topk(softmax_output, topk, dim=-1)
    assert torch.allclose(
        topk_weights.sort()[0], weights_ref.sort()[0], atol=1e-3, rtol=1e-3
    ), f"Weights mismatch: torch={weights_ref} vs {topk_weights}"
    for i in range(num_tokens):
        assert set(topk_indices[i].tolist()) == set(indices_ref[i].tolist())


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
