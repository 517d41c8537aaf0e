"""Copies whole blocks within the key and value caches of several layers in one call.

Call: ``torch.ops._C_cache_ops.copy_blocks(key_caches, value_caches, block_mapping)``
Libraries: mcoplib, older vllm

Arguments:
    key_caches: a list, one a layer, of [num_blocks, num_kv_heads, head_size / x, block_size, x],
        written; x = 16 bytes.
    value_caches: a list, one a layer, of [num_blocks, num_kv_heads, head_size, block_size],
        written.
    block_mapping: [num_pairs, 2], int64, on the device; source block, destination block.
Parameters:
    num_kv_heads: 8 (Llama-3 70B, Qwen3 32B).
    head_size: 128 (Llama-3 70B, Qwen3 32B).
    num_layers: 4, a part of a model's layers.
    num_pairs: 512; 268 MB move.
    num_blocks: 2048.
    block_size: 16, as vLLM has it.
Pitfalls:
    - vllm 0.22 has no such operator any more; it is UNAVAILABLE there.
    - The kernel takes the layers' addresses from a table: layers must have one shape and dtype.
    - A block may be the source of several pairs, but the destination of one only, and no block is
      both: the pairs are copied in any order.
    - Compared bit by bit, the blocks that no pair names too.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401
except ImportError:
    pass


def _ref_copy_blocks(caches, block_mapping):
    """The caches as they should be after the call, one pair at a time."""
    expected = [cache.clone() for cache in caches]
    for source, destination in block_mapping.tolist():
        for before, after in zip(caches, expected, strict=True):
            after[destination] = before[source]
    return expected


class Copy_blocks_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_layers = config.get("num_layers", 4)
        self.num_pairs = config.get("num_pairs", 512)
        self.num_blocks = config.get("num_blocks", 2048)
        self.num_kv_heads = config.get("num_kv_heads", 8)
        self.head_size = config.get("head_size", 128)
        self.block_size = config.get("block_size", 16)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary(
            "Shape",
            f"(layers={self.num_layers} pairs={self.num_pairs} KV={self.num_kv_heads} "
            f"D={self.head_size} block={self.block_size})",
        )
        per_pair = sum(cache[0].numel() for cache in self.key_caches + self.value_caches)
        copied = self.num_pairs * per_pair
        state.add_element_count(copied)
        nbytes = copied * self.dtype.itemsize
        self.moves(state, read=(nbytes, self.block_mapping), written=(nbytes,))

    def _prepare(self, dev_id, seed, num_pairs, num_blocks):
        device = self.device(dev_id)
        gen = self.generator(dev_id, seed)
        make = {"dtype": self.dtype, "device": device, "generator": gen}
        width = 16 // self.dtype.itemsize
        heads = self.num_kv_heads
        key_shape = (num_blocks, heads, self.head_size // width, self.block_size, width)
        value_shape = (num_blocks, heads, self.head_size, self.block_size)
        key_caches = [torch.randn(key_shape, **make) for _ in range(self.num_layers)]
        value_caches = [torch.randn(value_shape, **make) for _ in range(self.num_layers)]
        # Sources and destinations share no block.
        blocks = torch.randperm(num_blocks, device=device, generator=gen)
        block_mapping = blocks[: 2 * num_pairs].view(2, num_pairs).t().contiguous()
        return key_caches, value_caches, block_mapping

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            data = self._prepare(dev_id, 42, self.num_pairs, self.num_blocks)
            self.key_caches, self.value_caches, self.block_mapping = data
            sources = self.block_mapping[:, 0]
            self.keys_before = [cache[sources] for cache in self.key_caches]
            self.values_before = [cache[sources] for cache in self.value_caches]
        return self.make_launcher(dev_id, torch.ops._C_cache_ops.copy_blocks, *data)

    def run_verification(self, dev_id):
        num_pairs = min(self.num_pairs, 32)
        num_blocks = min(self.num_blocks, 128)
        data = self._prepare(dev_id, 7, num_pairs, num_blocks)
        key_caches, value_caches, block_mapping = data
        # Two sequences may go on from the same block.
        block_mapping[-1, 0] = block_mapping[0, 0]
        expected_keys = _ref_copy_blocks(key_caches, block_mapping)
        expected_values = _ref_copy_blocks(value_caches, block_mapping)
        torch.ops._C_cache_ops.copy_blocks(key_caches, value_caches, block_mapping)
        self.synchronize(dev_id)
        for layer in range(self.num_layers):
            self.verify.exact(key_caches[layer], expected_keys[layer], name=f"keys {layer}")
            self.verify.exact(value_caches[layer], expected_values[layer], name=f"values {layer}")
        return self.verify.verdict()

    def verify_timed(self, dev_id):
        copies = self.block_mapping[:, 1]
        for layer in range(self.num_layers):
            keys = self.key_caches[layer][copies]
            values = self.value_caches[layer][copies]
            self.verify.exact(keys, self.keys_before[layer], name=f"timed keys {layer}")
            self.verify.exact(values, self.values_before[layer], name=f"timed values {layer}")
        return self.verify.verdict()
