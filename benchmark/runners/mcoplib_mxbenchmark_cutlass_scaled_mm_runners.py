"""Product of quantised matrices, scaled for each row of the first and column of the second.

Call: ``torch.ops._C.cutlass_scaled_mm(out, a, b, a_scales, b_scales, bias)``
Libraries: vllm, mcoplib

Arguments:
    out: [num_tokens, out_features], bfloat16 or float16; written.
    a: [num_tokens, in_features], float8_e4m3fn or int8; row-major.
    b: [in_features, out_features], dtype of a; column-major.
    a_scales: [num_tokens, 1], float32 (or one value for all).
    b_scales: [1, out_features], float32 (or one value for all).
    bias: [out_features], dtype of out, or None.
Parameters:
    num_tokens: 4096 (prefill), 16 (decoding).
    in_features: 8192 (Llama-3 70B); a multiple of 16.
    out_features: 28672 (gate or up of Llama-3 70B); a multiple of 16.
    quant_dtype: float8_e4m3fn; int8 where the device has no fp8 (--set quant_dtype=int8).
    dtype: bfloat16, of out.
Pitfalls:
    - b is column-major: make it [out_features, in_features] and pass its transpose.
    - The output comes first and decides the dtype of the result.
    - Scales are float32 and contiguous: [num_tokens, 1] for a, [1, out_features] for b.
    - fp8 tensor cores keep about 14 bits of the running sum, so long sums lose low bits.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401 - registers torch.ops._C
except ImportError:
    pass

# int8 sums are exact: only the rounding of the result is left, and the usual limits hold.
_FP8_LIMIT = 2e-2
_FP8_THRESHOLD = 0.9999
_FP8_REASON = (
    "fp8 tensor cores keep about 14 bits of the running sum; over 8192 terms the rest is lost"
)
# Columns a slice of the reference: 8192 of them in float64 take 0.5 GiB for 8192 rows.
_COLUMNS = 8192


def _ref_scaled_mm(a, b, a_scales, b_scales):
    """Returns a_scales * b_scales * (a @ b) in float64, the given columns of b."""
    product = a.to(torch.float64) @ b.to(torch.float64)
    scaled_columns = product * b_scales.to(torch.float64)
    return scaled_columns * a_scales.to(torch.float64)


class Cutlass_scaled_mm_runner(OpBenchmarkBase):
    quantised = True

    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 4096)
        self.in_features = config.get("in_features", 8192)
        self.out_features = config.get("out_features", 28672)
        self.quant_dtype = getattr(torch, config.get("quant_dtype", "float8_e4m3fn"))

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.quant_dtype).removeprefix("torch."))
        state.add_summary(
            "Shape", f"M={self.num_tokens} N={self.out_features} K={self.in_features}"
        )
        state.add_element_count(self.out.numel())
        self.moves(state, read=self.inputs, written=(self.out,))

    def compute_dtype(self):
        return self.quant_dtype

    def flops(self):
        return 2 * self.num_tokens * self.in_features * self.out_features

    def _quantised(self, rows, columns, device, gen):
        wide = torch.randn(rows, columns, dtype=torch.float32, device=device, generator=gen)
        if self.quant_dtype.is_floating_point:
            return wide.to(self.quant_dtype)
        return (wide * 32.0).round().clamp(-128, 127).to(self.quant_dtype)

    def _prepare(self, dev_id, seed):
        device = self.device(dev_id)
        gen = self.generator(dev_id, seed)
        a = self._quantised(self.num_tokens, self.in_features, device, gen)
        b = self._quantised(self.out_features, self.in_features, device, gen).t()
        wide = {"dtype": torch.float32, "device": device, "generator": gen}
        a_scales = torch.rand(self.num_tokens, 1, **wide) * 0.01 + 0.001
        b_scales = torch.rand(1, self.out_features, **wide) * 0.01 + 0.001
        out = torch.empty(self.num_tokens, self.out_features, dtype=self.dtype, device=device)
        return out, (a, b, a_scales, b_scales)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.out, self.inputs = self._prepare(dev_id, seed=42)
        return self.make_launcher(
            dev_id, torch.ops._C.cutlass_scaled_mm, self.out, *self.inputs, None
        )

    def _check(self, out, a, b, a_scales, b_scales):
        for start in range(0, self.out_features, _COLUMNS):
            part = slice(start, start + _COLUMNS)
            ref = _ref_scaled_mm(a, b[:, part], a_scales, b_scales[:, part])
            if self.quant_dtype.is_floating_point:
                self.verify.close(
                    out[:, part], ref, limit=_FP8_LIMIT, reason=_FP8_REASON, name="out"
                )
                self.verify.cosine(
                    out[:, part], ref, _FP8_THRESHOLD, reason=_FP8_REASON, name="out"
                )
            else:
                self.verify.close(out[:, part], ref, name="out")
                self.verify.cosine(out[:, part], ref.to(out.dtype), name="out")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        out, inputs = self._prepare(dev_id, seed=7)
        self.poison(out)
        torch.ops._C.cutlass_scaled_mm(out, *inputs, None)
        self.synchronize(dev_id)
        return self._check(out, *inputs)

    def verify_timed(self, dev_id):
        rows = slice(None, None, max(1, self.num_tokens // 64))
        a, b, a_scales, b_scales = self.inputs
        return self._check(self.out[rows], a[rows], b, a_scales[rows], b_scales)
