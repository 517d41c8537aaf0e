"""Indices of the top k logits of each decoded token, over the length of its own sequence.

Call: ``torch.ops._C.top_k_per_row_decode(logits, next_n, seq_lens, indices, numRows, stride0, stride1, topK)``
Libraries: vllm, mcoplib

Arguments:
    logits: [batch_size * next_n, context_len], float32.
    next_n: int, tokens decoded at once for each sequence.
    seq_lens: [batch_size], int32; length of each sequence with its next_n tokens.
    indices: [batch_size * next_n, topK], int32; written, in any order within a row.
    numRows: int, batch_size * next_n.
    stride0, stride1: int, strides of logits in elements.
    topK: int.
Parameters:
    batch_size: 512, so that one call moves more than the L2 cache holds.
    next_n: 1 (2 with one speculated token).
    context_len: 131072 (DeepSeek-V3.2 at its full context), 32768 (another branch of the kernel).
    topk: 2048 (the sparse attention of DeepSeek-V3.2).
    dtype: float32, the only one there is.
Pitfalls:
    - Eight positional arguments, topK among them: older libraries took seven and a fixed k.
    - Row r ends at seq_lens[r // next_n] - next_n + r % next_n + 1, not at the sequence's length.
    - Logits behind the end are left over from other steps and may be the largest.
    - A row shorter than topK gets all its indices, then -1.
    - The order within a row is free; compare as sets, with ties.
"""  # noqa: E501

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401 - registers torch.ops._C
except ImportError:
    pass


def _ref_row_ends(seq_lens, next_n):
    """Number of logits that count in each row, [batch_size * next_n]."""
    before = seq_lens.to(torch.int64).repeat_interleave(next_n) - next_n
    offset = torch.arange(next_n, device=seq_lens.device).repeat(seq_lens.shape[0])
    return before + offset + 1


def _ref_short_rows(row_ends, topk):
    """What rows of at most topk logits hold once sorted: -1 first, then all indices."""
    position = torch.arange(topk, device=row_ends.device).unsqueeze(0)
    padding = topk - row_ends.unsqueeze(1)
    return torch.where(position < padding, -1, position - padding)


class Top_k_per_row_decode_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.batch_size = config.get("batch_size", 512)
        self.next_n = config.get("next_n", 1)
        self.context_len = config.get("context_len", 131072)
        self.topk = config.get("topk", 2048)

    def define_metrics(self, state):
        rows = self.batch_size * self.next_n
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary("Shape", f"({rows} {self.context_len} top {self.topk})")
        # Only the logits within each row's length are read.
        counted = int(_ref_row_ends(self.seq_lens, self.next_n).sum())
        state.add_element_count(counted)
        self.moves(
            state,
            read=(counted * self.logits.element_size(), self.seq_lens),
            written=(self.indices,),
        )

    def _prepare(self, dev_id, seed):
        device = self.device(dev_id)
        gen = self.generator(dev_id, seed)
        rows = self.batch_size * self.next_n
        logits = torch.randn(rows, self.context_len, dtype=self.dtype, device=device, generator=gen)
        seq_lens = torch.randint(
            self.context_len * 3 // 4,
            self.context_len + 1,
            (self.batch_size,),
            dtype=torch.int32,
            device=device,
            generator=gen,
        )
        indices = torch.empty(rows, self.topk, dtype=torch.int32, device=device)
        return logits, seq_lens, indices

    def _arguments(self, logits, seq_lens, indices):
        stride0, stride1 = logits.stride()
        rows = logits.shape[0]
        return logits, self.next_n, seq_lens, indices, rows, stride0, stride1, self.topk

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.logits, self.seq_lens, self.indices = self._prepare(dev_id, seed=42)
        return self.make_launcher(
            dev_id,
            torch.ops._C.top_k_per_row_decode,
            *self._arguments(self.logits, self.seq_lens, self.indices),
        )

    def _check(self, logits, seq_lens, indices):
        row_ends = _ref_row_ends(seq_lens, self.next_n)
        column = torch.arange(self.context_len, device=logits.device).unsqueeze(0)
        counts = column < row_ends.unsqueeze(1)
        # Below every logit, so that an index behind the end is never among the top k.
        scores = torch.where(counts, logits, logits.min() - 1.0)
        full = row_ends >= self.topk
        short = ~full
        if bool(full.any()):
            self.verify.topk(None, indices[full], scores[full], name="indices")
        if bool(short.any()):
            ordered = indices[short].sort(dim=-1).values
            expected = _ref_short_rows(row_ends[short], self.topk).to(indices.dtype)
            self.verify.exact(ordered, expected, name="indices of short rows")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        logits, seq_lens, indices = self._prepare(dev_id, seed=7)
        # One sequence shorter than topk; what lies behind every end is larger than all before it.
        seq_lens[0] = self.topk // 2 + self.next_n
        row_ends = _ref_row_ends(seq_lens, self.next_n)
        column = torch.arange(self.context_len, device=logits.device).unsqueeze(0)
        logits.masked_fill_(column >= row_ends.unsqueeze(1), 100.0)
        self.poison(indices)
        torch.ops._C.top_k_per_row_decode(*self._arguments(logits, seq_lens, indices))
        self.synchronize(dev_id)
        return self._check(logits, seq_lens, indices)

    def verify_timed(self, dev_id):
        return self._check(self.logits, self.seq_lens, self.indices)
