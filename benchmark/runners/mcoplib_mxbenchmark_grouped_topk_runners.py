"""Sigmoid scores of the experts, the best groups by their two best experts, the top k in those.

Call: ``torch.ops._moe_C.grouped_topk(scores, n_group, topk_group, topk, renormalize, routed_scaling_factor, bias, scoring_func)``
Libraries: vllm, mcoplib

Arguments:
    scores: [num_tokens, num_experts], float32, float16 or bfloat16; logits for scoring_func 1.
    n_group, topk_group, topk: int; groups, groups kept for a token, experts chosen for it.
    renormalize: bool; weights of a token are divided by their sum.
    routed_scaling_factor: float, multiplied with the weights.
    bias: [num_experts], float32; added to the scores for choosing.
    scoring_func: int; 0 takes scores as they are, 1 their sigmoid.
    returns: (weights [num_tokens, topk] float32, experts [num_tokens, topk] int32).
Parameters:
    num_tokens: 65536, so that one call moves more than the L2 cache holds.
    num_experts: 256 (DeepSeek-V3).
    num_expert_group, topk_group: 8 and 4 (DeepSeek-V3).
    topk: 8.
    renormalize: true.
    routed_scaling_factor: 2.5 (DeepSeek-V3).
    dtype: float32, of scores.
Pitfalls:
    - The bias decides who is chosen; the weights are the scores without it.
    - A group counts by the sum of its two best experts, not by its best.
    - Experts of groups that are not kept cannot be chosen, however high they score.
    - Scaling comes after normalising: the weights of a token sum to routed_scaling_factor.
    - Older libraries take biased scores as a second tensor instead of bias and scoring_func.
"""  # noqa: E501

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._moe_C  # noqa: F401 - registers torch.ops._moe_C
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


class Grouped_topk_runner(OpBenchmarkBase):
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
        return logits, bias

    def _call(self, scores, bias):
        self.outputs = torch.ops._moe_C.grouped_topk(
            scores,
            self.num_expert_group,
            self.topk_group,
            self.topk,
            self.renormalize,
            self.routed_scaling_factor,
            bias,
            1,
        )

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.scores, self.bias = self._prepare(dev_id, seed=42)
        return self.make_launcher(dev_id, self._call, self.scores, self.bias)

    def _check(self, gating_output, bias, weights, experts):
        scores, chosen, _ = self._choose(gating_output, bias)
        self.verify.unordered(experts, chosen.to(experts.dtype), name="experts")
        ref = _ref_weights(scores, experts, self.renormalize, self.routed_scaling_factor)
        self.verify.close(weights, ref, name="weights")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        scores, bias = self._prepare(dev_id, seed=7)
        self._call(scores, bias)
        self.synchronize(dev_id)
        return self._check(scores, bias, *self.outputs)

    def verify_timed(self, dev_id):
        return self._check(self.scores, self.bias, *self.outputs)
