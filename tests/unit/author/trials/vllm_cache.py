"""Style: fixtures that make the data, a slot mapping loop, clones of the caches."""
import random

import pytest
import torch

from vllm import _custom_ops as ops

COPYING_DIRECTION = [("cuda", "cpu")]
DTYPES = [torch.half, torch.uint8]


@pytest.fixture(params=[(42, 8), (7, 4)])
def sizes(request):
    return request.param


@pytest.fixture
def kv_cache_factory():
    def make(blocks, block_size, heads, head_size, dtype, device):
        shape = (blocks, block_size, heads, head_size)
        return [torch.rand(shape, device=device).to(dtype) for _ in range(2)]

    return make


@pytest.mark.parametrize("head_size", [64, 80])
@pytest.mark.parametrize("block_size", (8, 16))
@pytest.mark.parametrize("num_blocks", [64])
@pytest.mark.parametrize("dtype", [torch.half, torch.float])
@pytest.mark.parametrize("seed", [0])
@pytest.mark.parametrize("device", ["cuda"])
@torch.inference_mode()
def test_reshape_and_cache_flash(
    kv_cache_factory, sizes, head_size, block_size, num_blocks, dtype, seed, device
):
    random.seed(seed)
    torch.manual_seed(seed)
    num_tokens, num_heads = sizes
    num_slots = block_size * num_blocks
    slot_mapping_lst = random.sample(range(num_slots), num_tokens)
    slot_mapping = torch.tensor(slot_mapping_lst, dtype=torch.long, device=device)
    qkv = torch.randn(num_tokens, 3, num_heads, head_size, dtype=dtype, device=device)
    _, key, value = qkv.unbind(dim=1)
    key_cache, value_cache = kv_cache_factory(
        num_blocks, block_size, num_heads, head_size, dtype, device
    )
    cloned_key_cache = key_cache.clone()
    cloned_value_cache = value_cache.clone()

    ops.reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping, "auto")

    block_indices = torch.div(slot_mapping, block_size, rounding_mode="floor").cpu().tolist()
    block_offsets = (slot_mapping % block_size).cpu().tolist()
    for i in range(num_tokens):
        cloned_key_cache[block_indices[i], block_offsets[i]] = key[i]
        cloned_value_cache[block_indices[i], block_offsets[i]] = value[i]
    assert torch.equal(key_cache, cloned_key_cache)
    assert torch.equal(value_cache, cloned_value_cache)
