"""FATReLU of the gate half (zero up to a threshold, else the value) times the up half.

Call: ``torch.ops._C.fatrelu_and_mul(out, input, threshold)``
Libraries: vllm, mcoplib

Arguments:
    out: [num_tokens, intermediate_size], dtype of input; written.
    input: [num_tokens, 2 * intermediate_size], float16, bfloat16 or float32; contiguous;
        gate in the first half, up in the second.
    threshold: float; what is not above it becomes zero.
Parameters:
    num_tokens: 2048, so that one call moves more than the L2 cache holds.
    intermediate_size: 28672 (Llama-3 70B), 25600 (Qwen3 32B), 18432 (DeepSeek-V3, dense layers).
    threshold: 0.5, so that both branches are taken.
    dtype: bfloat16.
Pitfalls:
    - The output comes first, before the input, and is half as wide.
    - A value equal to the threshold becomes zero: the comparison is strict.
    - The threshold cuts, it does not shift: what is above keeps its value.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401 - registers torch.ops._C
except ImportError:
    pass

ROUNDING = "bfloat16 kernels that round the intermediate and those that do not are 4e-6 apart"


def _ref_fatrelu_and_mul(x, threshold):
    """x: [tokens, 2 * intermediate_size]; returns [tokens, intermediate_size] in its dtype."""
    half = x.shape[-1] // 2
    gate = x[..., :half].to(torch.float32)
    up = x[..., half:].to(torch.float32)
    above = gate > threshold
    activated = torch.where(above, gate, torch.zeros_like(gate))
    rounded = activated.to(x.dtype)
    product = rounded.to(torch.float32) * up
    return product.to(x.dtype)


class Fatrelu_and_mul_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 2048)
        self.intermediate_size = config.get("intermediate_size", 28672)
        self.threshold = config.get("threshold", 0.5)

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
        # Twice the usual spread: the activation's tails are reached too.
        x = 2 * torch.randn(self.num_tokens, 2 * self.intermediate_size, generator=gen, **make)
        return x, torch.empty(self.num_tokens, self.intermediate_size, **make)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.x, self.out = self._prepare(dev_id, seed=42)
        return self.make_launcher(
            dev_id, torch.ops._C.fatrelu_and_mul, self.out, self.x, self.threshold
        )

    def _check(self, out, x):
        ref = _ref_fatrelu_and_mul(x, self.threshold)
        self.verify.close(out, ref, name="out")
        least = 0.99999 if self.dtype is torch.bfloat16 else 0.999999
        self.verify.cosine(out, ref, least, reason=ROUNDING, name="out")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        x, out = self._prepare(dev_id, seed=7)
        # The edge itself: a value equal to the threshold becomes zero.
        x[:, 0] = self.threshold
        self.poison(out)
        torch.ops._C.fatrelu_and_mul(out, x, self.threshold)
        self.synchronize(dev_id)
        return self._check(out, x)

    def verify_timed(self, dev_id):
        rows = slice(None, None, max(1, self.num_tokens // 256))
        return self._check(self.out[rows], self.x[rows])
