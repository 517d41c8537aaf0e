"""Token slots sorted by expert, each expert's share padded to whole blocks.

Call: ``torch.ops._moe_C.moe_align_block_size(topk_ids, num_experts, block_size, sorted_token_ids, experts_ids, num_tokens_post_pad, maybe_expert_map)``
Libraries: vllm, mcoplib

Arguments:
    topk_ids: [num_tokens, topk], int32; experts of each token.
    num_experts, block_size: int.
    sorted_token_ids: [num_tokens * topk + num_experts * (block_size - 1)], int32; written.
    experts_ids: [blocks that sorted_token_ids can hold], int32; written: the expert of each block.
    num_tokens_post_pad: [1], int32; written: how much of sorted_token_ids counts.
    maybe_expert_map: [num_experts], int32, or None; absent from libraries with six arguments.
Parameters:
    num_tokens: 131072, 256 (one decoding step); the work is counting, not bandwidth.
    topk: 8 (DeepSeek-V3).
    num_experts: 256 (DeepSeek-V3).
    block_size: 64.
    dtype: int32, of topk_ids.
Pitfalls:
    - Ids are positions in the flattened topk_ids, not tokens; padding is num_tokens * topk.
    - Padding is written by the operator; older libraries leave it to the caller.
    - The order of ids within an expert is free: threads count concurrently.
    - An expert that nobody chose has no block.
    - What lies behind num_tokens_post_pad has no meaning.
"""  # noqa: E501

import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._moe_C  # noqa: F401 - registers torch.ops._moe_C
except ImportError:
    pass


def _ref_moe_align(topk_ids, num_experts, block_size):
    """Returns sorted ids (ascending within an expert), expert of each block, padded length."""
    flat = topk_ids.reshape(-1).to(torch.int64)
    counts = torch.bincount(flat, minlength=num_experts)
    blocks = (counts + block_size - 1) // block_size
    experts = torch.arange(num_experts, device=flat.device)
    expert_of_block = experts.repeat_interleave(blocks)
    padded = blocks * block_size
    padded_start = padded.cumsum(0) - padded
    start = counts.cumsum(0) - counts
    by_expert = flat.argsort(stable=True)
    sorted_expert = flat[by_expert]
    rank = torch.arange(flat.numel(), device=flat.device) - start[sorted_expert]
    length = int(padded.sum())
    sorted_ids = torch.full((length,), flat.numel(), device=flat.device)
    sorted_ids[padded_start[sorted_expert] + rank] = by_expert
    return sorted_ids, expert_of_block, length


def _sorted_within_experts(ids, expert_of_slot):
    """ids in ascending order within each expert's slots; the slots keep their experts."""
    # An int32 id takes 32 bits: no id of one expert can be mistaken for another expert's.
    keys = (expert_of_slot << 32) + ids.to(torch.int64)
    return keys.sort().values - (expert_of_slot << 32)


class Moe_align_block_size_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 131072)
        self.topk = config.get("topk", 8)
        self.num_experts = config.get("num_experts", 256)
        self.block_size = config.get("block_size", 64)

    def define_metrics(self, state):
        _, expert_of_block, length = _ref_moe_align(
            self.topk_ids, self.num_experts, self.block_size
        )
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).removeprefix("torch."))
        state.add_summary(
            "Shape", f"({self.topk_ids.numel()} {self.num_experts} {self.block_size})"
        )
        state.add_element_count(self.topk_ids.numel())
        four = torch.int32.itemsize
        written = (length * four, expert_of_block.numel() * four, self.outputs[2])
        self.moves(state, read=(self.topk_ids,), written=written)

    def _prepare(self, dev_id, seed):
        device = self.device(dev_id)
        gen = self.generator(dev_id, seed)
        # Some experts are chosen by nobody, others by many; no token chooses one twice.
        wish = torch.rand(self.num_tokens, self.num_experts, device=device, generator=gen)
        wish += torch.rand(self.num_experts, device=device, generator=gen)
        wish[:, self.num_experts // 3] = -1.0
        topk_ids = wish.topk(self.topk, dim=-1).indices.to(self.dtype)
        slots = topk_ids.numel() + self.num_experts * (self.block_size - 1)
        slots = min(slots, topk_ids.numel() * self.block_size)
        make = {"dtype": torch.int32, "device": device}
        outputs = (
            torch.empty(slots, **make),
            torch.empty(-(-slots // self.block_size), **make),
            torch.empty(1, **make),
        )
        return topk_ids, outputs

    def _arguments(self, topk_ids, outputs):
        """As many arguments as the library's schema has: the expert map came later."""
        given = (topk_ids, self.num_experts, self.block_size, *outputs, None)
        schema = torch.ops._moe_C.moe_align_block_size.default._schema
        return given[: len(schema.arguments)]

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with self.stream(tc_s):
            self.topk_ids, self.outputs = self._prepare(dev_id, seed=42)
        return self.make_launcher(
            dev_id,
            torch.ops._moe_C.moe_align_block_size,
            *self._arguments(self.topk_ids, self.outputs),
        )

    def _check(self, topk_ids, outputs):
        sorted_token_ids, experts_ids, num_tokens_post_pad = outputs
        ref_ids, ref_experts, length = _ref_moe_align(topk_ids, self.num_experts, self.block_size)
        ref_length = torch.full_like(num_tokens_post_pad, length)
        self.verify.exact(num_tokens_post_pad, ref_length, name="num_tokens_post_pad")
        blocks = experts_ids[: ref_experts.numel()]
        self.verify.exact(blocks, ref_experts.to(blocks.dtype), name="experts_ids")
        expert_of_slot = ref_experts.repeat_interleave(self.block_size)
        ids = _sorted_within_experts(sorted_token_ids[:length], expert_of_slot)
        self.verify.exact(ids, ref_ids, name="sorted_token_ids")
        return self.verify.verdict()

    def run_verification(self, dev_id):
        topk_ids, outputs = self._prepare(dev_id, seed=7)
        self.poison(*outputs)
        torch.ops._moe_C.moe_align_block_size(*self._arguments(topk_ids, outputs))
        self.synchronize(dev_id)
        return self._check(topk_ids, outputs)

    def verify_timed(self, dev_id):
        return self._check(self.topk_ids, self.outputs)
