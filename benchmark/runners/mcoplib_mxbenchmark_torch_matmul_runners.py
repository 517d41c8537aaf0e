"""Matrix product as torch has it: ``torch.mm`` into a given output."""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase


def _matmul(a, b, out):
    torch.mm(a, b, out=out)


def _ref_matmul(a, b):
    """a: [M, K], b: [K, N]; computed in float64, rounded to the dtype of a."""
    wide_a = a.to(torch.float64)
    wide_b = b.to(torch.float64)
    product = torch.mm(wide_a, wide_b)
    return product.to(a.dtype)


class Torch_matmul_runner(OpBenchmarkBase):
    library = "torch"

    def __init__(self, name, config):
        super().__init__(name, config)
        self.m = config.get("M", 512)
        self.n = config.get("N", 512)
        self.k = config.get("K", 1024)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary("Shape", f"M={self.m} N={self.n} K={self.k}")
        state.add_element_count(self.out.numel())
        state.add_global_memory_reads(
            self.a.numel() * self.a.element_size() + self.b.numel() * self.b.element_size()
        )
        state.add_global_memory_writes(self.out.numel() * self.out.element_size())

    def flops(self):
        return 2 * self.m * self.n * self.k

    def _prepare(self, dev_id, seed):
        gen = self.generator(dev_id, seed)
        make = {"dtype": self.dtype, "device": self.device(dev_id)}
        a = torch.randn(self.m, self.k, generator=gen, **make)
        b = torch.randn(self.k, self.n, generator=gen, **make)
        out = torch.empty(self.m, self.n, **make)
        return a, b, out

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.a, self.b, self.out = self._prepare(dev_id, seed=42)
        return self.make_launcher(dev_id, _matmul, self.a, self.b, self.out)

    def run_verification(self, dev_id):
        a, b, out = self._prepare(dev_id, seed=7)
        self.poison(out)
        _matmul(a, b, out)
        self.synchronize(dev_id)
        return self.check_diff(out, _ref_matmul(a, b))
