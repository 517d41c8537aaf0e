"""Quantises to float8_e4m3fn with one scale for the whole tensor, taken from its largest value.

Call: ``torch.ops._C.dynamic_scaled_fp8_quant(result, input, scale)``
Libraries: vllm, mcoplib

Arguments:
    result: [num_tokens, hidden_size], float8_e4m3fn; written.
    input: [num_tokens, hidden_size], float16, bfloat16 or float32; last dimension contiguous.
    scale: [1], float32; written: the largest magnitude of the input, divided by 448.
Parameters:
    num_tokens: 8192, so that one call moves more than the L2 cache holds.
    hidden_size: 8192 (Llama-3 70B), 5120 (Qwen3 32B), 7168 (DeepSeek-V3).
    dtype: bfloat16, that of the input.
Pitfalls:
    - Older kernels take the maximum with what stands in scale: it has to be zero before the call.
    - The input is read twice, once for the maximum; counted are both.
    - The value is multiplied with the inverse of the scale.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401 - registers torch.ops._C
except ImportError:
    pass

FP8_MAX = 448.0


def _ref_dynamic_scale(x):
    """Returns float32 [1]."""
    largest = x.abs().max()
    return (largest.to(torch.float32) / FP8_MAX).reshape(1)


def _ref_quantised(x, scale):
    """Returns float8_e4m3fn like x; saturates, then rounds to nearest even."""
    inverse_scale = 1.0 / scale
    scaled = x.to(torch.float32) * inverse_scale
    clamped = scaled.clamp(-FP8_MAX, FP8_MAX)
    return clamped.to(torch.float8_e4m3fn)


class Dynamic_scaled_fp8_quant_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 8192)
        self.hidden_size = config.get("hidden_size", 8192)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch.") + "->float8_e4m3fn")
        state.add_summary("Shape", f"({self.num_tokens} {self.hidden_size})")
        state.add_element_count(self.x.numel())
        self.moves(state, read=(self.x, self.x), written=(self.out, self.scale))

    def _prepare(self, dev_id, seed):
        device = self.device(dev_id)
        gen = self.generator(dev_id, seed)
        x = torch.randn(
            self.num_tokens, self.hidden_size, dtype=self.dtype, device=device, generator=gen
        )
        scale = torch.zeros(1, dtype=torch.float32, device=device)
        return x, scale, torch.empty_like(x, dtype=torch.float8_e4m3fn)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.x, self.scale, self.out = self._prepare(dev_id, seed=42)
        return self.make_launcher(
            dev_id, torch.ops._C.dynamic_scaled_fp8_quant, self.out, self.x, self.scale
        )

    def _check(self, out, x, scale, ref_scale):
        ref = _ref_quantised(x, ref_scale)
        self.verify.close(scale, ref_scale, name="scale")
        self.verify.close(out, ref, name="result")
        # A value on a rounding edge may fall to either side: a few are one step off, most are not.
        self.verify.cosine(out, ref, 0.9999, name="result")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        x, scale, out = self._prepare(dev_id, seed=7)
        self.poison(out)
        torch.ops._C.dynamic_scaled_fp8_quant(out, x, scale)
        self.synchronize(dev_id)
        return self._check(out, x, scale, _ref_dynamic_scale(x))

    def verify_timed(self, dev_id):
        rows = slice(None, None, max(1, self.num_tokens // 512))
        ref_scale = _ref_dynamic_scale(self.x)
        return self._check(self.out[rows], self.x[rows], self.scale, ref_scale)
