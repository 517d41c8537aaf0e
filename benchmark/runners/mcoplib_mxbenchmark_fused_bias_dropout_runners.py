"""A bias added to each token, then dropout: kept values are scaled by 1 / (1 - probability).

Call: ``mcoplib.op.fused_bias_dropout(input, bias, dropout_prob)``
Libraries: mcoplib

Arguments:
    input: [num_tokens, hidden_size], float16, bfloat16 or float32; contiguous.
    bias: [hidden_size], dtype of input.
    dropout_prob: float in [0, 1); share of values that become zero.
    returns: [num_tokens, hidden_size], dtype of input.
Parameters:
    num_tokens: 8192, so that one call moves more than the L2 cache holds.
    hidden_size: 8192 (Llama-3 70B), 5120 (Qwen3 32B), 7168 (DeepSeek-V3).
    dropout_prob: 0.1.
    dtype: bfloat16.
Pitfalls:
    - The argument list is inferred from the operator's name: check it against the library's header.
    - Which values are dropped is random: check those kept, that all else is zero, and the shares.
    - A share that is right on the whole hides dropped tokens or channels: check each one's.
    - A probability of zero drops nothing: there every value has a reference.
    - The bias is added before dropping: a dropped value is zero, not the bias.
"""

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    from mcoplib import op
except ImportError:
    pass

# Standard deviations that the kept share of a token or channel may be off: by chance less than
# once in 10^11 of them.
_DEVIATIONS = 7.0
_REASON = "a share of random events: seven standard deviations of it"


def _ref_bias_dropout(input, bias, kept, dropout_prob):
    """kept: [num_tokens, hidden_size] bool; returns float32, not rounded."""
    wide = input.to(torch.float32)
    biased = wide + bias.to(torch.float32)
    scaled = biased / (1.0 - dropout_prob)
    return torch.where(kept, scaled, torch.zeros_like(scaled))


class Fused_bias_dropout_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 8192)
        self.hidden_size = config.get("hidden_size", 8192)
        self.dropout_prob = config.get("dropout_prob", 0.1)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary("Shape", f"({self.num_tokens} {self.hidden_size})")
        state.add_element_count(self.out.numel())
        self.moves(state, read=(self.input, self.bias), written=(self.out,))

    def _prepare(self, dev_id, seed):
        make = {"dtype": self.dtype, "device": self.device(dev_id)}
        gen = self.generator(dev_id, seed)
        input = torch.randn(self.num_tokens, self.hidden_size, generator=gen, **make)
        bias = torch.randn(self.hidden_size, generator=gen, **make)
        return input, bias

    def _call(self, input, bias, dropout_prob):
        self.out = op.fused_bias_dropout(input, bias, dropout_prob)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.input, self.bias = self._prepare(dev_id, seed=42)
        return self.make_launcher(dev_id, self._call, self.input, self.bias, self.dropout_prob)

    def _check(self, input, bias, dropout_prob):
        kept = self.out != 0
        if dropout_prob == 0:
            kept = torch.ones_like(kept)
        else:
            self._check_share(kept.double().mean(dim=1), self.hidden_size, "kept in tokens")
            self._check_share(kept.double().mean(dim=0), self.num_tokens, "kept in channels")
        ref = _ref_bias_dropout(input, bias, kept, dropout_prob)
        # Not by cosine: whether the sum is rounded before it is scaled, 0.999999 can tell.
        self.verify.close(self.out, ref, name="output")

    def _check_share(self, share, count, name):
        """share: [rows]; of count values each was kept with the probability 1 - dropout_prob."""
        keep = 1.0 - self.dropout_prob
        deviation = (self.dropout_prob / keep / count) ** 0.5
        expected = torch.full_like(share, keep)
        self.verify.close(share, expected, limit=_DEVIATIONS * deviation, reason=_REASON, name=name)

    def run_verification(self, dev_id):
        input, bias = self._prepare(dev_id, seed=7)
        # A sum of zero looks dropped.
        input = torch.where(input + bias == 0, torch.ones_like(input), input)
        for dropout_prob in (0.0, self.dropout_prob):
            self._call(input, bias, dropout_prob)
            self.synchronize(dev_id)
            self._check(input, bias, dropout_prob)
        return self.verify.verdict()

    def verify_timed(self, dev_id):
        self._check(self.input, self.bias, self.dropout_prob)
        return self.verify.verdict()
