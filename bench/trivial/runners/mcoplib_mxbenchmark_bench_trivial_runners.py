"""The least that an operator can be: a small tensor plus one, ``torch.add``."""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase


class Bench_trivial_runner(OpBenchmarkBase):
    library = "torch"

    def __init__(self, name, config):
        super().__init__(name, config)
        self.size = config.get("size", 256)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary("Shape", f"({self.size})")
        state.add_element_count(self.size)

    def _prepare(self, dev_id):
        return torch.arange(self.size, dtype=self.dtype, device=self.device(dev_id))

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.x = self._prepare(dev_id)
        return self.make_launcher(dev_id, torch.add, self.x, 1)

    def run_verification(self, dev_id):
        x = self._prepare(dev_id)
        out = torch.add(x, 1)
        expected = torch.tensor(
            [i + 1 for i in range(self.size)], dtype=self.dtype, device=x.device
        )
        self.synchronize(dev_id)
        return self.check_diff(out, expected)
