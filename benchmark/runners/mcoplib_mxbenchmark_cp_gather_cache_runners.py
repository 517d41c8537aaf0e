"""Gathers the cached entries of several sequences from their blocks into one packed tensor.

Call: ``torch.ops._C_cache_ops.cp_gather_cache(src_cache, dst, block_table, cu_seq_lens,
    batch_size, seq_starts)``
Libraries: vllm, mcoplib

Arguments:
    src_cache: [num_blocks, block_size, entry_size], any dtype of 1, 2 or 4 bytes.
    dst: [total_tokens, entry_size], the cache's dtype, written.
    block_table: [batch_size, max_blocks], int32; a sequence's blocks in order.
    cu_seq_lens: [batch_size + 1], int32; where each sequence starts in dst, the total last.
    batch_size: number of sequences.
    seq_starts: None: every sequence is gathered from its first token.
Parameters:
    entry_size: 576 (DeepSeek-V3: kv_lora_rank 512 + rope 64).
    batch_size: 64.
    seq_len: 1024; 151 MB move.
    block_size: 64, as vLLM has it for MLA.
Pitfalls:
    - seq_starts has no default in the schema: None is passed.
    - The last block of a sequence is used up to its length only; dst rows follow one another.
    - block_table and cu_seq_lens are int32; int64 is refused or misread.
    - Compared bit by bit, the rows of dst behind the last sequence too.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401
except ImportError:
    pass


def _ref_cp_gather_cache(src_cache, dst, block_table, lengths):
    """The destination as it should be after the call, one sequence and block at a time."""
    block_size = src_cache.shape[1]
    expected = dst.clone()
    row = 0
    for blocks, length in zip(block_table.tolist(), lengths, strict=True):
        for start in range(0, length, block_size):
            block = blocks[start // block_size]
            count = min(block_size, length - start)
            expected[row : row + count] = src_cache[block, :count]
            row += count
    return expected


class Cp_gather_cache_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.batch_size = config.get("batch_size", 64)
        self.seq_len = config.get("seq_len", 1024)
        self.block_size = config.get("block_size", 64)
        self.entry_size = config.get("entry_size", 576)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary(
            "Shape",
            f"(B={self.batch_size} L={self.seq_len} E={self.entry_size} block={self.block_size})",
        )
        state.add_element_count(self.dst.numel())
        # As many entries of the cache are read as dst has.
        self.moves(
            state,
            read=(self.dst, self.block_table, self.cu_seq_lens),
            written=(self.dst,),
        )

    def _prepare(self, dev_id, seed, lengths, spare_rows):
        """Cache, destination, table and offsets for sequences of ``lengths`` tokens."""
        device = self.device(dev_id)
        gen = self.generator(dev_id, seed)
        make = {"dtype": self.dtype, "device": device, "generator": gen}
        max_blocks = -(-max(lengths) // self.block_size)
        num_blocks = len(lengths) * max_blocks + 1
        src_cache = torch.randn(num_blocks, self.block_size, self.entry_size, **make)
        dst = torch.randn(sum(lengths) + spare_rows, self.entry_size, **make)
        blocks = torch.randperm(num_blocks, device=device, generator=gen)
        block_table = blocks[:-1].view(len(lengths), max_blocks).to(torch.int32)
        ends = torch.tensor([0, *lengths], device=device).cumsum(0)
        return src_cache, dst, block_table, ends.to(torch.int32)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        self.lengths = [self.seq_len] * self.batch_size
        with self.stream(tc_s):
            data = self._prepare(dev_id, 42, self.lengths, spare_rows=0)
            self.src_cache, self.dst, self.block_table, self.cu_seq_lens = data
        return self.make_launcher(
            dev_id, torch.ops._C_cache_ops.cp_gather_cache, *data, self.batch_size, None
        )

    def run_verification(self, dev_id):
        # Whatever comes, the longest, one token, a whole block; at the end one token more than a
        # block, so that copying whole blocks runs into the spare rows.
        longest = min(self.seq_len, 1024)
        host = torch.Generator().manual_seed(8)
        others = torch.randint(1, longest + 1, (5,), generator=host).tolist()
        edges = [longest, 1, self.block_size, self.block_size + 1]
        lengths = [min(length, longest) for length in others + edges]
        data = self._prepare(dev_id, 7, lengths, spare_rows=self.block_size)
        src_cache, dst, block_table, cu_seq_lens = data
        self.poison(dst[: sum(lengths)])
        expected = _ref_cp_gather_cache(src_cache, dst, block_table, lengths)
        torch.ops._C_cache_ops.cp_gather_cache(
            src_cache, dst, block_table, cu_seq_lens, len(lengths), None
        )
        self.synchronize(dev_id)
        self.verify.exact(dst, expected, name="dst")
        return self.verify.verdict()

    def verify_timed(self, dev_id):
        expected = _ref_cp_gather_cache(
            self.src_cache, self.dst, self.block_table[:4], self.lengths[:4]
        )
        self.verify.exact(self.dst, expected, name="timed dst")
        return self.verify.verdict()
