"""Style: sglang's script with a function of everything and loops over sizes below."""
import argparse

import torch
import sgl_kernel

calls = torch.ops.sgl_kernel


def ceil_div(a, b):
    return (a + b - 1) // b


def align_native(topk_ids, block_size, num_experts, sorted_ids, expert_ids, total):
    sorted_ids.fill_(topk_ids.numel())
    flat = topk_ids.flatten().tolist()
    position, block = 0, 0
    for expert in range(num_experts):
        slots = [i for i, e in enumerate(flat) if e == expert]
        for i, slot in enumerate(slots):
            sorted_ids[position + i] = slot
        blocks = ceil_div(len(slots), block_size)
        for b in range(blocks):
            expert_ids[block + b] = expert
        position += blocks * block_size
        block += blocks
    total[0] = position


def calculate_diff(num_tokens, num_experts=8, block_size=16, topk=2):
    topk_ids = torch.stack(
        [torch.randperm(num_experts, dtype=torch.int32, device="cuda")[:topk] for _ in range(num_tokens)]
    )
    most = topk_ids.numel() + num_experts * (block_size - 1)
    sorted_ids_cuda = torch.empty((most,), dtype=torch.int32, device=topk_ids.device)
    sorted_ids_cuda.fill_(topk_ids.numel())
    expert_ids_cuda = torch.zeros((ceil_div(most, block_size),), dtype=torch.int32, device=topk_ids.device)
    total_cuda = torch.empty((1), dtype=torch.int32, device=topk_ids.device)

    sorted_ids_ref = torch.empty_like(sorted_ids_cuda)
    expert_ids_ref = torch.zeros_like(expert_ids_cuda)
    total_ref = torch.empty_like(total_cuda)

    print("compiling ...")
    calls.moe_align_block_size(
        topk_ids, num_experts, block_size, sorted_ids_cuda, expert_ids_cuda, total_cuda
    )
    align_native(topk_ids, block_size, num_experts, sorted_ids_ref, expert_ids_ref, total_ref)

    if torch.allclose(expert_ids_cuda, expert_ids_ref) and torch.allclose(total_cuda, total_ref):
        print("all implementations match")
    else:
        print("implementations do not match")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    args = parser.parse_args()
    for tokens in [16, 32]:
        for experts in (8, 64):
            calculate_diff(tokens, num_experts=experts)
