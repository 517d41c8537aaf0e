"""Writes the keys and values of new tokens into the paged cache in flash attention's layout.

Call: ``torch.ops._C_cache_ops.reshape_and_cache_flash(key, value, key_cache, value_cache,
    slot_mapping, kv_cache_dtype, k_scale, v_scale)``
Libraries: vllm, mcoplib

Arguments:
    key: [num_tokens or more, num_kv_heads, head_size], float16, bfloat16 or float32.
    value: [num_tokens or more, num_kv_heads, head_size], the key's dtype.
    key_cache: [num_blocks, block_size, num_kv_heads, head_size], written.
    value_cache: [num_blocks, block_size, num_kv_heads, head_size], written.
    slot_mapping: [num_tokens], int64; block * block_size + offset, -1 for padding.
    kv_cache_dtype: "auto": the cache holds the key's dtype.
    k_scale: [1], float32; used by quantised caches only.
    v_scale: [1], float32; used by quantised caches only.
Parameters:
    num_kv_heads: 8 (Llama-3 70B, Qwen3 32B).
    head_size: 128 (Llama-3 70B, Qwen3 32B).
    num_tokens: 16384, a prefill; 134 MB move.
    num_blocks: 2048, more than the tokens fill.
    block_size: 16, as vLLM has it.
Pitfalls:
    - slot_mapping decides how many tokens there are: key and value may be padded beyond it.
    - A token with slot -1 is written nowhere; every other slot of the cache keeps its value.
    - Compared bit by bit: cosine similarity does not see values in a wrong place.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401
except ImportError:
    pass


def _ref_reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping):
    """Both caches as they should be after the call, one token at a time."""
    block_size = key_cache.shape[1]
    keys = key_cache.clone()
    values = value_cache.clone()
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot < 0:
            continue
        block = slot // block_size
        offset = slot % block_size
        keys[block, offset] = key[token]
        values[block, offset] = value[token]
    return keys, values


class Reshape_and_cache_flash_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 16384)
        self.num_kv_heads = config.get("num_kv_heads", 8)
        self.head_size = config.get("head_size", 128)
        self.num_blocks = config.get("num_blocks", 2048)
        self.block_size = config.get("block_size", 16)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary(
            "Shape",
            f"(T={self.num_tokens} KV={self.num_kv_heads} D={self.head_size} "
            f"block={self.block_size})",
        )
        state.add_element_count(self.key.numel() + self.value.numel())
        # As many bytes of the caches are written as there are keys and values.
        self.moves(
            state,
            read=(self.key, self.value, self.slot_mapping),
            written=(self.key, self.value),
        )

    def _prepare(self, dev_id, seed, num_tokens, num_blocks):
        gen = self.generator(dev_id, seed)
        make = {"dtype": self.dtype, "device": self.device(dev_id), "generator": gen}
        entry = (self.num_kv_heads, self.head_size)
        key = torch.randn(num_tokens, *entry, **make)
        value = torch.randn(num_tokens, *entry, **make)
        key_cache = torch.randn(num_blocks, self.block_size, *entry, **make)
        value_cache = torch.randn(num_blocks, self.block_size, *entry, **make)
        return key, value, key_cache, value_cache

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            device = self.device(dev_id)
            data = self._prepare(dev_id, 42, self.num_tokens, self.num_blocks)
            self.key, self.value, self.key_cache, self.value_cache = data
            # Whole blocks in any order, filled slot by slot: so does a prefill.
            gen = self.generator(dev_id, 43)
            blocks = torch.randperm(self.num_blocks, device=device, generator=gen)
            token = torch.arange(self.num_tokens, device=device)
            block = blocks[token // self.block_size]
            self.slot_mapping = block * self.block_size + token % self.block_size
            scale = torch.ones(1, dtype=torch.float32, device=device)
        return self.make_launcher(
            dev_id,
            torch.ops._C_cache_ops.reshape_and_cache_flash,
            self.key,
            self.value,
            self.key_cache,
            self.value_cache,
            self.slot_mapping,
            "auto",
            scale,
            scale,
        )

    def run_verification(self, dev_id):
        num_tokens = min(self.num_tokens, 512)
        num_blocks = min(self.num_blocks, 64 + num_tokens // self.block_size)
        # The last tokens are padding that slot_mapping does not name at all.
        padded = num_tokens + 3
        key, value, key_cache, value_cache = self._prepare(dev_id, 7, padded, num_blocks)
        gen = self.generator(dev_id, 8)
        slots = torch.randperm(num_blocks * self.block_size, device=key.device, generator=gen)
        slot_mapping = slots[:num_tokens]
        slot_mapping[::5] = -1
        expected = _ref_reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping)
        scale = torch.ones(1, dtype=torch.float32, device=key.device)
        torch.ops._C_cache_ops.reshape_and_cache_flash(
            key, value, key_cache, value_cache, slot_mapping, "auto", scale, scale
        )
        self.synchronize(dev_id)
        self.verify.exact(key_cache, expected[0], name="key_cache")
        self.verify.exact(value_cache, expected[1], name="value_cache")
        return self.verify.verdict()

    def verify_timed(self, dev_id):
        block = self.slot_mapping // self.block_size
        offset = self.slot_mapping % self.block_size
        self.verify.exact(self.key_cache[block, offset], self.key, name="timed key_cache")
        self.verify.exact(self.value_cache[block, offset], self.value, name="timed value_cache")
        return self.verify.verdict()
