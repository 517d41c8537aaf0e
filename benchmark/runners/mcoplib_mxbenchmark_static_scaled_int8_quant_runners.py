"""Quantises to int8 with one given scale, and a zero point when not symmetric.

Call: ``torch.ops._C.static_scaled_int8_quant(result, input, scale, azp)``
Libraries: vllm, mcoplib

Arguments:
    result: [num_tokens, hidden_size], int8; written.
    input: [num_tokens, hidden_size], float16, bfloat16 or float32; contiguous.
    scale: [1], float32; what one unit of the result stands for.
    azp: [1], int32, the zero point added after rounding; None when symmetric.
Parameters:
    num_tokens: 8192, so that one call moves more than the L2 cache holds.
    hidden_size: 8192 (Llama-3 70B), 5120 (Qwen3 32B), 7168 (DeepSeek-V3).
    symmetric: true; false also adds a zero point.
    scale: 0.02, so that a small share of the values saturates.
    dtype: bfloat16, that of the input.
Pitfalls:
    - Rounding is to nearest, ties to even; truncation differs by one in half of the values.
    - Values saturate at -128 and 127; they do not wrap around.
    - The zero point is added to the rounded value, and saturation comes after it.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401 - registers torch.ops._C
except ImportError:
    pass


def _ref_static_scaled_int8_quant(x, scale, azp):
    """Returns int8 like x."""
    scaled = x.to(torch.float32) / scale
    rounded = torch.round(scaled)
    if azp is not None:
        rounded = rounded + azp.to(torch.float32)
    clamped = rounded.clamp(-128, 127)
    return clamped.to(torch.int8)


class Static_scaled_int8_quant_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 8192)
        self.hidden_size = config.get("hidden_size", 8192)
        self.symmetric = config.get("symmetric", True)
        self.scale_value = config.get("scale", 0.02)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch.") + "->int8")
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
        azp = None if self.symmetric else torch.full((1,), -17, dtype=torch.int32, device=device)
        return x, scale, azp, torch.empty_like(x, dtype=torch.int8)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.x, self.scale, self.azp, self.out = self._prepare(dev_id, seed=42)
        return self.make_launcher(
            dev_id, torch.ops._C.static_scaled_int8_quant, self.out, self.x, self.scale, self.azp
        )

    def _check(self, out, x, scale, azp):
        ref = _ref_static_scaled_int8_quant(x, scale, azp)
        self.verify.close(out, ref, name="result")
        # A value on a rounding edge may fall to either side: a few are one step off, most are not.
        self.verify.cosine(out, ref, 0.99999, name="result")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        x, scale, azp, out = self._prepare(dev_id, seed=7)
        self.poison(out)
        torch.ops._C.static_scaled_int8_quant(out, x, scale, azp)
        self.synchronize(dev_id)
        return self._check(out, x, scale, azp)

    def verify_timed(self, dev_id):
        rows = slice(None, None, max(1, self.num_tokens // 512))
        return self._check(self.out[rows], self.x[rows], self.scale, self.azp)
