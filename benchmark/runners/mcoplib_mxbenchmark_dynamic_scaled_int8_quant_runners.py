"""Quantises each token to int8 with a scale of its own, and a zero point when not symmetric.

Call: ``torch.ops._C.dynamic_scaled_int8_quant(result, input, scale, azp)``
Libraries: vllm, mcoplib

Arguments:
    result: [num_tokens, hidden_size], int8; written.
    input: [num_tokens, hidden_size], float16, bfloat16 or float32; contiguous.
    scale: [num_tokens, 1], float32; written: largest magnitude / 127, or the token's range / 255.
    azp: [num_tokens, 1], int32; written: the zero points; None when symmetric.
Parameters:
    num_tokens: 8192, so that one call moves more than the L2 cache holds.
    hidden_size: 8192 (Llama-3 70B), 5120 (Qwen3 32B), 7168 (DeepSeek-V3).
    symmetric: true; false takes scale and zero point from the token's range.
    dtype: bfloat16, that of the input.
Pitfalls:
    - Rounding is to nearest, ties to even; truncation differs by one in half of the values.
    - Symmetric scales divide by 127, not by 128: -128 is never written.
    - The zero point is rounded before it is added; saturation comes after it.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401 - registers torch.ops._C
except ImportError:
    pass

# A zero point this near to one half may be rounded to either side: float32 holds no more.
EDGE = 1e-3


def _ref_symmetric(x):
    """Returns (int8 like x, float32 scales [tokens, 1])."""
    wide = x.to(torch.float32)
    largest = wide.abs().amax(dim=-1, keepdim=True)
    inverse = 127.0 / largest
    scaled = wide * inverse
    rounded = torch.round(scaled)
    return rounded.to(torch.int8), largest / 127.0


def _ref_range(x):
    """Returns (float32 scales, float32 zero points before rounding), both [tokens, 1]."""
    wide = x.to(torch.float32)
    low = wide.amin(dim=-1, keepdim=True)
    high = wide.amax(dim=-1, keepdim=True)
    scales = (high - low) / 255.0
    return scales, -128.0 - low / scales


def _ref_zero_points(unrounded, azp):
    """Returns int32 [tokens, 1]; where rounding is open, that of ``azp`` when it is either one."""
    nearest = torch.round(unrounded).to(torch.int32)
    distance = (unrounded - azp).abs()
    return torch.where(distance < 0.5 + EDGE, azp, nearest)


def _ref_asymmetric(x, scales, azp):
    """Returns int8 like x."""
    inverse = 1.0 / scales
    scaled = x.to(torch.float32) * inverse
    rounded = torch.round(scaled)
    shifted = rounded + azp
    clamped = shifted.clamp(-128, 127)
    return clamped.to(torch.int8)


class Dynamic_scaled_int8_quant_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 8192)
        self.hidden_size = config.get("hidden_size", 8192)
        self.symmetric = config.get("symmetric", True)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch.") + "->int8")
        state.add_summary("Shape", f"({self.num_tokens} {self.hidden_size})")
        state.add_element_count(self.x.numel())
        zero_points = () if self.azp is None else (self.azp,)
        self.moves(state, read=(self.x,), written=(self.out, self.scale, *zero_points))

    def _prepare(self, dev_id, seed):
        device = self.device(dev_id)
        gen = self.generator(dev_id, seed)
        x = torch.randn(
            self.num_tokens, self.hidden_size, dtype=self.dtype, device=device, generator=gen
        )
        scale = torch.empty(self.num_tokens, 1, dtype=torch.float32, device=device)
        azp = None if self.symmetric else torch.empty_like(scale, dtype=torch.int32)
        return x, scale, azp, torch.empty_like(x, dtype=torch.int8)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.x, self.scale, self.azp, self.out = self._prepare(dev_id, seed=42)
        return self.make_launcher(
            dev_id, torch.ops._C.dynamic_scaled_int8_quant, self.out, self.x, self.scale, self.azp
        )

    def _check(self, out, x, scale, azp):
        if azp is None:
            ref, ref_scale = _ref_symmetric(x)
        else:
            ref_scale, unrounded = _ref_range(x)
            ref_azp = _ref_zero_points(unrounded, azp)
            ref = _ref_asymmetric(x, ref_scale, ref_azp)
            self.verify.exact(azp, ref_azp, name="azp")
        self.verify.close(scale, ref_scale, name="scale")
        self.verify.close(out, ref, name="result")
        # A value on a rounding edge may fall to either side: a few are one step off, most are not.
        self.verify.cosine(out, ref, 0.99999, name="result")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        x, scale, azp, out = self._prepare(dev_id, seed=7)
        # Tokens of all magnitudes: each scale is its own.
        powers = torch.arange(self.num_tokens, device=x.device) % 15 - 12
        magnitudes = torch.exp2(powers).to(x.dtype).unsqueeze(-1)
        x *= magnitudes
        self.poison(out, scale, *(() if azp is None else (azp,)))
        torch.ops._C.dynamic_scaled_int8_quant(out, x, scale, azp)
        self.synchronize(dev_id)
        return self._check(out, x, scale, azp)

    def verify_timed(self, dev_id):
        rows = slice(None, None, max(1, self.num_tokens // 512))
        azp = None if self.azp is None else self.azp[rows]
        return self._check(self.out[rows], self.x[rows], self.scale[rows], azp)
