"""RMS normalisation of each token, times a weight for each channel.

Call: ``torch.ops._C.rms_norm(result, input, weight, epsilon)``
Libraries: vllm, mcoplib

Arguments:
    result: [num_tokens, hidden_size], dtype of input; written.
    input: [num_tokens, hidden_size], float16, bfloat16 or float32; last dimension contiguous.
    weight: [hidden_size], dtype of input.
    epsilon: float, added to the mean square.
Parameters:
    num_tokens: 8192, so that one call moves more than the L2 cache holds.
    hidden_size: 8192 (Llama-3 70B), 5120 (Qwen3 32B), 7168 (DeepSeek-V3).
    epsilon: 1e-6 (Qwen3, DeepSeek-V3; Llama-3 has 1e-5).
    dtype: bfloat16.
Pitfalls:
    - The result comes first, before the input; exchanged, the call still runs.
    - The mean square is taken in float32; in bfloat16 it is wrong in the second digit.
    - The normalised value is rounded to the dtype before it is multiplied with the weight.
    - epsilon belongs under the root; it shows only in tokens of small magnitude.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401 - registers torch.ops._C
except ImportError:
    pass

ROUNDING = "bfloat16 kernels that round the intermediate and those that do not are 4e-6 apart"


def _ref_rms_norm(x, weight, epsilon):
    """x: [num_tokens, hidden_size], weight: [hidden_size]; returns x's shape and dtype."""
    wide = x.to(torch.float32)
    square = wide * wide
    mean_square = square.mean(dim=-1, keepdim=True)
    inverse_rms = torch.rsqrt(mean_square + epsilon)
    normed = wide * inverse_rms
    rounded = normed.to(x.dtype)
    weighted = rounded.to(torch.float32) * weight.to(torch.float32)
    return weighted.to(x.dtype)


class Rms_norm_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 8192)
        self.hidden_size = config.get("hidden_size", 8192)
        self.epsilon = config.get("epsilon", 1e-6)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary("Shape", f"({self.num_tokens} {self.hidden_size})")
        state.add_element_count(self.out.numel())
        self.moves(state, read=(self.x, self.weight), written=(self.out,))

    def _prepare(self, dev_id, seed):
        make = {"dtype": self.dtype, "device": self.device(dev_id)}
        gen = self.generator(dev_id, seed)
        x = torch.randn(self.num_tokens, self.hidden_size, generator=gen, **make)
        weight = torch.randn(self.hidden_size, generator=gen, **make)
        return x, weight, torch.empty_like(x)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.x, self.weight, self.out = self._prepare(dev_id, seed=42)
        return self.make_launcher(
            dev_id, torch.ops._C.rms_norm, self.out, self.x, self.weight, self.epsilon
        )

    def _check(self, out, x, weight):
        ref = _ref_rms_norm(x, weight, self.epsilon)
        self.verify.close(out, ref, name="result")
        least = 0.99999 if self.dtype is torch.bfloat16 else 0.999999
        self.verify.cosine(out, ref, least, reason=ROUNDING, name="result")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        x, weight, out = self._prepare(dev_id, seed=7)
        # Tokens of all magnitudes, from where epsilon decides to where it vanishes.
        powers = torch.arange(self.num_tokens, device=x.device) % 15 - 12
        x *= torch.exp2(powers).to(x.dtype).unsqueeze(-1)
        self.poison(out)
        torch.ops._C.rms_norm(out, x, weight, self.epsilon)
        self.synchronize(dev_id)
        return self._check(out, x, weight)

    def verify_timed(self, dev_id):
        rows = slice(None, None, max(1, self.num_tokens // 512))
        return self._check(self.out[rows], self.x[rows], self.weight)
