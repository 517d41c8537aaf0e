"""Routers, sums and alignment of mixtures of experts, token by token in Python and numpy."""

from __future__ import annotations

import math
from typing import Any

import torch
from faults import Subject, part

TINY_GATE = {
    "num_tokens": 9,
    "num_experts": 24,
    "num_expert_group": 4,
    "topk_group": 2,
    "topk": 3,
}


def _route(
    row: list[float], topk: int, renormalize: bool, *, softmax_of_chosen: bool = False
) -> tuple[list[float], list[int]]:
    """Weights and experts of one token's logits, the best first."""
    order = sorted(range(len(row)), key=lambda expert: -row[expert])[:topk]
    over = order if softmax_of_chosen else range(len(row))
    total = math.fsum(math.exp(row[expert]) for expert in over)
    weights = [math.exp(row[expert]) / total for expert in order]
    if renormalize:
        weights = [weight / math.fsum(weights) for weight in weights]
    return weights, order


def _topk_softmax(
    topk_weights: Any,
    topk_indices: Any,
    gating_output: Any,
    renormalize: bool,
    *,
    forget: bool = False,
    second_best: bool = False,
    **wrong: bool,
) -> None:
    topk = topk_weights.shape[1]
    for token, row in enumerate(gating_output.double().tolist()):
        taken = topk + second_best
        weights, experts = _route(row, taken, renormalize != forget, **wrong)
        topk_weights[token] = torch.tensor(weights[taken - topk :])
        topk_indices[token] = torch.tensor(experts[taken - topk :])


def vllm_topk_softmax(
    topk_weights: Any,
    topk_indices: Any,
    token_expert_indices: Any,
    gating_output: Any,
    renormalize: bool,
    bias: Any = None,
    *,
    transposed: bool = False,
    **wrong: bool,
) -> None:
    assert bias is None
    _topk_softmax(topk_weights, topk_indices, gating_output, renormalize, **wrong)
    tokens, topk = topk_weights.shape
    for token in range(tokens):
        for choice in range(topk):
            slot = token * topk + choice if transposed else choice * tokens + token
            token_expert_indices[token, choice] = slot


def sgl_topk_softmax(
    topk_weights: Any,
    topk_indices: Any,
    gating_output: Any,
    renormalize: bool,
    moe_softcapping: float,
    correction_bias: Any,
    **wrong: bool,
) -> None:
    assert moe_softcapping == 0.0 and correction_bias is None
    _topk_softmax(topk_weights, topk_indices, gating_output, renormalize, **wrong)


def top_k_per_row_decode(
    logits: Any,
    next_n: int,
    seq_lens: Any,
    indices: Any,
    numRows: int,
    stride0: int,
    stride1: int,
    topK: int,
    *,
    ends: str = "own",
    smallest: bool = False,
    padding: int = -1,
) -> None:
    flat = logits.reshape(-1).tolist()
    for row in range(numRows):
        end = int(seq_lens[row // next_n])
        if ends == "own":
            end -= next_n - 1 - row % next_n
        elif ends == "none":
            end = logits.shape[1]
        values = [flat[row * stride0 + column * stride1] for column in range(end)]
        order = sorted(range(end), key=lambda column: values[column], reverse=not smallest)[:topK]
        # From the last to the first: the order is free.
        indices[row] = torch.tensor(order[::-1] + [padding] * (topK - len(order)))


def _gate(
    logits: Any,
    bias: Any,
    groups: int,
    kept: int,
    topk: int,
    renormalize: bool,
    factor: float,
    *,
    group_by: str = "two best",
    weight_by: str = "score",
    scale_first: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    all_weights, all_experts = [], []
    for row in logits.double().tolist():
        score = [1.0 / (1.0 + math.exp(-value)) for value in row]
        biased = [one + float(two) for one, two in zip(score, bias, strict=True)]
        size = len(row) // groups
        members = [range(group * size, (group + 1) * size) for group in range(groups)]
        best = [sorted((biased[e] for e in group), reverse=True) for group in members]
        count = {"two best": 2, "best": 1, "all": size}[group_by]
        ranked = sorted(range(groups), key=lambda group: -sum(best[group][:count]))
        open_groups = ranked[: groups if group_by == "all" else kept]
        candidates = [expert for group in open_groups for expert in members[group]]
        experts = sorted(candidates, key=lambda expert: -biased[expert])[:topk]
        weights = [(biased if weight_by == "biased" else score)[expert] for expert in experts]
        if scale_first:
            weights = [weight * factor for weight in weights]
        if renormalize:
            weights = [weight / math.fsum(weights) for weight in weights]
        if not scale_first:
            weights = [weight * factor for weight in weights]
        all_weights.append(weights)
        all_experts.append(experts)
    return torch.tensor(all_weights), torch.tensor(all_experts, dtype=torch.int32)


def grouped_topk(
    scores: Any,
    n_group: int,
    topk_group: int,
    topk: int,
    renormalize: bool,
    routed_scaling_factor: float,
    bias: Any,
    scoring_func: int,
    **wrong: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    assert scoring_func == 1
    return _gate(
        scores, bias, n_group, topk_group, topk, renormalize, routed_scaling_factor, **wrong
    )


def _with_one_wrong(index: int, value: float) -> Any:
    """``grouped_topk`` with one value of one of its two results changed."""

    def kernel(*args: Any) -> tuple[torch.Tensor, torch.Tensor]:
        results = grouped_topk(*args)
        results[index][4, 1] = value
        return results

    return kernel


def fused_moe_gate_deepseek(
    gating_outputs: Any,
    correction_bias: Any,
    out_routing_weights: Any,
    out_selected_experts: Any,
    topk: int,
    renormalize: bool,
    num_expert_group: int,
    topk_group: int,
    num_fused_shared_experts: int,
    routed_scaling_factor: float,
    **wrong: Any,
) -> None:
    assert num_fused_shared_experts == 0
    weights, experts = _gate(
        gating_outputs,
        correction_bias,
        num_expert_group,
        topk_group,
        topk,
        renormalize,
        routed_scaling_factor,
        **wrong,
    )
    # The order within a token is free.
    out_routing_weights.copy_(weights.flip(1))
    out_selected_experts.copy_(experts.flip(1))


def moe_sum(input: Any, output: Any, *, forget: int = 0, mean: bool = False) -> None:
    for token in range(input.shape[0]):
        columns = zip(*input[token, forget:].double().tolist(), strict=True)
        total = torch.tensor([math.fsum(column) for column in columns], dtype=torch.float64)
        output[token] = total / input.shape[1] if mean else total


def moe_align_block_size(
    topk_ids: Any,
    num_experts: int,
    block_size: int,
    sorted_token_ids: Any,
    experts_ids: Any,
    num_tokens_post_pad: Any,
    maybe_expert_map: Any = None,
    *,
    pad: bool = True,
    tokens: bool = False,
    padding: int | None = None,
    empty_block: bool = False,
) -> None:
    assert maybe_expert_map is None
    flat = topk_ids.reshape(-1).tolist()
    padding = len(flat) if padding is None else padding
    ids: list[int] = []
    experts: list[int] = []
    for expert in range(num_experts):
        mine = [slot for slot, chosen in enumerate(flat) if chosen == expert]
        mine.reverse()
        missing = -len(mine) % block_size
        if empty_block and not mine:
            missing = block_size
        mine = [slot // topk_ids.shape[1] for slot in mine] if tokens else mine
        ids += mine + [padding] * (missing if pad else 0)
        experts += [expert] * ((len(mine) + missing) // block_size)
    num_tokens_post_pad[0] = len(ids)
    sorted_token_ids.fill_(len(flat))
    sorted_token_ids[: len(ids)] = torch.tensor(ids)
    experts_ids.fill_(-1)
    experts_ids[: len(experts)] = torch.tensor(experts)


VLLM_TOPK = (
    "topk_softmax(Tensor! topk_weights, Tensor! topk_indices, Tensor! token_expert_indices, "
    "Tensor gating_output, bool renormalize, Tensor? bias) -> ()"
)
SGL_TOPK = (
    "topk_softmax(Tensor! topk_weights, Tensor! topk_indices, Tensor gating_output, "
    "bool renormalize, float moe_softcapping, Tensor? correction_bias) -> ()"
)
TOPK_FAULTS = {
    "renormalisation-forgotten": {"forget": True},
    "best-expert-missed": {"second_best": True},
}
GATE_FAULTS: dict[str, dict[str, Any]] = {
    "groups-by-their-best": {"group_by": "best"},
    "all-groups-kept": {"group_by": "all"},
    "weights-with-bias": {"weight_by": "biased"},
    "scaled-before-normalised": {"scale_first": True},
}

SUBJECTS = [
    Subject(
        op="vllm_topk_softmax",
        namespace="_moe_C",
        schema=VLLM_TOPK,
        kernel=vllm_topk_softmax,
        parameters={"num_tokens": 9, "num_experts": 16, "topk": 3},
        wrong={
            **{name: part(vllm_topk_softmax, **fault) for name, fault in TOPK_FAULTS.items()},
            "slots-transposed": part(vllm_topk_softmax, transposed=True),
        },
    ),
    Subject(
        op="vllm_topk_softmax",
        label="not-renormalised",
        namespace="_moe_C",
        schema=VLLM_TOPK,
        kernel=vllm_topk_softmax,
        parameters={"num_tokens": 5, "num_experts": 8, "topk": 2, "renormalize": False},
        wrong={
            "renormalised": part(vllm_topk_softmax, forget=True),
            "softmax-of-the-chosen": part(vllm_topk_softmax, softmax_of_chosen=True),
        },
    ),
    Subject(
        op="sgl_topk_softmax",
        namespace="sgl_kernel",
        schema=SGL_TOPK,
        kernel=sgl_topk_softmax,
        parameters={"num_tokens": 9, "num_experts": 16, "topk": 3},
        wrong={name: part(sgl_topk_softmax, **fault) for name, fault in TOPK_FAULTS.items()},
    ),
    Subject(
        op="top_k_per_row_decode",
        namespace="_C",
        schema=(
            "top_k_per_row_decode(Tensor logits, int next_n, Tensor seq_lens, Tensor! indices, "
            "int numRows, int stride0, int stride1, int topK) -> ()"
        ),
        kernel=top_k_per_row_decode,
        parameters={"batch_size": 4, "next_n": 2, "context_len": 64, "topk": 8},
        wrong={
            "whole-context": part(top_k_per_row_decode, ends="none"),
            "sequence-length-for-every-row": part(top_k_per_row_decode, ends="sequence"),
            "smallest": part(top_k_per_row_decode, smallest=True),
            "padded-with-zero": part(top_k_per_row_decode, padding=0),
        },
    ),
    Subject(
        op="grouped_topk",
        namespace="_moe_C",
        schema=(
            "grouped_topk(Tensor scores, int n_group, int topk_group, int topk, "
            "bool renormalize, float routed_scaling_factor, Tensor bias, int scoring_func) "
            "-> (Tensor, Tensor)"
        ),
        kernel=grouped_topk,
        parameters=TINY_GATE,
        wrong={
            **{name: part(grouped_topk, **fault) for name, fault in GATE_FAULTS.items()},
            "one-weight": _with_one_wrong(0, 0.25),
            "one-expert": _with_one_wrong(1, 25.0),
        },
    ),
    Subject(
        op="fused_moe_gate_deepseek",
        namespace="mcoplib.op",
        schema=(
            "fused_moe_gate_deepseek(Tensor gating_outputs, Tensor correction_bias, "
            "Tensor! out_routing_weights, Tensor! out_selected_experts, int topk, "
            "bool renormalize, int num_expert_group, int topk_group, "
            "int num_fused_shared_experts, float routed_scaling_factor) -> ()"
        ),
        kernel=fused_moe_gate_deepseek,
        parameters=TINY_GATE,
        wrong={name: part(fused_moe_gate_deepseek, **fault) for name, fault in GATE_FAULTS.items()},
    ),
    *(
        Subject(
            op="moe_sum",
            label=f"top{topk}",
            namespace="_moe_C",
            schema="moe_sum(Tensor input, Tensor! output) -> ()",
            kernel=moe_sum,
            parameters={"num_tokens": 7, "topk": topk, "hidden_size": 48},
            wrong={
                "first-choice-forgotten": part(moe_sum, forget=1),
                "mean": part(moe_sum, mean=True),
            },
        )
        for topk in (3, 8)
    ),
    Subject(
        op="moe_align_block_size",
        namespace="_moe_C",
        schema=(
            "moe_align_block_size(Tensor topk_ids, int num_experts, int block_size, "
            "Tensor! sorted_token_ids, Tensor! experts_ids, Tensor! num_tokens_post_pad, "
            "Tensor? maybe_expert_map) -> ()"
        ),
        kernel=moe_align_block_size,
        parameters={"num_tokens": 33, "topk": 2, "num_experts": 8, "block_size": 4},
        wrong={
            "blocks-not-padded": part(moe_align_block_size, pad=False),
            "tokens-for-slots": part(moe_align_block_size, tokens=True),
            "padding-is-a-slot": part(moe_align_block_size, padding=0),
            "block-for-nobody": part(moe_align_block_size, empty_block=True),
        },
        harmless={"swapped-rows:num_tokens_post_pad": "it holds one value"},
    ),
]
