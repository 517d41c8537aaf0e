"""SiLU gate times up-projection, composed of torch's own operators.

x [num_tokens, 2 * hidden_size] holds the gate in its first half and the up-projection in its
second; out [num_tokens, hidden_size] = silu(gate) * up. Declared is what the operation has to
move (x once, out once), not what the two kernels of the composition move between them.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase


def _silu_and_mul(x, out):
    half = out.shape[-1]
    torch.mul(torch.nn.functional.silu(x[..., :half]), x[..., half:], out=out)


def _ref_silu_and_mul(x):
    """x: [num_tokens, 2 * hidden_size]; computed in float64, rounded to the dtype of x."""
    half = x.shape[-1] // 2
    gate = x[..., :half].to(torch.float64)
    up = x[..., half:].to(torch.float64)
    negative_exp = torch.exp(-gate)
    sigmoid = 1.0 / (1.0 + negative_exp)
    activated = gate * sigmoid
    product = activated * up
    return product.to(x.dtype)


class Torch_silu_and_mul_runner(OpBenchmarkBase):
    library = "torch"
    threshold_reason = "silu, then times up: two roundings below float32, one in the reference"

    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 512)
        self.hidden_size = config.get("hidden_size", 4096)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        shape = (
            f"({self.num_tokens} {2 * self.hidden_size}) -> ({self.num_tokens} {self.hidden_size})"
        )
        state.add_summary("Shape", shape)
        state.add_element_count(self.out.numel())
        state.add_global_memory_reads(self.x.numel() * self.x.element_size())
        state.add_global_memory_writes(self.out.numel() * self.out.element_size())

    def _prepare(self, dev_id, seed):
        gen = self.generator(dev_id, seed)
        device = self.device(dev_id)
        x = torch.randn(
            self.num_tokens, 2 * self.hidden_size, dtype=self.dtype, device=device, generator=gen
        )
        out = torch.empty(self.num_tokens, self.hidden_size, dtype=self.dtype, device=device)
        return x, out

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.x, self.out = self._prepare(dev_id, seed=42)
        return self.make_launcher(dev_id, _silu_and_mul, self.x, self.out)

    def run_verification(self, dev_id):
        x, out = self._prepare(dev_id, seed=7)
        self.poison(out)
        _silu_and_mul(x, out)
        self.synchronize(dev_id)
        threshold = 0.999999 if self.dtype is torch.float32 else 0.99999
        return self.check_diff(out, _ref_silu_and_mul(x), threshold=threshold)
