"""Merges the attention over a prefix and over a suffix of the keys by their log-sum-exp.

Call: ``torch.ops._C.merge_attn_states(output, output_lse, prefix_output, prefix_lse,
    suffix_output, suffix_lse, prefill_tokens_with_context)``
Libraries: vllm, mcoplib

Arguments:
    output: [num_tokens, num_heads, head_size], written.
    output_lse: [num_heads, num_tokens], float32, written.
    prefix_output: [num_tokens, num_heads, head_size], float16, bfloat16 or float32.
    prefix_lse: [num_heads, num_tokens], float32.
    suffix_output: like prefix_output.
    suffix_lse: like prefix_lse.
    prefill_tokens_with_context: None: all tokens have a prefix; mcoplib and older vllm have no
        such argument.
Parameters:
    num_heads: 64 (Llama-3 70B, Qwen3 32B), 128 (DeepSeek-V3).
    head_size: 128 (all three, DeepSeek-V3's value heads).
    num_tokens: 4096, a chunk of a prefill; 205 MB move with 64 heads.
Pitfalls:
    - Six arguments or more: the registered schema decides whether None is passed for the seventh.
    - The log-sum-exp is [num_heads, num_tokens], the outputs have tokens first.
    - An infinite log-sum-exp, of either sign, says that its side saw no key: it weighs nothing.
    - Weights come from differences to the larger log-sum-exp: exp of the value itself overflows.
"""

import math

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C  # noqa: F401
except ImportError:
    pass


def _ref_merge_attn_states(prefix_output, prefix_lse, suffix_output, suffix_lse):
    """The merged output [tokens, heads, head_size] and log-sum-exp [heads, tokens]."""
    prefix = prefix_lse.masked_fill(torch.isinf(prefix_lse), -math.inf).to(torch.float64)
    suffix = suffix_lse.masked_fill(torch.isinf(suffix_lse), -math.inf).to(torch.float64)
    larger = torch.maximum(prefix, suffix)
    prefix_sum = torch.exp(prefix - larger)
    suffix_sum = torch.exp(suffix - larger)
    total = prefix_sum + suffix_sum
    merged_lse = torch.log(total) + larger
    # [heads, tokens] -> [tokens, heads, 1]
    prefix_weight = (prefix_sum / total).t().unsqueeze(-1)
    suffix_weight = (suffix_sum / total).t().unsqueeze(-1)
    prefix_part = prefix_output.to(torch.float64) * prefix_weight
    suffix_part = suffix_output.to(torch.float64) * suffix_weight
    merged = prefix_part + suffix_part
    return merged.to(prefix_output.dtype), merged_lse.to(torch.float32)


class Merge_attn_states_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 4096)
        self.num_heads = config.get("num_heads", 64)
        self.head_size = config.get("head_size", 128)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary("Shape", f"(T={self.num_tokens} H={self.num_heads} D={self.head_size})")
        state.add_element_count(self.output.numel())
        self.moves(state, read=self.inputs, written=(self.output, self.output_lse))

    def _prepare(self, dev_id, seed, num_tokens):
        gen = self.generator(dev_id, seed)
        device = self.device(dev_id)
        make = {"dtype": self.dtype, "device": device, "generator": gen}
        wide = {"dtype": torch.float32, "device": device, "generator": gen}
        shape = (num_tokens, self.num_heads, self.head_size)
        prefix_output = torch.randn(shape, **make)
        suffix_output = torch.randn(shape, **make)
        # About as a few thousand keys have it.
        prefix_lse = torch.randn(self.num_heads, num_tokens, **wide) + 8.0
        suffix_lse = torch.randn(self.num_heads, num_tokens, **wide) + 8.0
        return prefix_output, prefix_lse, suffix_output, suffix_lse

    def _arguments(self, output, output_lse, inputs):
        schema = torch.ops._C.merge_attn_states.default._schema
        names = [argument.name for argument in schema.arguments]
        trailing = (None,) if "prefill_tokens_with_context" in names else ()
        return (output, output_lse, *inputs, *trailing)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.inputs = self._prepare(dev_id, 42, self.num_tokens)
            self.output = torch.empty_like(self.inputs[0])
            self.output_lse = torch.empty_like(self.inputs[1])
        arguments = self._arguments(self.output, self.output_lse, self.inputs)
        return self.make_launcher(dev_id, torch.ops._C.merge_attn_states, *arguments)

    def run_verification(self, dev_id):
        inputs = self._prepare(dev_id, 7, min(self.num_tokens, 512))
        _, prefix_lse, _, suffix_lse = inputs
        # Sides that saw no key, said in both ways, and one that outweighs the other by far.
        prefix_lse[:, 0] = math.inf
        prefix_lse[:, 1] = -math.inf
        suffix_lse[:, 2] = math.inf
        suffix_lse[:, 3] = -math.inf
        suffix_lse[:, 4] = 300.0
        output = torch.empty_like(inputs[0])
        output_lse = torch.empty_like(prefix_lse)
        self.poison(output, output_lse)
        torch.ops._C.merge_attn_states(*self._arguments(output, output_lse, inputs))
        self.synchronize(dev_id)
        self._compare(output, output_lse, inputs, "")
        return self.verify.verdict()

    def _compare(self, output, output_lse, inputs, prefix):
        expected, expected_lse = _ref_merge_attn_states(*inputs)
        self.verify.close(output, expected, name=f"{prefix}output")
        self.verify.cosine(output, expected, name=f"{prefix}output")
        self.verify.close(output_lse, expected_lse, name=f"{prefix}output_lse")

    def verify_timed(self, dev_id):
        count = min(self.num_tokens, 256)
        prefix_output, prefix_lse, suffix_output, suffix_lse = self.inputs
        inputs = (
            *(prefix_output[:count], prefix_lse[:, :count]),
            *(suffix_output[:count], suffix_lse[:, :count]),
        )
        self._compare(self.output[:count], self.output_lse[:, :count], inputs, "timed ")
        return self.verify.verdict()
