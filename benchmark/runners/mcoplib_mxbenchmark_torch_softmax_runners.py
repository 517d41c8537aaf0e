"""Softmax over the last dimension: ``torch.softmax``."""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase


def _ref_softmax(x):
    """x: [num_rows, row_size]; computed in float64, rounded to the dtype of x."""
    wide = x.to(torch.float64)
    row_max = wide.amax(dim=-1, keepdim=True)
    shifted = wide - row_max
    weights = torch.exp(shifted)
    total = weights.sum(dim=-1, keepdim=True)
    probabilities = weights / total
    return probabilities.to(x.dtype)


class Torch_softmax_runner(OpBenchmarkBase):
    library = "torch"

    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_rows = config.get("num_rows", 512)
        self.row_size = config.get("row_size", 4096)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary("Shape", f"({self.num_rows} {self.row_size})")
        state.add_element_count(self.x.numel())
        nbytes = self.x.numel() * self.x.element_size()
        state.add_global_memory_reads(nbytes)
        state.add_global_memory_writes(nbytes)

    def _prepare(self, dev_id, seed):
        return torch.randn(
            self.num_rows,
            self.row_size,
            dtype=self.dtype,
            device=self.device(dev_id),
            generator=self.generator(dev_id, seed),
        )

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.x = self._prepare(dev_id, seed=42)
        return self.make_launcher(dev_id, torch.softmax, self.x, -1)

    def run_verification(self, dev_id):
        x = self._prepare(dev_id, seed=7)
        out = torch.softmax(x, -1)
        self.synchronize(dev_id)
        return self.check_diff(out, _ref_softmax(x))
