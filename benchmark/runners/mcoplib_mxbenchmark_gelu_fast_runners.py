"""GELU by its tanh approximation in factored form, rounding at every step.

Call: ``torch.ops._C.gelu_fast(out, input)``
Libraries: vllm, mcoplib

Arguments:
    out: [num_tokens, intermediate_size], dtype of input; written.
    input: [num_tokens, intermediate_size], float16, bfloat16 or float32; contiguous.
Parameters:
    num_tokens: 2048, so that one call moves more than the L2 cache holds.
    intermediate_size: 28672 (Llama-3 70B), 25600 (Qwen3 32B), 18432 (DeepSeek-V3, dense layers).
    dtype: float16, that of the models with this activation.
Pitfalls:
    - The output comes first, before the input.
    - Each step is rounded to the dtype; in bfloat16 that shows in the third digit.
    - It is the same function as gelu_new, but factored otherwise, so it rounds otherwise.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401 - registers torch.ops._C
except ImportError:
    pass

ROUNDING = "bfloat16 kernels that round the intermediate and those that do not are 4e-6 apart"


def _ref_gelu_fast(x):
    """x: any shape; returns its shape and dtype."""
    wide = x.to(torch.float32)
    outer = (wide * 0.79788456).to(x.dtype)
    slope = (0.044715 * wide).to(x.dtype)
    square = slope * x
    bracket = 1.0 + square
    inner = outer * bracket
    tanh = torch.tanh(inner.to(torch.float32)).to(x.dtype)
    half = 0.5 * x
    share = 1.0 + tanh
    return half * share


class Gelu_fast_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 2048)
        self.intermediate_size = config.get("intermediate_size", 28672)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary("Shape", f"({self.num_tokens} {self.intermediate_size})")
        state.add_element_count(self.out.numel())
        self.moves(state, read=(self.x,), written=(self.out,))

    def _prepare(self, dev_id, seed):
        make = {"dtype": self.dtype, "device": self.device(dev_id)}
        gen = self.generator(dev_id, seed)
        # Twice the usual spread: the activation's tails are reached too.
        x = 2 * torch.randn(self.num_tokens, self.intermediate_size, generator=gen, **make)
        return x, torch.empty_like(x)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.x, self.out = self._prepare(dev_id, seed=42)
        return self.make_launcher(dev_id, torch.ops._C.gelu_fast, self.out, self.x)

    def _check(self, out, x):
        ref = _ref_gelu_fast(x)
        self.verify.close(out, ref, name="out")
        least = 0.99999 if self.dtype is torch.bfloat16 else 0.999999
        self.verify.cosine(out, ref, least, reason=ROUNDING, name="out")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        x, out = self._prepare(dev_id, seed=7)
        self.poison(out)
        torch.ops._C.gelu_fast(out, x)
        self.synchronize(dev_id)
        return self._check(out, x)

    def verify_timed(self, dev_id):
        rows = slice(None, None, max(1, self.num_tokens // 256))
        return self._check(self.out[rows], self.x[rows])
