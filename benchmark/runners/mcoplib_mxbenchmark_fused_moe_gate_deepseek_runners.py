"""DeepSeek's router in one kernel: sigmoid, best groups, top k in them, weights normalised.

Call: ``mcoplib.op.fused_moe_gate_deepseek(gating_outputs, correction_bias, out_routing_weights, out_selected_experts, topk, renormalize, num_expert_group, topk_group, num_fused_shared_experts, routed_scaling_factor)``
Libraries: mcoplib

Arguments:
    gating_outputs: [num_tokens, num_experts], float32 or bfloat16; logits.
    correction_bias: [num_experts], float32; added to the scores for choosing.
    out_routing_weights: [num_tokens, topk], float32; written.
    out_selected_experts: [num_tokens, topk], int32; written.
    topk: int, experts chosen for a token.
    renormalize: bool; weights of a token are divided by their sum.
    num_expert_group, topk_group: int; groups, and groups kept for a token.
    num_fused_shared_experts: int; 0 where shared experts are computed apart.
    routed_scaling_factor: float, multiplied with the weights.
Parameters:
    num_tokens: 65536, so that one call moves more than the L2 cache holds.
    num_experts: 256 (DeepSeek-V3).
    num_expert_group, topk_group: 8 and 4 (DeepSeek-V3).
    topk: 8.
    renormalize: true.
    routed_scaling_factor: 2.5 (DeepSeek-V3).
    dtype: float32, of gating_outputs.
Pitfalls:
    - The argument list is inferred from how routers call it: check it against the library's header.
    - The bias decides who is chosen; the weights are the scores without it.
    - A group counts by the sum of its two best experts, not by its best.
    - The order within a token is free; weights belong to the experts written beside them.
    - Scaling comes after normalising: the weights of a token sum to routed_scaling_factor.
"""  # noqa: E501

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    from mcoplib import op
except ImportError:
    pass


def _ref_gate(gating_output, bias, num_expert_group, topk_group, topk):
    """gating_output: [num_tokens, num_experts]; returns float64 scores, chosen experts, margin.

    The margin is the least distance, within a token, between what is chosen and what is not.
    """
    scores = torch.sigmoid(gating_output.to(torch.float64))
    biased = scores + bias.to(torch.float64)
    num_tokens, num_experts = biased.shape
    grouped = biased.view(num_tokens, num_expert_group, num_experts // num_expert_group)
    best_two = grouped.topk(2, dim=-1).values
    group_scores = best_two.sum(dim=-1)
    chosen_groups = group_scores.topk(topk_group, dim=-1).indices
    group_open = torch.zeros_like(group_scores, dtype=torch.bool)
    group_open.scatter_(1, chosen_groups, True)
    expert_open = group_open.repeat_interleave(num_experts // num_expert_group, dim=1)
    candidates = torch.where(expert_open, biased, -torch.inf)
    experts = candidates.topk(topk, dim=-1).indices
    margin = torch.minimum(_margin(group_scores, topk_group), _margin(candidates, topk))
    return scores, experts, margin


def _margin(values, count):
    """How far the smallest of the ``count`` largest is above the next one, for each row."""
    if count == values.shape[-1]:
        return torch.full_like(values[:, 0], torch.inf)
    largest = values.topk(count + 1, dim=-1).values
    return largest[:, -2] - largest[:, -1]


def _ref_weights(scores, experts, renormalize, routed_scaling_factor):
    """Scores of the given experts without the bias, normalised and scaled, in float64."""
    # What is no expert fails as an index; here it must only not leave the table.
    weights = scores.gather(1, experts.to(torch.int64).clamp(0, scores.shape[1] - 1))
    if renormalize:
        total = weights.sum(dim=-1, keepdim=True)
        weights = weights / total
    return weights * routed_scaling_factor


class Fused_moe_gate_deepseek_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 65536)
        self.num_experts = config.get("num_experts", 256)
        self.num_expert_group = config.get("num_expert_group", 8)
        self.topk_group = config.get("topk_group", 4)
        self.topk = config.get("topk", 8)
        self.renormalize = config.get("renormalize", True)
        self.routed_scaling_factor = config.get("routed_scaling_factor", 2.5)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary(
            "Shape",
            f"({self.num_tokens} {self.num_experts} top {self.topk} of "
            f"{self.topk_group}/{self.num_expert_group} groups)",
        )
        state.add_element_count(self.scores.numel())
        self.moves(state, read=(self.scores, self.bias), written=self.outputs)

    def _choose(self, gating_output, bias):
        return _ref_gate(gating_output, bias, self.num_expert_group, self.topk_group, self.topk)

    def _prepare(self, dev_id, seed):
        device = self.device(dev_id)
        gen = self.generator(dev_id, seed)
        shape = (self.num_tokens, self.num_experts)
        logits = torch.randn(shape, dtype=self.dtype, device=device, generator=gen)
        bias = torch.randn(self.num_experts, dtype=torch.float32, device=device, generator=gen)
        bias *= 0.1
        # Where float32 cannot tell the chosen from the next, either choice is right; a token
        # whose choice is clear takes the place, so that every choice can be checked.
        clear = self._choose(logits, bias)[2] > 1e-5
        logits = torch.where(clear.unsqueeze(1), logits, logits[clear.to(torch.int8).argmax()])
        chosen = (self.num_tokens, self.topk)
        outputs = (
            torch.empty(chosen, dtype=torch.float32, device=device),
            torch.empty(chosen, dtype=torch.int32, device=device),
        )
        return logits, bias, outputs

    def _arguments(self, gating_outputs, correction_bias, outputs):
        return (
            gating_outputs,
            correction_bias,
            *outputs,
            self.topk,
            self.renormalize,
            self.num_expert_group,
            self.topk_group,
            0,
            self.routed_scaling_factor,
        )

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.scores, self.bias, self.outputs = self._prepare(dev_id, seed=42)
        return self.make_launcher(
            dev_id,
            op.fused_moe_gate_deepseek,
            *self._arguments(self.scores, self.bias, self.outputs),
        )

    def _check(self, gating_output, bias, weights, experts):
        scores, chosen, _ = self._choose(gating_output, bias)
        self.verify.unordered(experts, chosen.to(experts.dtype), name="out_selected_experts")
        ref = _ref_weights(scores, experts, self.renormalize, self.routed_scaling_factor)
        self.verify.close(weights, ref, name="out_routing_weights")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        gating_outputs, correction_bias, outputs = self._prepare(dev_id, seed=7)
        self.poison(*outputs)
        op.fused_moe_gate_deepseek(*self._arguments(gating_outputs, correction_bias, outputs))
        self.synchronize(dev_id)
        return self._check(gating_outputs, correction_bias, *outputs)

    def verify_timed(self, dev_id):
        return self._check(self.scores, self.bias, *self.outputs)
