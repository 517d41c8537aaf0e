"""Clamped SwiGLU of GPT-OSS: (up + 1) * gate * sigmoid(alpha * gate), halves interleaved.

Call: ``torch.ops._C.swigluoai_and_mul(out, input, alpha, limit)``
Libraries: vllm, mcoplib

Arguments:
    out: [num_tokens, intermediate_size], dtype of input; written.
    input: [num_tokens, 2 * intermediate_size], float16, bfloat16 or float32; contiguous;
        gate at even, up at odd positions.
    alpha: float, slope within the sigmoid.
    limit: float; gate is clamped from above, up from both sides.
Parameters:
    num_tokens: 2048, so that one call moves more than the L2 cache holds.
    intermediate_size: 28672 (Llama-3 70B), 25600 (Qwen3 32B), 18432 (DeepSeek-V3, dense layers).
    alpha: 1.702 (GPT-OSS).
    limit: 7.0 (GPT-OSS).
    dtype: bfloat16.
Pitfalls:
    - The output comes first, before the input, and is half as wide.
    - Gate and up alternate along the last dimension; the other gated activations have halves.
    - The gate is clamped from above only, up to [-limit, limit].
    - One is added to up after it is clamped.
    - All of it is computed in float32 and rounded once.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401 - registers torch.ops._C
except ImportError:
    pass


def _ref_swigluoai_and_mul(x, alpha, limit):
    """x: [tokens, 2 * intermediate_size]; returns [tokens, intermediate_size] in its dtype."""
    gate = x[..., 0::2].to(torch.float32)
    up = x[..., 1::2].to(torch.float32)
    gate = gate.clamp(max=limit)
    up = up.clamp(min=-limit, max=limit)
    negative_exp = torch.exp(-alpha * gate)
    activated = gate / (1.0 + negative_exp)
    product = (up + 1.0) * activated
    return product.to(x.dtype)


class Swigluoai_and_mul_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 2048)
        self.intermediate_size = config.get("intermediate_size", 28672)
        self.alpha = config.get("alpha", 1.702)
        self.limit = config.get("limit", 7.0)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        wide, narrow = 2 * self.intermediate_size, self.intermediate_size
        shape = f"({self.num_tokens} {wide}) -> ({self.num_tokens} {narrow})"
        state.add_summary("Shape", shape)
        state.add_element_count(self.out.numel())
        self.moves(state, read=(self.x,), written=(self.out,))

    def _prepare(self, dev_id, seed):
        make = {"dtype": self.dtype, "device": self.device(dev_id)}
        gen = self.generator(dev_id, seed)
        # Four times the usual spread: both clamps are reached.
        x = 4 * torch.randn(self.num_tokens, 2 * self.intermediate_size, generator=gen, **make)
        return x, torch.empty(self.num_tokens, self.intermediate_size, **make)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.x, self.out = self._prepare(dev_id, seed=42)
        return self.make_launcher(
            dev_id, torch.ops._C.swigluoai_and_mul, self.out, self.x, self.alpha, self.limit
        )

    def _check(self, out, x):
        ref = _ref_swigluoai_and_mul(x, self.alpha, self.limit)
        self.verify.close(out, ref, name="out")
        self.verify.cosine(out, ref, name="out")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        x, out = self._prepare(dev_id, seed=7)
        self.poison(out)
        torch.ops._C.swigluoai_and_mul(out, x, self.alpha, self.limit)
        self.synchronize(dev_id)
        return self._check(out, x)

    def verify_timed(self, dev_id):
        rows = slice(None, None, max(1, self.num_tokens // 256))
        return self._check(self.out[rows], self.x[rows])
