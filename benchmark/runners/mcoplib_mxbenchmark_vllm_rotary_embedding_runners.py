"""Rotates queries and keys by the angles of their positions, in place (vLLM).

Call: ``torch.ops._C.rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox)``
Libraries: vllm, mcoplib

Arguments:
    positions: [num_tokens], int64.
    query: [num_tokens, num_heads * head_size], float16, bfloat16 or float32; rotated in place.
    key: [num_tokens, num_kv_heads * head_size], the query's dtype; rotated in place.
    head_size: of query and key.
    cos_sin_cache: [max_position, rotary_dim], the query's dtype.
    is_neox: which elements are a pair; newer vllm has rope_dim_offset and inverse after it, with
        defaults.
Parameters:
    num_heads: 64 (Llama-3 70B, Qwen3 32B).
    num_kv_heads: 8 (Llama-3 70B, Qwen3 32B).
    head_size: 128 (Llama-3 70B, Qwen3 32B).
    rotary_dim: 128, the whole head.
    num_tokens: 8192, a prefill; 302 MB move.
    max_position: 8192, rows of cos_sin_cache.
    is_neox: true (Llama-3, Qwen3: halves), false (DeepSeek-V3: pairs).
Pitfalls:
    - cos_sin_cache has the query's dtype; another one is misread or refused.
    - A row holds the cosines first, the sines after them, each for rotary_dim / 2 angles.
    - is_neox pairs element i with i + rotary_dim / 2, without it 2 i goes with 2 i + 1.
    - Query and key are changed in place: the reference needs copies made before the call.
    - Newer vllm rounds once, older vllm and mcoplib each product: in bfloat16 they differ.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401
except ImportError:
    pass


def _ref_rotate(x, cos, sin, is_neox):
    """x: [tokens, heads, head_size]; cos, sin: [tokens, rotary_dim / 2]; in float32, then rounded.

    Elements behind rotary_dim stay as they are.
    """
    half = cos.shape[-1]
    rotary_dim = 2 * half
    wide = x.to(torch.float32)
    wide_cos = cos.to(torch.float32).unsqueeze(1)
    wide_sin = sin.to(torch.float32).unsqueeze(1)
    first_part = slice(0, half) if is_neox else slice(0, rotary_dim, 2)
    second_part = slice(half, rotary_dim) if is_neox else slice(1, rotary_dim, 2)
    first = wide[..., first_part]
    second = wide[..., second_part]
    first_cos = first * wide_cos
    second_sin = second * wide_sin
    second_cos = second * wide_cos
    first_sin = first * wide_sin
    rotated = wide.clone()
    rotated[..., first_part] = first_cos - second_sin
    rotated[..., second_part] = second_cos + first_sin
    return rotated.to(x.dtype)


def _ref_rotary_embedding(positions, x, head_size, cos_sin_cache, is_neox):
    """x: [tokens, heads * head_size], rotated by the angles of each token's position."""
    rows = cos_sin_cache[positions]
    cos, sin = rows.chunk(2, dim=-1)
    heads = x.view(x.shape[0], -1, head_size)
    rotated = _ref_rotate(heads, cos, sin, is_neox)
    return rotated.view_as(x)


class Vllm_rotary_embedding_runner(OpBenchmarkBase):
    threshold_reason = (
        "mcoplib and older vllm round each product to bfloat16, newer vllm only the sum"
    )

    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 8192)
        self.num_heads = config.get("num_heads", 64)
        self.num_kv_heads = config.get("num_kv_heads", 8)
        self.head_size = config.get("head_size", 128)
        self.rotary_dim = config.get("rotary_dim", 128)
        self.max_position = config.get("max_position", 8192)
        self.is_neox = config.get("is_neox", True)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        style = "halves" if self.is_neox else "pairs"
        state.add_summary(
            "Shape",
            f"(T={self.num_tokens} H={self.num_heads} KV={self.num_kv_heads} "
            f"D={self.head_size} rot={self.rotary_dim} {style})",
        )
        heads = self.num_heads + self.num_kv_heads
        rotated = self.num_tokens * heads * self.rotary_dim
        state.add_element_count(rotated)
        nbytes = rotated * self.dtype.itemsize
        # A position that several tokens have is one row of the cache.
        rows = self.positions.unique().numel()
        angles = rows * self.rotary_dim * self.dtype.itemsize
        self.moves(state, read=(nbytes, angles, self.positions), written=(nbytes,))

    def _prepare(self, dev_id, seed, num_tokens):
        device = self.device(dev_id)
        gen = self.generator(dev_id, seed)
        make = {"dtype": self.dtype, "device": device, "generator": gen}
        positions = torch.randint(0, self.max_position, (num_tokens,), device=device, generator=gen)
        query = torch.randn(num_tokens, self.num_heads * self.head_size, **make)
        key = torch.randn(num_tokens, self.num_kv_heads * self.head_size, **make)
        exponent = torch.arange(0, self.rotary_dim, 2, device=device) / self.rotary_dim
        frequency = 10000.0**-exponent
        row = torch.arange(self.max_position, dtype=torch.float32, device=device)
        angle = torch.outer(row, frequency)
        cos_sin_cache = torch.cat((angle.cos(), angle.sin()), dim=-1).to(self.dtype)
        return positions, query, key, cos_sin_cache

    def _arguments(self, positions, query, key, cos_sin_cache):
        return positions, query, key, self.head_size, cos_sin_cache, self.is_neox

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            data = self._prepare(dev_id, 42, self.num_tokens)
            self.positions = data[0]
        return self.make_launcher(dev_id, torch.ops._C.rotary_embedding, *self._arguments(*data))

    def run_verification(self, dev_id):
        data = self._prepare(dev_id, 7, min(self.num_tokens, 512))
        positions, query, key, cos_sin_cache = data
        angles = (self.head_size, cos_sin_cache, self.is_neox)
        expected_query = _ref_rotary_embedding(positions, query.clone(), *angles)
        expected_key = _ref_rotary_embedding(positions, key.clone(), *angles)
        torch.ops._C.rotary_embedding(*self._arguments(*data))
        self.synchronize(dev_id)
        threshold = 0.99999 if self.dtype is torch.bfloat16 else 0.999999
        for name, out, expected in (
            ("query", query, expected_query),
            ("key", key, expected_key),
        ):
            self.verify.close(out, expected, name=name)
            self.verify.cosine(out, expected, threshold, name=name)
        return self.verify.verdict()
