"""Quantises each token to float8_e4m3fn with a scale of its own, taken from its largest value.

Call: ``torch.ops._C.dynamic_per_token_scaled_fp8_quant(result, input, scale, scale_ub)``
Libraries: vllm, mcoplib

Arguments:
    result: [num_tokens, hidden_size], float8_e4m3fn; written.
    input: [num_tokens, hidden_size], float16, bfloat16 or float32; last dimension contiguous.
    scale: [num_tokens, 1], float32; written: the token's largest magnitude, divided by 448.
    scale_ub: [1], float32, or None; bounds the largest magnitude from above.
Parameters:
    num_tokens: 8192, so that one call moves more than the L2 cache holds.
    hidden_size: 8192 (Llama-3 70B), 5120 (Qwen3 32B), 7168 (DeepSeek-V3).
    dtype: bfloat16, that of the input.
Pitfalls:
    - scale_ub bounds the magnitude before it is divided by 448, not the scale.
    - No scale falls below 1 / (448 * 512), so tokens of small values do not fill the range.
    - The value is divided by the scale; values beyond a bounded scale saturate at 448.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401 - registers torch.ops._C
except ImportError:
    pass

FP8_MAX = 448.0
SMALLEST_SCALE = 1.0 / (FP8_MAX * 512.0)


def _ref_scales(x, scale_ub):
    """Returns float32 [tokens, 1]."""
    largest = x.abs().amax(dim=-1, keepdim=True).to(torch.float32)
    if scale_ub is not None:
        largest = torch.minimum(largest, scale_ub)
    scales = largest / FP8_MAX
    return scales.clamp(min=SMALLEST_SCALE)


def _ref_quantised(x, scales):
    """Returns float8_e4m3fn like x; saturates, then rounds to nearest even."""
    scaled = x.to(torch.float32) / scales
    clamped = scaled.clamp(-FP8_MAX, FP8_MAX)
    return clamped.to(torch.float8_e4m3fn)


class Dynamic_per_token_scaled_fp8_quant_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 8192)
        self.hidden_size = config.get("hidden_size", 8192)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch.") + "->float8_e4m3fn")
        state.add_summary("Shape", f"({self.num_tokens} {self.hidden_size})")
        state.add_element_count(self.x.numel())
        self.moves(state, read=(self.x,), written=(self.out, self.scale))

    def _prepare(self, dev_id, seed):
        device = self.device(dev_id)
        gen = self.generator(dev_id, seed)
        x = torch.randn(
            self.num_tokens, self.hidden_size, dtype=self.dtype, device=device, generator=gen
        )
        scale = torch.empty(self.num_tokens, 1, dtype=torch.float32, device=device)
        return x, scale, torch.empty_like(x, dtype=torch.float8_e4m3fn)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.x, self.scale, self.out = self._prepare(dev_id, seed=42)
        return self.make_launcher(
            dev_id,
            torch.ops._C.dynamic_per_token_scaled_fp8_quant,
            self.out,
            self.x,
            self.scale,
            None,
        )

    def _check(self, out, x, scale, scale_ub=None):
        ref_scales = _ref_scales(x, scale_ub)
        ref = _ref_quantised(x, ref_scales)
        self.verify.close(scale, ref_scales, name="scale")
        self.verify.close(out, ref, name="result")
        # A value on a rounding edge may fall to either side: a few are one step off, most are not.
        self.verify.cosine(out, ref, 0.9999, name="result")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        x, scale, out = self._prepare(dev_id, seed=7)
        # Tokens of all magnitudes: some scales are at the smallest one, some above the bound.
        powers = torch.arange(self.num_tokens, device=x.device) % 15 - 12
        magnitudes = torch.exp2(powers).to(x.dtype).unsqueeze(-1)
        x *= magnitudes
        bound = torch.ones(1, dtype=torch.float32, device=x.device)
        for scale_ub in (None, bound):
            self.poison(out, scale)
            torch.ops._C.dynamic_per_token_scaled_fp8_quant(out, x, scale, scale_ub)
            self.synchronize(dev_id)
            self._check(out, x, scale, scale_ub)
        return self.verify.verdict()

    def verify_timed(self, dev_id):
        rows = slice(None, None, max(1, self.num_tokens // 512))
        return self._check(self.out[rows], self.x[rows], self.scale[rows])
