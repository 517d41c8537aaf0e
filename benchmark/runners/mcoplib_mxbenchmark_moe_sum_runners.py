"""Sum of the chosen experts' outputs for each token.

Call: ``torch.ops._moe_C.moe_sum(input, output)``
Libraries: vllm, mcoplib

Arguments:
    input: [num_tokens, topk, hidden_size], float32, float16 or bfloat16; contiguous.
    output: [num_tokens, hidden_size], dtype of input; written.
Parameters:
    num_tokens: 4096, so that one call moves more than the L2 cache holds.
    topk: 8 (DeepSeek-V3).
    hidden_size: 7168 (DeepSeek-V3).
    dtype: bfloat16.
Pitfalls:
    - The output comes last, after the input.
    - For topk 2 to 4 a kernel rounds to the dtype after every addition; others round once.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._moe_C  # noqa: F401 - registers torch.ops._moe_C
except ImportError:
    pass

# Up to this many terms libraries keep the running sum in the dtype.
_ROUNDED_TERMS = 4


def _ref_moe_sum(input):
    """input: [num_tokens, topk, hidden_size]; returns [num_tokens, hidden_size]."""
    topk = input.shape[1]
    running = torch.float32 if topk > _ROUNDED_TERMS else input.dtype
    total = torch.zeros_like(input[:, 0], dtype=running)
    for choice in range(topk):
        total = total + input[:, choice].to(running)
    return total.to(input.dtype)


class Moe_sum_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 4096)
        self.topk = config.get("topk", 8)
        self.hidden_size = config.get("hidden_size", 7168)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary("Shape", f"({self.num_tokens} {self.topk} {self.hidden_size})")
        state.add_element_count(self.input.numel())
        self.moves(state, read=(self.input,), written=(self.out,))

    def _prepare(self, dev_id, seed):
        make = {"dtype": self.dtype, "device": self.device(dev_id)}
        gen = self.generator(dev_id, seed)
        input = torch.randn(self.num_tokens, self.topk, self.hidden_size, generator=gen, **make)
        out = torch.empty(self.num_tokens, self.hidden_size, **make)
        return input, out

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.input, self.out = self._prepare(dev_id, seed=42)
        return self.make_launcher(dev_id, torch.ops._moe_C.moe_sum, self.input, self.out)

    def _check(self, input, out):
        # Not by cosine: where a library rounds once and another thrice, 0.999999 tells them apart.
        self.verify.close(out, _ref_moe_sum(input), name="output")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        input, out = self._prepare(dev_id, seed=7)
        self.poison(out)
        torch.ops._moe_C.moe_sum(input, out)
        self.synchronize(dev_id)
        return self._check(input, out)

    def verify_timed(self, dev_id):
        return self._check(self.input, self.out)
