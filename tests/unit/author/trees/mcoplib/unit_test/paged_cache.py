"""Paged key-value caches for the tests of attention."""
import torch


def create_kv_caches_with_random(num_blocks, block_size, num_kv_heads, head_size, dtype, seed=None, device="cuda"):
    if seed is not None:
        torch.manual_seed(seed)
    scale = head_size**-0.5
    x = 16 // torch.tensor([], dtype=dtype).element_size()
    key_cache_shape = (num_blocks, num_kv_heads, head_size // x, block_size, x)
    key_cache = torch.empty(size=key_cache_shape, dtype=dtype, device=device)
    key_cache.uniform_(-scale, scale)
    value_cache_shape = (num_blocks, num_kv_heads, head_size, block_size)
    value_cache = torch.empty(size=value_cache_shape, dtype=dtype, device=device)
    value_cache.uniform_(-scale, scale)
    return key_cache, value_cache
