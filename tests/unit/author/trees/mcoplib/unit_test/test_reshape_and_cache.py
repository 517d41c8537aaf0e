"""Keys and values scattered into the paged caches. Run it with python, or with pytest."""
import random

import torch

import mcoplib._C

NUM_BLOCKS = 256


def create_kv_caches(num_blocks, block_size, num_heads, head_size, dtype, device):
    x = 16 // torch.tensor([], dtype=dtype).element_size()
    key_cache = torch.zeros(num_blocks, num_heads, head_size // x, block_size, x, dtype=dtype, device=device)
    value_cache = torch.zeros(num_blocks, num_heads, head_size, block_size, dtype=dtype, device=device)
    key_cache.uniform_(-1, 1)
    value_cache.uniform_(-1, 1)
    return key_cache, value_cache


def run(num_tokens, num_heads, head_size, block_size, num_blocks, dtype, device="cuda"):
    random.seed(0)
    torch.manual_seed(0)
    num_slots = block_size * num_blocks
    slot_mapping_lst = random.sample(range(num_slots), num_tokens)
    slot_mapping = torch.tensor(slot_mapping_lst, dtype=torch.long, device=device)
    qkv = torch.randn(num_tokens, 3, num_heads, head_size, dtype=dtype, device=device)
    _, key, value = qkv.unbind(dim=1)
    key_cache, value_cache = create_kv_caches(num_blocks, block_size, num_heads, head_size, dtype, device)
    k_scale = torch.ones(1, dtype=torch.float32, device=device)
    v_scale = torch.ones(1, dtype=torch.float32, device=device)

    cloned_key_cache = key_cache.clone()
    cloned_value_cache = value_cache.clone()

    torch.ops._C_cache_ops.reshape_and_cache(
        key, value, key_cache, value_cache, slot_mapping, "auto", k_scale, v_scale
    )

    reshaped_key = key.reshape(num_tokens, *key_cache[0, :, :, 0, :].shape)
    for i in range(num_tokens):
        block_idx = slot_mapping_lst[i] // block_size
        block_offset = slot_mapping_lst[i] % block_size
        cloned_key_cache[block_idx, :, :, block_offset, :] = reshaped_key[i]
        cloned_value_cache[block_idx, :, :, block_offset] = value[i]

    assert torch.equal(key_cache, cloned_key_cache), "key_cache differs"
    assert torch.equal(value_cache, cloned_value_cache), "value_cache differs"


def test_reshape_and_cache():
    for dtype in (torch.float16, torch.bfloat16):
        run(42, 8, 64, 16, NUM_BLOCKS, dtype)


if __name__ == "__main__":
    run(num_tokens=2048, num_heads=8, head_size=128, block_size=16, num_blocks=NUM_BLOCKS, dtype=torch.bfloat16)
    print("PASSED")
