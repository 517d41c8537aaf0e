"""RMS normalisation times a weight, quantised to float8_e4m3fn with one given scale.

Call: ``torch.ops._C.rms_norm_static_fp8_quant(result, input, weight, scale, epsilon)``
Libraries: vllm, mcoplib

Arguments:
    result: [num_tokens, hidden_size], float8_e4m3fn; written.
    input: [num_tokens, hidden_size], float16, bfloat16 or float32; last dimension contiguous.
    weight: [hidden_size], dtype of input.
    scale: [1], float32; what one unit of the result stands for.
    epsilon: float, added to the mean square.
Parameters:
    num_tokens: 8192, so that one call moves more than the L2 cache holds.
    hidden_size: 8192 (Llama-3 70B), 5120 (Qwen3 32B), 7168 (DeepSeek-V3).
    epsilon: 1e-6 (Qwen3, DeepSeek-V3; Llama-3 has 1e-5).
    scale: 0.01, so that a small share of the values saturates.
    dtype: bfloat16, that of the input.
Pitfalls:
    - The value is multiplied with the inverse of the scale; the scale is a tensor, not a float.
    - Values beyond 448 saturate; they become neither NaN nor infinite.
    - The normalised and weighted value is rounded to the dtype before it is quantised.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401 - registers torch.ops._C
except ImportError:
    pass

FP8_MAX = 448.0


def _ref_rms_norm(x, weight, epsilon):
    """Returns the norm in the dtype of x, rounded as the kernel rounds it: twice."""
    wide = x.to(torch.float32)
    square = wide * wide
    mean_square = square.mean(dim=-1, keepdim=True)
    inverse_rms = torch.rsqrt(mean_square + epsilon)
    normed = wide * inverse_rms
    rounded = normed.to(x.dtype)
    weighted = rounded.to(torch.float32) * weight.to(torch.float32)
    return weighted.to(x.dtype)


def _ref_rms_norm_static_fp8_quant(x, weight, scale, epsilon):
    """Returns float8_e4m3fn [tokens, hidden_size]; saturates, then rounds to nearest even."""
    norm = _ref_rms_norm(x, weight, epsilon)
    inverse_scale = 1.0 / scale
    scaled = norm.to(torch.float32) * inverse_scale
    clamped = scaled.clamp(-FP8_MAX, FP8_MAX)
    return clamped.to(torch.float8_e4m3fn)


class Rms_norm_static_fp8_quant_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 8192)
        self.hidden_size = config.get("hidden_size", 8192)
        self.epsilon = config.get("epsilon", 1e-6)
        self.scale_value = config.get("scale", 0.01)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch.") + "->float8_e4m3fn")
        state.add_summary("Shape", f"({self.num_tokens} {self.hidden_size})")
        state.add_element_count(self.x.numel())
        self.moves(state, read=(self.x, self.weight, self.scale), written=(self.out,))

    def _prepare(self, dev_id, seed):
        device = self.device(dev_id)
        make = {"dtype": self.dtype, "device": device}
        gen = self.generator(dev_id, seed)
        x = torch.randn(self.num_tokens, self.hidden_size, generator=gen, **make)
        weight = torch.randn(self.hidden_size, generator=gen, **make)
        scale = torch.full((1,), self.scale_value, dtype=torch.float32, device=device)
        return x, weight, scale, torch.empty_like(x, dtype=torch.float8_e4m3fn)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.x, self.weight, self.scale, self.out = self._prepare(dev_id, seed=42)
        return self.make_launcher(
            dev_id,
            torch.ops._C.rms_norm_static_fp8_quant,
            self.out,
            self.x,
            self.weight,
            self.scale,
            self.epsilon,
        )

    def _check(self, out, x, weight, scale):
        ref = _ref_rms_norm_static_fp8_quant(x, weight, scale, self.epsilon)
        self.verify.close(out, ref, name="result")
        # One step off are at most a few of a hundred: those that a kernel which rounds the
        # intermediate otherwise, or not at all, takes over the edge.
        self.verify.cosine(out, ref, 0.999, name="result")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        x, weight, scale, out = self._prepare(dev_id, seed=7)
        # Tokens of all magnitudes, from where epsilon decides to where it vanishes.
        powers = torch.arange(self.num_tokens, device=x.device) % 15 - 12
        magnitudes = torch.exp2(powers).to(x.dtype).unsqueeze(-1)
        x *= magnitudes
        self.poison(out)
        torch.ops._C.rms_norm_static_fp8_quant(out, x, weight, scale, self.epsilon)
        self.synchronize(dev_id)
        return self._check(out, x, weight, scale)

    def verify_timed(self, dev_id):
        rows = slice(None, None, max(1, self.num_tokens // 512))
        return self._check(self.out[rows], self.x[rows], self.weight, self.scale)
