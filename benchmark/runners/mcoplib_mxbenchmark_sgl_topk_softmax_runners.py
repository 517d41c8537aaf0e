"""Softmax over the experts of each token and the top k of it, as SGLang's router has it.

Call: ``torch.ops.sgl_kernel.topk_softmax(topk_weights, topk_indices, gating_output, renormalize, moe_softcapping, correction_bias)``
Libraries: sgl_kernel, mcoplib

Arguments:
    topk_weights: [num_tokens, topk], float32; written: the chosen experts' probabilities.
    topk_indices: [num_tokens, topk], int32; written: the chosen experts.
    gating_output: [num_tokens, num_experts], float32 (newer libraries float16 and bfloat16 too).
    renormalize: bool; the written weights of a token then sum to one.
    moe_softcapping: float; 0 leaves the logits as they are. Absent from older libraries.
    correction_bias: [num_experts], float32, or None. Absent from older libraries.
Parameters:
    num_tokens: 131072, so that one call moves more than the L2 cache holds.
    num_experts: 256 (DeepSeek-V3), 128 (Qwen3 MoE).
    topk: 8.
    renormalize: true (DeepSeek-V3 and Qwen3 MoE normalise the chosen weights).
    dtype: float32, of gating_output.
Pitfalls:
    - Libraries differ in their arguments; they are given by the names in the library's schema.
    - Probabilities come from the softmax over all experts, not over the chosen ones.
    - Equal logits may be chosen in any order; compare the probabilities that the indices pick.
    - vLLM's operator of the same name has another argument list: it has a runner of its own.
"""  # noqa: E501

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib.sgl_kernel  # noqa: F401 - registers torch.ops.sgl_kernel
except ImportError:
    pass

# Steps of float32 that rank alike, relative to a token's largest probability.
_RANKING = 1e-5


def _ref_softmax(gating_output):
    """gating_output: [num_tokens, num_experts]; returns the probabilities in float32."""
    wide = gating_output.to(torch.float32)
    largest = wide.amax(dim=-1, keepdim=True)
    exponentials = torch.exp(wide - largest)
    total = exponentials.sum(dim=-1, keepdim=True)
    return exponentials / total


def _ref_weights(probabilities, topk_indices, renormalize):
    """Probabilities of the chosen experts, [num_tokens, topk]."""
    # What is no expert fails as an index; here it must only not leave the table.
    experts = topk_indices.to(torch.int64).clamp(0, probabilities.shape[-1] - 1)
    weights = probabilities.gather(-1, experts)
    if not renormalize:
        return weights
    total = weights.sum(dim=-1, keepdim=True)
    return weights / total


class Sgl_topk_softmax_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 131072)
        self.num_experts = config.get("num_experts", 256)
        self.topk = config.get("topk", 8)
        self.renormalize = config.get("renormalize", True)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary("Shape", f"({self.num_tokens} {self.num_experts} top {self.topk})")
        state.add_element_count(self.gating_output.numel())
        self.moves(state, read=(self.gating_output,), written=self.outputs)

    def _prepare(self, dev_id, seed):
        device = self.device(dev_id)
        gating_output = torch.randn(
            self.num_tokens,
            self.num_experts,
            dtype=self.dtype,
            device=device,
            generator=self.generator(dev_id, seed),
        )
        shape = (self.num_tokens, self.topk)
        outputs = (
            torch.empty(shape, dtype=torch.float32, device=device),
            torch.empty(shape, dtype=torch.int32, device=device),
        )
        return gating_output, outputs

    def _arguments(self, gating_output, outputs):
        """The arguments in the order of the library's schema."""
        topk_weights, topk_indices = outputs
        known = {
            "topk_weights": topk_weights,
            "topk_indices": topk_indices,
            "topk_ids": topk_indices,
            "gating_output": gating_output,
            "renormalize": self.renormalize,
            "moe_softcapping": 0.0,
            "correction_bias": None,
            "bias": None,
        }
        schema = torch.ops.sgl_kernel.topk_softmax.default._schema
        names = [argument.name for argument in schema.arguments]
        strange = [name for name in names if name not in known]
        if strange or "renormalize" not in names:
            raise ValueError(
                f"this library's topk_softmax takes ({', '.join(names)}), which this runner "
                "cannot give; add what is new to its _arguments"
            )
        return [known[name] for name in names]

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.gating_output, self.outputs = self._prepare(dev_id, seed=42)
        return self.make_launcher(
            dev_id,
            torch.ops.sgl_kernel.topk_softmax,
            *self._arguments(self.gating_output, self.outputs),
        )

    def _check(self, gating_output, outputs):
        topk_weights, topk_indices = outputs
        probabilities = _ref_softmax(gating_output)
        # Kernels rank probabilities that their own exp has rounded.
        self.verify.topk(None, topk_indices, probabilities, limit=_RANKING, name="topk_indices")
        weights = _ref_weights(probabilities, topk_indices, self.renormalize)
        self.verify.close(topk_weights, weights, name="topk_weights")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        gating_output, outputs = self._prepare(dev_id, seed=7)
        self.poison(*outputs)
        torch.ops.sgl_kernel.topk_softmax(*self._arguments(gating_output, outputs))
        self.synchronize(dev_id)
        return self._check(gating_output, outputs)

    def verify_timed(self, dev_id):
        return self._check(self.gating_output, self.outputs)
