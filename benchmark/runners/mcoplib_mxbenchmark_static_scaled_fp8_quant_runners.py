"""Quantises to float8_e4m3fn with one given scale for the whole tensor.

Call: ``torch.ops._C.static_scaled_fp8_quant(result, input, scale)``
Libraries: vllm, mcoplib

Arguments:
    result: [num_tokens, hidden_size], float8_e4m3fn; written.
    input: [num_tokens, hidden_size], float16, bfloat16 or float32; last dimension contiguous.
    scale: [1], float32; what one unit of the result stands for.
Parameters:
    num_tokens: 8192, so that one call moves more than the L2 cache holds.
    hidden_size: 8192 (Llama-3 70B), 5120 (Qwen3 32B), 7168 (DeepSeek-V3).
    scale: 0.005, so that a small share of the values saturates.
    dtype: bfloat16, that of the input.
Pitfalls:
    - The value is multiplied with the inverse of the scale; the scale is a tensor, not a float.
    - Values beyond 448 saturate; they become neither NaN nor infinite.
    - vLLM has a fourth argument, group_shape, that is left at its default: one scale for all.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401 - registers torch.ops._C
except ImportError:
    pass

FP8_MAX = 448.0


def _ref_static_scaled_fp8_quant(x, scale):
    """Returns float8_e4m3fn like x; saturates, then rounds to nearest even."""
    inverse_scale = 1.0 / scale
    scaled = x.to(torch.float32) * inverse_scale
    clamped = scaled.clamp(-FP8_MAX, FP8_MAX)
    return clamped.to(torch.float8_e4m3fn)


class Static_scaled_fp8_quant_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 8192)
        self.hidden_size = config.get("hidden_size", 8192)
        self.scale_value = config.get("scale", 0.005)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch.") + "->float8_e4m3fn")
        state.add_summary("Shape", f"({self.num_tokens} {self.hidden_size})")
        state.add_element_count(self.x.numel())
        self.moves(state, read=(self.x, self.scale), written=(self.out,))

    def _prepare(self, dev_id, seed):
        device = self.device(dev_id)
        gen = self.generator(dev_id, seed)
        x = torch.randn(
            self.num_tokens, self.hidden_size, dtype=self.dtype, device=device, generator=gen
        )
        scale = torch.full((1,), self.scale_value, dtype=torch.float32, device=device)
        return x, scale, torch.empty_like(x, dtype=torch.float8_e4m3fn)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.x, self.scale, self.out = self._prepare(dev_id, seed=42)
        return self.make_launcher(
            dev_id, torch.ops._C.static_scaled_fp8_quant, self.out, self.x, self.scale
        )

    def _check(self, out, x, scale):
        ref = _ref_static_scaled_fp8_quant(x, scale)
        self.verify.close(out, ref, name="result")
        # A value on a rounding edge may fall to either side: a few are one step off, most are not.
        self.verify.cosine(out, ref, 0.9999, name="result")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        x, scale, out = self._prepare(dev_id, seed=7)
        self.poison(out)
        torch.ops._C.static_scaled_fp8_quant(out, x, scale)
        self.synchronize(dev_id)
        return self._check(out, x, scale)

    def verify_timed(self, dev_id):
        rows = slice(None, None, max(1, self.num_tokens // 512))
        return self._check(self.out[rows], self.x[rows], self.scale)
