"""Right and damaged kernels for the operators of the source trees, on the CPU.

Most are those that the shipped runners are tested with, under the schemas that the trees register.
None shares code or method with the unit tests in the trees. Run with tests/unit/operators and
benchmark/ importable; ``authored_judge.py`` sees to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy
import subjects_activations as activations
import subjects_attention as attention
import subjects_caches as caches
import subjects_moe as moe
import subjects_norms as norms
import subjects_quantisation as quantisation
import subjects_quantised_products as products
import subjects_rotary as rotary
import torch
from authored import AUTHORED
from faults import FAULTS, Kernel, Subject, part
from harness import loader
from harness.base import OpBenchmarkBase
from harness.cases import CaseConfig


@dataclass(frozen=True)
class Generated(Subject):
    """A subject whose runner and configuration lie in a generated benchmark tree.

    ``harmless`` also names faults of the operator's own that the unit test cannot show.
    """

    root: Path = field(default_factory=Path)

    def faults(self) -> list[str]:
        """Names of all faults that have to be caught."""
        return [name for name in super().faults() if name not in self.harmless]

    def runner(self) -> OpBenchmarkBase:
        """The generated runner as it is, with the tiny configuration, for the CPU."""
        config = loader.load_config(self.root, self.op)
        first = {k: v[0] if isinstance(v, list) and v else v for k, v in config.items()}
        known = {k: v for k, v in self.parameters.items() if k in config}
        cls = loader.load_runner(self.root, self.op)
        cls.device_type = "cpu"
        return cls(self.op, CaseConfig({**first, **known}))


def _flat_positions(kernel: Kernel) -> Kernel:
    """For kernels that take tokens in one dimension, given [batch, seq]."""

    def call(positions: Any, query: Any, key: Any, head_size: int, cache: Any, neox: bool) -> None:
        tokens = positions.numel()
        flat_key = query.new_empty(tokens, 0) if key is None else key.view(tokens, -1)
        kernel(positions.view(-1), query.view(tokens, -1), flat_key, head_size, cache, neox)

    return call


def _contiguous(kernel: Kernel) -> Kernel:
    """For kernels that read keys and values at flat addresses, given slices."""

    def call(key: Any, value: Any, *others: Any) -> None:
        kernel(key.contiguous(), value.contiguous(), *others)

    return call


def fused_bias_dropout(
    input: Any, bias: Any, residual: Any, dropout_prob: float = 0.0, *, fault: str = ""
) -> torch.Tensor:
    """Without dropping, which no reference predicts; added in numpy's float64."""
    assert dropout_prob == 0.0
    total = residual.double().numpy() * (fault != "residual forgotten")
    total = total + input.double().numpy()
    shift = bias.double().numpy()
    total = total + (numpy.roll(shift, 1) if fault == "bias of the next channel" else shift)
    return torch.from_numpy(total).to(input.dtype)


def softcap_softmax(x: Any, cap: float = 30.0, *, fault: str = "") -> torch.Tensor:
    """Row by row with Python's math."""
    out = torch.empty_like(x)
    for i, row in enumerate(x.double().tolist()):
        capped = row if fault == "not capped" else [cap * math.tanh(v / cap) for v in row]
        if fault == "capped hard":
            capped = [max(-cap, min(cap, v)) for v in row]
        powers = [math.exp(v - max(capped)) for v in capped]
        total = math.fsum(sorted(powers)[:-1] if fault == "largest column missing" else powers)
        out[i] = torch.tensor([power / total for power in powers], dtype=torch.float64)
    return out


def segment_mean(values: Any, offsets: Any, eps: float = 0.0, *, fault: str = "") -> torch.Tensor:
    """Segment by segment, column by column, with an exact sum."""
    bounds = offsets.tolist()
    out: torch.Tensor = values.new_zeros(len(bounds) - 1, values.shape[1])
    for i, (start, end) in enumerate(pairwise(bounds)):
        if fault == "one row late":
            start, end = min(start + 1, end), min(end + 1, len(values))
        if start == end:
            continue
        length = 1 if fault == "summed" else end - start
        columns = zip(*values[start:end].double().tolist(), strict=True)
        mean = [math.fsum(column) / (length + eps) for column in columns]
        out[i] = torch.tensor(mean, dtype=torch.float64)
    return out


def quantize_blocks(
    out: Any, scales: Any, x: Any, block_size: int = 128, *, fault: str = ""
) -> None:
    """Block by block with Python's own rounding."""
    for i in range(x.shape[0]):
        for block in range(scales.shape[1]):
            columns = slice(block * block_size, (block + 1) * block_size)
            values = x[i, columns].float().tolist()
            source = x[i, :block_size].float().tolist() if fault == "first block's" else values
            # In float32, as the scale is stored.
            scale = numpy.float32(max(max(map(abs, source)), 1e-10)) / numpy.float32(127)
            scales[i, block] = float(scale)
            steps = [float(numpy.float32(value) / scale) for value in values]
            whole = [int(step) if fault == "truncated" else round(step) for step in steps]
            out[i, columns] = torch.tensor([max(-128, min(127, s)) for s in whole]).to(torch.int8)


def _wrong(kernel: Kernel, *faults: str) -> dict[str, Kernel]:
    return {fault: part(kernel, fault=fault) for fault in faults}


def _all(name: str, why: str) -> dict[str, str]:
    return {f"{fault}:{name}": why for fault in FAULTS}


def _with(
    subjects: list[Subject], op: str, change: Callable[[Kernel], Kernel] = lambda kernel: kernel
) -> tuple[Kernel, dict[str, Kernel]]:
    """The kernel, and its own faults, that the shipped runner of ``op`` is tested with."""
    found = next(subject for subject in subjects if subject.op == op)
    return change(found.kernel), {name: change(wrong) for name, wrong in found.wrong.items()}


_ROTARY = (
    "rotary_embedding(Tensor positions, Tensor! query, Tensor!? key, int head_size, "
    "Tensor cos_sin_cache, bool is_neox) -> ()"
)
_VLLM_TOPK = moe.VLLM_TOPK.replace(", Tensor? bias", "")
_DECODE = next(s.schema for s in moe.SUBJECTS if s.op == "top_k_per_row_decode")
_AWQ = next(s.schema for s in products.SUBJECTS if s.op == "awq_dequantize")
_ONE = "it holds one value"
_UNSEEN = "the unit test does not look at it"

# By the generated benchmark's name: namespace, schema, (kernel, its own faults), harmless faults.
_TABLE: dict[str, tuple[str, str, tuple[Kernel, dict[str, Kernel]], dict[str, str]]] = {
    "silu_and_mul": (
        "_C",
        "silu_and_mul(Tensor! result, Tensor input) -> ()",
        _with(activations.SUBJECTS, "silu_and_mul"),
        {},
    ),
    "fatrelu_and_mul": (
        "_C",
        "fatrelu_and_mul(Tensor! out, Tensor input, float threshold) -> ()",
        _with(activations.SUBJECTS, "fatrelu_and_mul"),
        {"not strict": "no random value equals the threshold"},
    ),
    "rms_norm": (
        "_C",
        norms.SCHEMAS["rms_norm"],
        _with(norms.SUBJECTS, "rms_norm"),
        {"no epsilon": "a millionth is less than the rounding of values of size one"},
    ),
    "fused_add_rms_norm": (
        "_C",
        norms.SCHEMAS["fused_add_rms_norm"],
        _with(norms.SUBJECTS, "fused_add_rms_norm"),
        {},
    ),
    "vllm_rotary_embedding": (
        "_C",
        _ROTARY,
        _with(rotary.SUBJECTS, "vllm_rotary_embedding", _flat_positions),
        {},
    ),
    "sgl_rotary_embedding": (
        "sgl_kernel",
        _ROTARY,
        _with(rotary.SUBJECTS, "sgl_rotary_embedding"),
        {},
    ),
    "paged_attention_v1": (
        "_C",
        f"paged_attention_v1(Tensor! out, {attention.TAIL.partition(', int tp_rank')[0]}) -> ()",
        _with(attention.SUBJECTS, "paged_attention_v1"),
        {},
    ),
    "reshape_and_cache": (
        "_C_cache_ops",
        caches.SUBJECTS[0].schema,
        _with(caches.SUBJECTS, "reshape_and_cache", _contiguous),
        {"padding-written": "no slot of the unit test is negative"},
    ),
    "vllm_topk_softmax": (
        "_moe_C",
        _VLLM_TOPK,
        _with(moe.SUBJECTS, "vllm_topk_softmax"),
        {"slots-transposed": _UNSEEN, **_all("token_expert_indices", _UNSEEN)},
    ),
    "sgl_topk_softmax": ("sgl_kernel", moe.SGL_TOPK, _with(moe.SUBJECTS, "sgl_topk_softmax"), {}),
    "top_k_per_row_decode": (
        "_C",
        _DECODE,
        _with(moe.SUBJECTS, "top_k_per_row_decode"),
        {
            "whole-context": "behind a row's end all is minus infinity",
            "sequence-length-for-every-row": "behind a row's end all is minus infinity",
            "padded-with-zero": "no row is shorter than k",
        },
    ),
    "moe_align_block_size": (
        "_moe_C",
        "moe_align_block_size(Tensor topk_ids, int num_experts, int block_size, "
        "Tensor! sorted_token_ids, Tensor! experts_ids, Tensor! num_tokens_post_pad) -> ()",
        _with(moe.SUBJECTS, "moe_align_block_size"),
        {"swapped-rows:num_tokens_post_pad": _ONE},
    ),
    "awq_dequantize": ("_C", _AWQ, _with(products.SUBJECTS, "awq_dequantize"), {}),
    "gptq_shuffle": (
        "_C",
        "gptq_shuffle(Tensor! q_weight, Tensor q_perm, int bit) -> ()",
        _with(products.SUBJECTS, "gptq_shuffle"),
        {},
    ),
    "static_scaled_fp8_quant": (
        "_C",
        "static_scaled_fp8_quant(Tensor! result, Tensor input, Tensor scale) -> ()",
        _with(quantisation.SUBJECTS, "static_scaled_fp8_quant"),
        {"wraps": "no value of the unit test is beyond the largest"},
    ),
    "dynamic_per_token_scaled_fp8_quant": (
        "_C",
        "dynamic_per_token_scaled_fp8_quant(Tensor! result, Tensor input, Tensor! scale, "
        "Tensor? scale_ub) -> ()",
        _with(quantisation.SUBJECTS, "dynamic_per_token_scaled_fp8_quant"),
        {
            # With it, all tokens have one scale, and taking that of another is no fault.
            "bound ignored": "run without a bound",
            "no smallest scale": "no token is nearly zero",
        },
    ),
    "fused_rope_fwd": (
        "mcoplib.op",
        "fused_rope_fwd(Tensor! qkv, Tensor cos, Tensor sin, Tensor indexes, "
        "bool force_bf16_cal) -> ()",
        _with(rotary.SUBJECTS, "fused_rope_fwd"),
        {},
    ),
    "fused_bias_dropout": (
        "mcoplib.op",
        "fused_bias_dropout(Tensor input, Tensor bias, Tensor residual, float dropout_prob=0.0) "
        "-> Tensor",
        (
            fused_bias_dropout,
            _wrong(fused_bias_dropout, "residual forgotten", "bias of the next channel"),
        ),
        {},
    ),
    "softcap_softmax": (
        "rowops.softcap",
        "softcap_softmax(Tensor x, float cap=30.0) -> Tensor",
        (
            softcap_softmax,
            _wrong(softcap_softmax, "not capped", "capped hard", "largest column missing"),
        ),
        {},
    ),
    "segment_mean": (
        "blockops",
        "segment_mean(Tensor values, Tensor offsets, float eps=0.0) -> Tensor",
        (segment_mean, _wrong(segment_mean, "one row late", "summed")),
        {},
    ),
    "quantize_blocks": (
        "blockops",
        "quantize_blocks(Tensor(a!) out, Tensor(b!) scales, Tensor x, int block_size=128) -> ()",
        (quantize_blocks, _wrong(quantize_blocks, "truncated", "first block's")),
        {"truncated": "within the one step that the unit test allows"},
    ),
    "gelu_quick": (
        "_C",
        "gelu_quick(Tensor! out, Tensor input) -> ()",
        _with(activations.SUBJECTS, "gelu_quick"),
        {},
    ),
    "moe_sum": (
        "_moe_C",
        "moe_sum(Tensor input, Tensor! output) -> ()",
        _with(moe.SUBJECTS, "moe_sum"),
        {},
    ),
}


def subjects(root: Path) -> dict[str, Generated]:
    """The subject of each generated benchmark in the tree ``root``, by its name."""
    found = {}
    for authored in AUTHORED:
        namespace, schema, (kernel, wrong), harmless = _TABLE[authored.name]
        found[authored.name] = Generated(
            authored.name,
            namespace,
            schema,
            kernel,
            authored.tiny,
            wrong=wrong,
            harmless=harmless,
            root=root,
        )
    return found
