"""Attention of one new token a sequence over its keys and values in the paged cache.

Call: ``torch.ops._C.paged_attention_v1(out, query, key_cache, value_cache, num_kv_heads, scale,
    block_tables, seq_lens, block_size, max_seq_len, alibi_slopes, kv_cache_dtype, k_scale,
    v_scale, tp_rank, blocksparse_local_blocks, blocksparse_vert_stride, blocksparse_block_size,
    blocksparse_head_sliding_step)``
Libraries: vllm, mcoplib

Arguments:
    out: [num_seqs, num_heads, head_size], written.
    query: [num_seqs, num_heads, head_size], float16, bfloat16 or float32.
    key_cache: [num_blocks, num_kv_heads, head_size / x, block_size, x]; x = 16 bytes.
    value_cache: [num_blocks, num_kv_heads, head_size, block_size].
    num_kv_heads: query heads are served by num_kv_heads in groups of num_heads / num_kv_heads.
    scale: factor of the scores, 1 / sqrt(head_size).
    block_tables: [num_seqs, max_blocks], int32; a sequence's blocks in order.
    seq_lens: [num_seqs], int32; cached tokens of each sequence.
    block_size: 8, 16 or 32.
    max_seq_len: the largest of seq_lens.
    alibi_slopes: None.
    kv_cache_dtype: "auto": the cache holds the query's dtype.
    k_scale: [1], float32; used by quantised caches only.
    v_scale: [1], float32; used by quantised caches only.
    tp_rank: 0, and with it blocksparse_local_blocks 0, blocksparse_vert_stride 0,
        blocksparse_block_size 64, blocksparse_head_sliding_step 0: no block-sparse attention.
Parameters:
    num_heads: 64 (Llama-3 70B, Qwen3 32B).
    num_kv_heads: 8 (Llama-3 70B, Qwen3 32B).
    head_size: 128 (Llama-3 70B, Qwen3 32B).
    num_seqs: 64.
    seq_len: 1024; 268 MB of cache are read.
    block_size: 16.
Pitfalls:
    - value_cache has the slot last: value_cache[block, head, :, offset] is one token's value.
    - Keys are split in groups of x: key_cache[block, head, :, offset, :] is one token's key.
    - Slots of the last block behind the sequence's end hold other data and must not count.
    - One thread block holds all scores of a head in shared memory: long sequences are for v2.
    - Probabilities and their products with values are rounded to the query's dtype.
"""

import math

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401
except ImportError:
    pass


def _cached(key_cache, value_cache, block_table, seq_len):
    """Keys and values [seq_len, num_kv_heads, head_size] of one sequence, walked block by block."""
    num_kv_heads, head_size, block_size = value_cache.shape[1:]
    keys = []
    values = []
    for block in block_table.tolist()[: -(-seq_len // block_size)]:
        # [heads, head_size / x, block_size, x] -> [block_size, heads, head_size]
        split_keys = key_cache[block].permute(2, 0, 1, 3)
        keys.append(split_keys.reshape(block_size, num_kv_heads, head_size))
        # [heads, head_size, block_size] -> [block_size, heads, head_size]
        values.append(value_cache[block].permute(2, 0, 1))
    return torch.cat(keys)[:seq_len], torch.cat(values)[:seq_len]


def _ref_single_query(query, keys, values, scale):
    """query: [num_heads, head_size] over all keys and values, computed in float64."""
    num_heads, head_size = query.shape
    num_kv_heads = keys.shape[1]
    grouped = query.to(torch.float64).view(num_kv_heads, num_heads // num_kv_heads, head_size)
    keys_of_head = keys.to(torch.float64).permute(1, 2, 0)
    values_of_head = values.to(torch.float64).permute(1, 0, 2)
    scores = torch.matmul(grouped, keys_of_head)
    scaled = scores * scale
    largest = scaled.amax(dim=-1, keepdim=True)
    weights = torch.exp(scaled - largest)
    total = weights.sum(dim=-1, keepdim=True)
    probabilities = weights / total
    mixed = torch.matmul(probabilities, values_of_head)
    return mixed.reshape(num_heads, head_size).to(query.dtype)


def _ref_paged_attention(query, key_cache, value_cache, scale, block_tables, seq_lens):
    """One query of each sequence over its cached blocks: [num_seqs, num_heads, head_size]."""
    rows = []
    for sequence, seq_len in enumerate(seq_lens.tolist()):
        table = block_tables[sequence]
        keys, values = _cached(key_cache, value_cache, table, seq_len)
        rows.append(_ref_single_query(query[sequence], keys, values, scale))
    return torch.stack(rows)


class Paged_attention_v1_runner(OpBenchmarkBase):
    threshold_reason = "bfloat16 products of probabilities and values are rounded before the sum"

    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_seqs = config.get("num_seqs", 64)
        self.seq_len = config.get("seq_len", 1024)
        self.num_heads = config.get("num_heads", 64)
        self.num_kv_heads = config.get("num_kv_heads", 8)
        self.head_size = config.get("head_size", 128)
        self.block_size = config.get("block_size", 16)
        self.scale = 1.0 / math.sqrt(self.head_size)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary(
            "Shape",
            f"(B={self.num_seqs} L={self.seq_len} H={self.num_heads} KV={self.num_kv_heads} "
            f"D={self.head_size} block={self.block_size})",
        )
        state.add_element_count(self.query.numel())
        # Every block in a table once, whichever query heads share it.
        blocks = self.block_tables.numel()
        per_block = self.key_cache[0].numel() + self.value_cache[0].numel()
        cached = blocks * per_block * self.key_cache.element_size()
        self.moves(
            state,
            read=(cached, self.query, self.block_tables, self.seq_lens),
            written=(self.out,),
        )

    def flops(self):
        # A score and a weighted value: one multiplication and one addition an element each.
        return 4 * self.num_seqs * self.num_heads * self.seq_len * self.head_size

    def _prepare(self, dev_id, seed, lengths):
        """Query, caches, tables and lengths for sequences of ``lengths`` cached tokens."""
        device = self.device(dev_id)
        gen = self.generator(dev_id, seed)
        make = {"dtype": self.dtype, "device": device, "generator": gen}
        width = 16 // self.dtype.itemsize
        groups = self.head_size // width
        heads = self.num_kv_heads
        max_blocks = -(-max(lengths) // self.block_size)
        num_blocks = len(lengths) * max_blocks
        query = torch.randn(len(lengths), self.num_heads, self.head_size, **make)
        key_cache = torch.randn(num_blocks, heads, groups, self.block_size, width, **make)
        value_cache = torch.randn(num_blocks, heads, self.head_size, self.block_size, **make)
        blocks = torch.randperm(num_blocks, device=device, generator=gen)
        block_tables = blocks.view(len(lengths), max_blocks).to(torch.int32)
        seq_lens = torch.tensor(lengths, dtype=torch.int32, device=device)
        return query, key_cache, value_cache, block_tables, seq_lens

    def _arguments(self, out, query, key_cache, value_cache, block_tables, seq_lens):
        one = torch.ones(1, dtype=torch.float32, device=out.device)
        longest = int(seq_lens.max())
        heads = self.num_kv_heads
        return (
            *(out, query, key_cache, value_cache, heads, self.scale, block_tables, seq_lens),
            *(self.block_size, longest, None, "auto", one, one, 0, 0, 0, 64, 0),
        )

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            data = self._prepare(dev_id, 42, [self.seq_len] * self.num_seqs)
            self.query, self.key_cache, self.value_cache, self.block_tables, self.seq_lens = data
            self.out = torch.empty_like(self.query)
            arguments = self._arguments(self.out, *data)
        return self.make_launcher(dev_id, torch.ops._C.paged_attention_v1, *arguments)

    def run_verification(self, dev_id):
        # One token, a whole block, one more, the longest, and whatever comes.
        edges = [1, self.block_size, self.block_size + 1, self.seq_len]
        host = torch.Generator().manual_seed(8)
        others = torch.randint(1, self.seq_len + 1, (4,), generator=host).tolist()
        lengths = [min(length, self.seq_len) for length in edges + others]
        data = self._prepare(dev_id, 7, lengths)
        out = torch.empty_like(data[0])
        self.poison(out)
        torch.ops._C.paged_attention_v1(*self._arguments(out, *data))
        self.synchronize(dev_id)
        self._compare(out, self._expected(*data), "out")
        return self.verify.verdict()

    def _expected(self, query, key_cache, value_cache, block_tables, seq_lens):
        return _ref_paged_attention(
            query, key_cache, value_cache, self.scale, block_tables, seq_lens
        )

    def _compare(self, out, expected, name):
        self.verify.close(out, expected, name=name)
        threshold = 0.99998 if self.dtype is torch.bfloat16 else 0.999999
        self.verify.cosine(out, expected, threshold, name=name)

    def verify_timed(self, dev_id):
        part = slice(0, 2)
        expected = self._expected(
            self.query[part],
            self.key_cache,
            self.value_cache,
            self.block_tables[part],
            self.seq_lens[part],
        )
        self._compare(self.out[part], expected, "timed out")
        return self.verify.verdict()
