"""Adds a residual in place, then RMS normalisation times a weight, also in place.

Call: ``torch.ops._C.fused_add_rms_norm(input, residual, weight, epsilon)``
Libraries: vllm, mcoplib

Arguments:
    input: [num_tokens, hidden_size], float16, bfloat16 or float32; read, then written: the norm.
    residual: [num_tokens, hidden_size], dtype of input; read, then written: input + residual.
    weight: [hidden_size], dtype of input.
    epsilon: float, added to the mean square.
Parameters:
    num_tokens: 8192, so that one call moves more than the L2 cache holds.
    hidden_size: 8192 (Llama-3 70B), 5120 (Qwen3 32B), 7168 (DeepSeek-V3).
    epsilon: 1e-6 (Qwen3, DeepSeek-V3; Llama-3 has 1e-5).
    dtype: bfloat16.
Pitfalls:
    - Both tensors are overwritten: the reference needs clones made before the call.
    - The sum is rounded to the dtype; the norm is taken of the rounded sum.
    - The residual is written before the norm: it holds the sum, not the normalised value.
    - Timed again and again, the residual grows; that changes no time.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401 - registers torch.ops._C
except ImportError:
    pass

ROUNDING = "bfloat16 kernels that round the intermediate and those that do not are 4e-6 apart"


def _ref_fused_add_rms_norm(x, residual, weight, epsilon):
    """Returns (norm, sum), both [tokens, hidden_size] in the dtype of x."""
    total = x.to(torch.float32) + residual.to(torch.float32)
    rounded_total = total.to(x.dtype)
    wide = rounded_total.to(torch.float32)
    square = wide * wide
    mean_square = square.mean(dim=-1, keepdim=True)
    inverse_rms = torch.rsqrt(mean_square + epsilon)
    normed = wide * inverse_rms
    rounded = normed.to(x.dtype)
    weighted = rounded.to(torch.float32) * weight.to(torch.float32)
    return weighted.to(x.dtype), rounded_total


class Fused_add_rms_norm_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 8192)
        self.hidden_size = config.get("hidden_size", 8192)
        self.epsilon = config.get("epsilon", 1e-6)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary("Shape", f"({self.num_tokens} {self.hidden_size})")
        state.add_element_count(self.x.numel())
        self.moves(
            state, read=(self.x, self.residual, self.weight), written=(self.x, self.residual)
        )

    def _prepare(self, dev_id, seed):
        make = {"dtype": self.dtype, "device": self.device(dev_id)}
        gen = self.generator(dev_id, seed)
        x = torch.randn(self.num_tokens, self.hidden_size, generator=gen, **make)
        residual = torch.randn(self.num_tokens, self.hidden_size, generator=gen, **make)
        weight = torch.randn(self.hidden_size, generator=gen, **make)
        return x, residual, weight

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.x, self.residual, self.weight = self._prepare(dev_id, seed=42)
        return self.make_launcher(
            dev_id,
            torch.ops._C.fused_add_rms_norm,
            self.x,
            self.residual,
            self.weight,
            self.epsilon,
        )

    def run_verification(self, dev_id):
        x, residual, weight = self._prepare(dev_id, seed=7)
        # Tokens of all magnitudes, from where epsilon decides to where it vanishes.
        powers = torch.arange(self.num_tokens, device=x.device) % 15 - 12
        magnitudes = torch.exp2(powers).to(x.dtype).unsqueeze(-1)
        x *= magnitudes
        residual *= magnitudes
        # Taken first: the call overwrites what it reads.
        ref, ref_residual = _ref_fused_add_rms_norm(x, residual, weight, self.epsilon)
        torch.ops._C.fused_add_rms_norm(x, residual, weight, self.epsilon)
        self.synchronize(dev_id)
        self.verify.close(x, ref, name="input")
        least = 0.99999 if self.dtype is torch.bfloat16 else 0.999999
        self.verify.cosine(x, ref, least, reason=ROUNDING, name="input")
        self.verify.exact(residual, ref_residual, name="residual")
        return self.verify.verdict()
