"""Rotates the queries and keys of a packed qkv tensor in place, its values stay (mcoplib.op).

Call: ``mcoplib.op.fused_rope_fwd(qkv, cos, sin, indexes, force_bf16_cal)``
Libraries: mcoplib

Arguments:
    qkv: [num_tokens, num_kv_heads, group + 2, head_size], float16 or bfloat16, changed in place;
        of each key-value head its group = num_heads / num_kv_heads queries, then key and value.
        # inferred
    cos: [max_position, head_size / 2], the dtype of qkv. # inferred
    sin: like cos. # inferred
    indexes: [num_tokens], int64, the row of cos and sin for each token. # inferred
    force_bf16_cal: false: computed in float32. # inferred
Parameters:
    num_heads: 64 (Llama-3 70B, Qwen3 32B).
    num_kv_heads: 8 (Llama-3 70B, Qwen3 32B).
    head_size: 128 (Llama-3 70B, Qwen3 32B).
    num_tokens: 8192, a prefill; 302 MB move.
    max_position: 8192, rows of cos and sin.
Pitfalls:
    - The arguments are inferred: compare with op/ and unit_test/ of mcoplib before measuring.
    - Element i goes with i + head_size / 2 (halves, not neighbours). # inferred
    - The values in the packed tensor must stay as they are, bit by bit.
    - qkv is changed in place: the reference needs a copy made before the call.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    from mcoplib import op
except ImportError:
    pass


def _ref_fused_rope_fwd(qkv, cos, sin, indexes):
    """qkv: [tokens, kv_heads, group + 2, head_size] after the call; in float32, then rounded."""
    half = qkv.shape[-1] // 2
    # [tokens, head_size / 2] -> [tokens, 1, 1, head_size / 2]
    token_cos = cos[indexes].to(torch.float32)[:, None, None, :]
    token_sin = sin[indexes].to(torch.float32)[:, None, None, :]
    rotated_part = qkv[:, :, :-1, :].to(torch.float32)
    first = rotated_part[..., :half]
    second = rotated_part[..., half:]
    first_cos = first * token_cos
    second_sin = second * token_sin
    second_cos = second * token_cos
    first_sin = first * token_sin
    rotated_first = first_cos - second_sin
    rotated_second = second_cos + first_sin
    expected = qkv.clone()
    expected[:, :, :-1, :half] = rotated_first.to(qkv.dtype)
    expected[:, :, :-1, half:] = rotated_second.to(qkv.dtype)
    return expected


class Fused_rope_fwd_runner(OpBenchmarkBase):
    threshold_reason = (
        "whether each product is rounded to bfloat16 before the sum depends on the version"
    )

    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 8192)
        self.num_heads = config.get("num_heads", 64)
        self.num_kv_heads = config.get("num_kv_heads", 8)
        self.head_size = config.get("head_size", 128)
        self.max_position = config.get("max_position", 8192)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary(
            "Shape",
            f"(T={self.num_tokens} H={self.num_heads} KV={self.num_kv_heads} D={self.head_size})",
        )
        heads = self.num_heads + self.num_kv_heads
        rotated = self.num_tokens * heads * self.head_size
        state.add_element_count(rotated)
        nbytes = rotated * self.dtype.itemsize
        # A row that several tokens have is read once; cosine and sine together fill head_size.
        angles = self.indexes.unique().numel() * self.head_size * self.dtype.itemsize
        self.moves(state, read=(nbytes, angles, self.indexes), written=(nbytes,))

    def _prepare(self, dev_id, seed, num_tokens):
        device = self.device(dev_id)
        gen = self.generator(dev_id, seed)
        make = {"dtype": self.dtype, "device": device, "generator": gen}
        group = self.num_heads // self.num_kv_heads
        qkv = torch.randn(num_tokens, self.num_kv_heads, group + 2, self.head_size, **make)
        exponent = torch.arange(0, self.head_size, 2, device=device) / self.head_size
        frequency = 10000.0**-exponent
        row = torch.arange(self.max_position, dtype=torch.float32, device=device)
        angle = torch.outer(row, frequency)
        indexes = torch.randint(0, self.max_position, (num_tokens,), device=device, generator=gen)
        return qkv, angle.cos().to(self.dtype), angle.sin().to(self.dtype), indexes

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            data = self._prepare(dev_id, 42, self.num_tokens)
            self.indexes = data[-1]
        return self.make_launcher(dev_id, op.fused_rope_fwd, *data, False)

    def run_verification(self, dev_id):
        qkv, cos, sin, indexes = self._prepare(dev_id, 7, min(self.num_tokens, 512))
        expected = _ref_fused_rope_fwd(qkv.clone(), cos, sin, indexes)
        op.fused_rope_fwd(qkv, cos, sin, indexes, False)
        self.synchronize(dev_id)
        threshold = 0.99999 if self.dtype is torch.bfloat16 else 0.999999
        self.verify.close(qkv, expected, name="qkv")
        self.verify.cosine(qkv, expected, threshold, name="qkv")
        self.verify.exact(qkv[:, :, -1], expected[:, :, -1], name="values")
        return self.verify.verdict()
