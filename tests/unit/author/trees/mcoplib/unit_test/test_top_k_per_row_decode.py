import pytest
import torch

import mcoplib._C  # noqa: F401


def create_random_logits(num_rows, row_ends, context_len, seed):
    torch.manual_seed(seed)
    logits = torch.randn((num_rows, context_len), dtype=torch.float32, device="cuda")
    for row, end in enumerate(row_ends):
        logits[row, end:] = float("-inf")
    return logits


def same_topk(logits, indices, expected, topk):
    """Rows may hold their indices in any order."""
    for row in range(indices.shape[0]):
        got = set(indices[row].tolist())
        want = set(expected[row].tolist())
        if got != want:
            # another of several equal logits is as good
            got_values = logits[row][list(got - {-1})].sort().values
            want_values = logits[row][list(want - {-1})].sort().values
            if not torch.equal(got_values, want_values):
                return False
    return True


@pytest.mark.parametrize("batch_size", [1, 4, 64])
@pytest.mark.parametrize("next_n", [1, 2])
@pytest.mark.parametrize("context_len", [4096, 32768])
@pytest.mark.parametrize("top_k", [2048])
def test_top_k_per_row_decode(batch_size, next_n, context_len, top_k):
    num_rows = batch_size * next_n
    torch.manual_seed(3)
    seq_lens = torch.randint(top_k + next_n, context_len + 1, (batch_size,), dtype=torch.int32, device="cuda")
    row_ends = [int(seq_lens[row // next_n]) - next_n + row % next_n + 1 for row in range(num_rows)]
    logits = create_random_logits(num_rows, row_ends, context_len, seed=0)
    indices = torch.empty((num_rows, top_k), dtype=torch.int32, device="cuda")

    torch.ops._C.top_k_per_row_decode(
        logits, next_n, seq_lens, indices, num_rows, logits.stride(0), logits.stride(1), top_k
    )

    torch_indices = logits.topk(top_k, dim=-1)[1].int()
    assert same_topk(logits, indices, torch_indices, top_k)
