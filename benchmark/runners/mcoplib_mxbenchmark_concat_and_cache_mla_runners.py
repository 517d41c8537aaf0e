"""Writes compressed key-values and rotary keys of new tokens side by side into the MLA cache.

Call: ``torch.ops._C_cache_ops.concat_and_cache_mla(kv_c, k_pe, kv_cache, slot_mapping,
    kv_cache_dtype, scale)``
Libraries: vllm, mcoplib

Arguments:
    kv_c: [num_tokens or more, kv_lora_rank], float16, bfloat16 or float32.
    k_pe: [num_tokens or more, rope_dim], the dtype of kv_c.
    kv_cache: [num_blocks, block_size, kv_lora_rank + rope_dim], written.
    slot_mapping: [num_tokens], int64; block * block_size + offset, -1 for padding.
    kv_cache_dtype: "auto": the cache holds the dtype of kv_c.
    scale: [1], float32; used by quantised caches only.
Parameters:
    kv_lora_rank: 512 (DeepSeek-V3).
    rope_dim: 64 (DeepSeek-V3).
    num_tokens: 65536, a large prefill; 151 MB move.
    num_blocks: 2048, more than the tokens fill.
    block_size: 64, as vLLM has it for MLA.
Pitfalls:
    - kv_c comes first in an entry, k_pe after it.
    - A token with slot -1 is written nowhere; every other slot of the cache keeps its value.
    - slot_mapping decides how many tokens there are: kv_c and k_pe may be padded beyond it.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401
except ImportError:
    pass


def _ref_concat_and_cache_mla(kv_c, k_pe, kv_cache, slot_mapping):
    """The cache as it should be after the call, one token at a time."""
    block_size = kv_cache.shape[1]
    rank = kv_c.shape[1]
    cache = kv_cache.clone()
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot < 0:
            continue
        block = slot // block_size
        offset = slot % block_size
        cache[block, offset, :rank] = kv_c[token]
        cache[block, offset, rank:] = k_pe[token]
    return cache


class Concat_and_cache_mla_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 65536)
        self.kv_lora_rank = config.get("kv_lora_rank", 512)
        self.rope_dim = config.get("rope_dim", 64)
        self.num_blocks = config.get("num_blocks", 2048)
        self.block_size = config.get("block_size", 64)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary(
            "Shape",
            f"(T={self.num_tokens} rank={self.kv_lora_rank} rope={self.rope_dim} "
            f"block={self.block_size})",
        )
        state.add_element_count(self.kv_c.numel() + self.k_pe.numel())
        # As many bytes of the cache are written as kv_c and k_pe have.
        self.moves(
            state,
            read=(self.kv_c, self.k_pe, self.slot_mapping),
            written=(self.kv_c, self.k_pe),
        )

    def _prepare(self, dev_id, seed, num_tokens, num_blocks):
        gen = self.generator(dev_id, seed)
        make = {"dtype": self.dtype, "device": self.device(dev_id), "generator": gen}
        kv_c = torch.randn(num_tokens, self.kv_lora_rank, **make)
        k_pe = torch.randn(num_tokens, self.rope_dim, **make)
        entry = self.kv_lora_rank + self.rope_dim
        kv_cache = torch.randn(num_blocks, self.block_size, entry, **make)
        return kv_c, k_pe, kv_cache

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            device = self.device(dev_id)
            data = self._prepare(dev_id, 42, self.num_tokens, self.num_blocks)
            self.kv_c, self.k_pe, self.kv_cache = data
            # Whole blocks in any order, filled slot by slot: so does a prefill.
            gen = self.generator(dev_id, 43)
            blocks = torch.randperm(self.num_blocks, device=device, generator=gen)
            token = torch.arange(self.num_tokens, device=device)
            block = blocks[token // self.block_size]
            self.slot_mapping = block * self.block_size + token % self.block_size
            scale = torch.ones(1, dtype=torch.float32, device=device)
        return self.make_launcher(
            dev_id,
            torch.ops._C_cache_ops.concat_and_cache_mla,
            self.kv_c,
            self.k_pe,
            self.kv_cache,
            self.slot_mapping,
            "auto",
            scale,
        )

    def run_verification(self, dev_id):
        num_tokens = min(self.num_tokens, 512)
        num_blocks = min(self.num_blocks, 64 + num_tokens // self.block_size)
        # The last tokens are padding that slot_mapping does not name at all.
        kv_c, k_pe, kv_cache = self._prepare(dev_id, 7, num_tokens + 3, num_blocks)
        gen = self.generator(dev_id, 8)
        slots = torch.randperm(num_blocks * self.block_size, device=kv_c.device, generator=gen)
        slot_mapping = slots[:num_tokens]
        slot_mapping[::5] = -1
        expected = _ref_concat_and_cache_mla(kv_c, k_pe, kv_cache, slot_mapping)
        scale = torch.ones(1, dtype=torch.float32, device=kv_c.device)
        torch.ops._C_cache_ops.concat_and_cache_mla(
            kv_c, k_pe, kv_cache, slot_mapping, "auto", scale
        )
        self.synchronize(dev_id)
        self.verify.exact(kv_cache, expected, name="kv_cache")
        return self.verify.verdict()

    def verify_timed(self, dev_id):
        block = self.slot_mapping // self.block_size
        offset = self.slot_mapping % self.block_size
        written = self.kv_cache[block, offset]
        self.verify.exact(written[:, : self.kv_lora_rank], self.kv_c, name="timed kv_c")
        self.verify.exact(written[:, self.kv_lora_rank :], self.k_pe, name="timed k_pe")
        return self.verify.verdict()
