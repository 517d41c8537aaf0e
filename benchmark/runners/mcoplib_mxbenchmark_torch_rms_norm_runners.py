"""RMS normalisation as torch has it: ``torch.nn.functional.rms_norm`` over the last dimension."""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase


def _ref_rms_norm(x, weight, epsilon):
    """x: [num_tokens, hidden_size], weight: [hidden_size]; computed in float32, then rounded."""
    wide = x.to(torch.float32)
    square = wide * wide
    mean_square = square.mean(dim=-1, keepdim=True)
    inverse_rms = torch.rsqrt(mean_square + epsilon)
    normed = wide * inverse_rms
    scaled = normed * weight.to(torch.float32)
    return scaled.to(x.dtype)


class Torch_rms_norm_runner(OpBenchmarkBase):
    library = "torch"

    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 512)
        self.hidden_size = config.get("hidden_size", 4096)
        self.epsilon = config.get("epsilon", 1e-6)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary("Shape", f"({self.num_tokens} {self.hidden_size})")
        state.add_element_count(self.x.numel())
        state.add_global_memory_reads(
            self.x.numel() * self.x.element_size()
            + self.weight.numel() * self.weight.element_size()
        )
        state.add_global_memory_writes(self.x.numel() * self.x.element_size())

    def _prepare(self, dev_id, seed):
        gen = self.generator(dev_id, seed)
        make = {"dtype": self.dtype, "device": self.device(dev_id), "generator": gen}
        x = torch.randn(self.num_tokens, self.hidden_size, **make)
        weight = torch.randn(self.hidden_size, **make)
        return x, weight

    def _call(self, x, weight):
        return torch.nn.functional.rms_norm(x, (self.hidden_size,), weight, self.epsilon)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.x, self.weight = self._prepare(dev_id, seed=42)
        return self.make_launcher(dev_id, self._call, self.x, self.weight)

    def run_verification(self, dev_id):
        x, weight = self._prepare(dev_id, seed=7)
        out = self._call(x, weight)
        self.synchronize(dev_id)
        return self.check_diff(out, _ref_rms_norm(x, weight, self.epsilon))
