"""Scaled dot-product attention as torch has it, optionally causal."""

import math

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase


def _ref_sdpa(query, key, value, causal):
    """query, key, value: [batch, heads, seq_len, head_size]; computed in float64."""
    wide_query = query.to(torch.float64)
    wide_key = key.to(torch.float64)
    wide_value = value.to(torch.float64)
    scores = torch.matmul(wide_query, wide_key.transpose(-2, -1))
    scaled = scores / math.sqrt(query.shape[-1])
    if causal:
        seq_len = query.shape[-2]
        visible = torch.ones(seq_len, seq_len, dtype=torch.bool, device=query.device).tril()
        scaled = scaled.masked_fill(~visible, -math.inf)
    row_max = scaled.amax(dim=-1, keepdim=True)
    weights = torch.exp(scaled - row_max)
    total = weights.sum(dim=-1, keepdim=True)
    probabilities = weights / total
    mixed = torch.matmul(probabilities, wide_value)
    return mixed.to(query.dtype)


class Torch_sdpa_runner(OpBenchmarkBase):
    library = "torch"
    threshold_reason = (
        "fused kernels round the probabilities to the input's dtype before the second product"
    )

    def __init__(self, name, config):
        super().__init__(name, config)
        self.batch_size = config.get("batch_size", 1)
        self.num_heads = config.get("num_heads", 8)
        self.seq_len = config.get("seq_len", 256)
        self.head_size = config.get("head_size", 64)
        self.causal = config.get("causal", True)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        kind = "causal" if self.causal else "full"
        state.add_summary(
            "Shape",
            f"(B={self.batch_size} H={self.num_heads} L={self.seq_len} D={self.head_size} {kind})",
        )
        nbytes = self.query.numel() * self.query.element_size()
        state.add_element_count(self.query.numel())
        state.add_global_memory_reads(3 * nbytes)
        state.add_global_memory_writes(nbytes)

    def flops(self):
        # Two products of seq_len x seq_len x head_size a head; a causal mask needs the pairs
        # of a query with itself and what lies before it.
        pairs = self.seq_len * self.seq_len
        if self.causal:
            pairs = self.seq_len * (self.seq_len + 1) // 2
        return 4 * self.batch_size * self.num_heads * pairs * self.head_size

    def _prepare(self, dev_id, seed):
        gen = self.generator(dev_id, seed)
        shape = (self.batch_size, self.num_heads, self.seq_len, self.head_size)
        make = {"dtype": self.dtype, "device": self.device(dev_id), "generator": gen}
        query = torch.randn(shape, **make)
        key = torch.randn(shape, **make)
        value = torch.randn(shape, **make)
        return query, key, value

    def _call(self, query, key, value):
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=self.causal
        )

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.query, self.key, self.value = self._prepare(dev_id, seed=42)
        return self.make_launcher(dev_id, self._call, self.query, self.key, self.value)

    def run_verification(self, dev_id):
        query, key, value = self._prepare(dev_id, seed=7)
        out = self._call(query, key, value)
        self.synchronize(dev_id)
        threshold = 0.999999 if self.dtype is torch.float32 else 0.99999
        return self.check_diff(out, _ref_sdpa(query, key, value, self.causal), threshold=threshold)
