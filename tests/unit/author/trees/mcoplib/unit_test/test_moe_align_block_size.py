import pytest
import torch
import mcoplib._moe_C


def ceil_div(a, b):
    return (a + b - 1) // b


def torch_moe_align_block_size(topk_ids, block_size, num_experts):
    """Expert by expert: its slots in order, then padding up to a whole block."""
    numel = topk_ids.numel()
    flat = topk_ids.flatten()
    sorted_ids = []
    expert_ids = []
    for expert in range(num_experts):
        slots = torch.nonzero(flat == expert).flatten().to(torch.int32)
        if slots.numel() == 0:
            continue
        blocks = ceil_div(slots.numel(), block_size)
        padding = blocks * block_size - slots.numel()
        filler = torch.full((padding,), numel, dtype=torch.int32, device=topk_ids.device)
        sorted_ids.append(torch.cat((slots, filler)))
        expert_ids.extend([expert] * blocks)
    sorted_ids = torch.cat(sorted_ids)
    expert_ids = torch.tensor(expert_ids, dtype=torch.int32, device=topk_ids.device)
    num_tokens_post_pad = torch.tensor([sorted_ids.numel()], dtype=torch.int32, device=topk_ids.device)
    return sorted_ids, expert_ids, num_tokens_post_pad


def group_tokens_by_expert(sorted_ids, expert_ids, block_size, valid_length):
    """Slots of one expert come in any order: sort those of each block's expert."""
    experts = expert_ids[: valid_length // block_size].repeat_interleave(block_size).long()
    ids = sorted_ids[:valid_length].long()
    order = torch.argsort(experts * (ids.max() + 1) + ids)
    return ids[order]


@pytest.mark.parametrize("m", [1, 16, 4096])
@pytest.mark.parametrize("topk", [2, 8])
@pytest.mark.parametrize("num_experts", [16, 64, 256])
@pytest.mark.parametrize("block_size", [32, 64])
def test_moe_align_block_size(m: int, topk: int, num_experts: int, block_size: int):
    torch.manual_seed(0)
    topk_ids = torch.zeros((m, topk), device="cuda", dtype=torch.int32)
    for i in range(m):
        experts = torch.randperm(num_experts, device="cuda")[:topk]
        topk_ids[i] = experts

    max_num_tokens_padded = topk_ids.numel() + num_experts * (block_size - 1)
    sorted_ids = torch.empty((max_num_tokens_padded,), dtype=torch.int32, device="cuda")
    max_num_m_blocks = ceil_div(max_num_tokens_padded, block_size)
    expert_ids = torch.empty((max_num_m_blocks,), dtype=torch.int32, device="cuda")
    num_tokens_post_pad = torch.empty((1,), dtype=torch.int32, device="cuda")

    torch.ops._moe_C.moe_align_block_size(
        topk_ids, num_experts, block_size, sorted_ids, expert_ids, num_tokens_post_pad
    )
    golden_sorted_ids, golden_expert_ids, golden_num_tokens = torch_moe_align_block_size(
        topk_ids, block_size, num_experts
    )

    torch.testing.assert_close(num_tokens_post_pad, golden_num_tokens, atol=0, rtol=0)
    length = int(golden_num_tokens.item())
    torch.testing.assert_close(
        expert_ids[: length // block_size], golden_expert_ids, atol=0, rtol=0
    )
    actual_groups = group_tokens_by_expert(sorted_ids, expert_ids, block_size, length)
    golden_groups = group_tokens_by_expert(golden_sorted_ids, golden_expert_ids, block_size, length)
    torch.testing.assert_close(actual_groups, golden_groups, atol=0, rtol=0)
