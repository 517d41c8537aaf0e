"""Trials of small unit tests, put together again and run on the CPU with a stand-in operator.

``CASES`` has one entry a source below ``trials``: the operator, and kernels in plain PyTorch that
are written another way than the test's reference. ``run`` executes the parts of a ``Trial`` as a
runner would: prepare, call, reference on copies, after, comparisons.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from emit_kit import operator

from orchestrator.author.facts import Operator, Parameter, Trial
from orchestrator.author.trial import read_trial

TRIALS = Path(__file__).resolve().parent / "trials"
DTYPE_SIZES = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 4e-2}


@dataclass(frozen=True)
class Case:
    """A unit test, the operator in it, and a right kernel."""

    source: str
    operator: Operator
    kernel: Callable[..., Any]

    def __str__(self) -> str:
        return f"{self.source}-{self.operator.name}"

    def trial(self) -> Trial:
        return read_trial(TRIALS / f"{self.source}.py", self.operator)


def source_of(trial: Trial, op: Operator) -> str:
    """A module with ``trial(call, device, seed, ...)``, which returns the pairs to compare."""
    names = [p.name for p in trial.parameters]
    roles = [*trial.device_names, *trial.seed_names]
    arguments = ", ".join(f"{n}={v}" for n, v in trial.arguments.items())
    swap = [f"{n}, _saved_{n} = _saved_{n}, {n}" for n in trial.copied]
    call = f"call({arguments})"
    pairs = [
        f"_pairs.append((({o.actual}), ({o.expected}), {o.how!r}, {o.atol}, {o.rtol}))"
        if o.when is None
        else f"if {o.when}:\n    _pairs.append((({o.actual}), ({o.expected}), {o.how!r}, "
        f"{o.atol}, {o.rtol}))"
        for o in trial.outputs
    ]
    body = [
        *trial.prepare,
        *(f"_saved_{n} = {n}.clone() if {n} is not None else None" for n in trial.copied),
        call if trial.result is None else f"{trial.result} = {call}",
        *swap,
        *trial.reference,
        *swap,
        *trial.after,
        "_pairs = []",
        *pairs,
        "return _pairs",
    ]
    signature = ", ".join(["call", *names, *roles])
    text = "\n".join([*trial.imports, *trial.helpers, f"def trial({signature}):"])
    return text + "\n" + textwrap.indent("\n".join(body), "    ") + "\n"


def choices(trial: Trial) -> Iterator[dict[str, Any]]:
    """Values of the parameters that the test would use, in its order."""
    names = {"torch": torch}
    groups: list[list[Parameter]] = []
    for one in trial.parameters:
        if not any(one in group for group in groups):
            groups.append([p for p in trial.parameters if p is one or p.name in one.together])
    rows = [
        [[(p.name, eval(p.values[i], dict(names))) for p in group] for i in range(n)]
        for group in groups
        for n in [len(group[0].values)]
    ]
    for picked in itertools.product(*rows):
        values = dict(pair for row in picked for pair in row)
        if not any(eval(skip, {**names, **values}) for skip in trial.skips):
            yield values


def run(
    trial: Trial, op: Operator, kernel: Callable[..., Any], values: dict[str, Any]
) -> list[tuple[bool, float]]:
    """Whether each pair of outputs agrees, and by how much it differs."""
    module: dict[str, Any] = {}
    exec(compile(source_of(trial, op), "<trial>", "exec"), module)
    roles = {**dict.fromkeys(trial.device_names, "cpu"), **dict.fromkeys(trial.seed_names, 3)}
    torch.manual_seed(3)
    with torch.inference_mode():
        pairs = module["trial"](kernel, **values, **roles)
        return [_agree(*pair) for pair in pairs]


def _agree(actual: Any, expected: Any, how: str, atol: Any, rtol: Any) -> tuple[bool, float]:
    actual, expected = torch.as_tensor(actual), torch.as_tensor(expected)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    if how == "unordered":
        actual, expected = actual.sort(-1).values, expected.sort(-1).values
    difference = float((actual.double() - expected.double()).abs().max())
    if how == "exact":
        return bool(torch.equal(actual, expected.to(actual.dtype))), difference
    if how == "cosine":
        flat = [t.double().flatten() for t in (actual, expected)]
        cosine = float(torch.nn.functional.cosine_similarity(*flat, dim=0))
        return 1 - cosine <= float(atol), 1 - cosine
    usual = DTYPE_SIZES.get(actual.dtype, 0.0)
    close = torch.allclose(
        actual.double(),
        expected.double(),
        atol=usual if atol is None else float(atol),
        rtol=usual if rtol is None else float(rtol),
    )
    return close, difference


# -- kernels: other ways to compute what the tests' references compute --------------------------


def silu_and_mul(out: torch.Tensor, input: torch.Tensor) -> None:
    gate, up = input.chunk(2, -1)
    out.copy_(torch.nn.functional.silu(gate.contiguous()) * up)


def gelu_tanh_and_mul(out: torch.Tensor, input: torch.Tensor) -> None:
    gate, up = input.chunk(2, -1)
    out.copy_(torch.nn.functional.gelu(gate.contiguous(), approximate="tanh") * up)


def _attend(out: Any, query: Any, keys: Any, values: Any, scale: float, tables: Any, lens: Any,
            size: int) -> None:  # fmt: skip
    for i, length in enumerate(lens.tolist()):
        places = [(int(tables[i, j // size]), j % size) for j in range(length)]
        k = torch.stack([keys[b, :, :, o].flatten(1) for b, o in places]).float()
        v = torch.stack([values[b, :, :, o] for b, o in places]).float()
        groups = query.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        for head in range(query.shape[1]):
            weights = torch.softmax(k[:, head] @ query[i, head].float() * scale, 0)
            out[i, head] = (weights[:, None] * v[:, head]).sum(0)


def paged_attention_v1(out: Any, query: Any, key_cache: Any, value_cache: Any, num_kv_heads: int,
                       scale: float, block_tables: Any, seq_lens: Any, block_size: int,
                       max_seq_len: int, alibi_slopes: Any, kv_cache_dtype: str,
                       ) -> None:  # fmt: skip
    assert num_kv_heads == value_cache.shape[1] and max_seq_len == int(seq_lens.max())
    _attend(out, query, key_cache, value_cache, scale, block_tables, seq_lens, block_size)


def rms_norm(out: Any, input: Any, weight: Any, epsilon: float) -> None:
    x = input.double()
    x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon)
    out.copy_(x.to(out.dtype) * weight)


def fused_add_rms_norm(input: Any, residual: Any, weight: Any, epsilon: float) -> None:
    residual.copy_(residual.double() + input.double())
    rms_norm(input, residual, weight, epsilon)


def reshape_and_cache_flash(key: Any, value: Any, key_cache: Any, value_cache: Any,
                            slot_mapping: Any, kv_cache_dtype: str) -> None:  # fmt: skip
    for cache, new in ((key_cache, key), (value_cache, value)):
        cache.view(-1, *cache.shape[2:])[slot_mapping] = new


def topk_softmax(topk_weights: Any, topk_indices: Any, gating_output: Any,
                 renormalize: bool) -> None:  # fmt: skip
    order = gating_output.argsort(-1, descending=True)[:, : topk_weights.shape[1]].flip(-1)
    topk_indices.copy_(order)
    topk_weights.copy_(gating_output.double().softmax(-1).gather(1, order))


def moe_align_block_size(topk_ids: Any, num_experts: int, block_size: int, sorted_ids: Any,
                         experts: Any, total: Any) -> None:  # fmt: skip
    flat = topk_ids.flatten()
    counts = torch.bincount(flat, minlength=num_experts)
    blocks = (counts + block_size - 1) // block_size
    experts[: int(blocks.sum())] = torch.repeat_interleave(torch.arange(num_experts), blocks)
    total.fill_(int(blocks.sum()) * block_size)


def awq_dequantize(kernel: Any, scales: Any, zeros: Any, split: int, x: int, y: int) -> Any:
    def unpacked(words: Any) -> Any:
        nibbles = [(words >> 4 * place) & 15 for place in (0, 4, 1, 5, 2, 6, 3, 7)]
        return torch.stack(nibbles, -1).view(words.shape[0], -1)

    size = kernel.shape[0] // scales.shape[0]
    rows = torch.arange(kernel.shape[0]) // size
    return (unpacked(kernel) - unpacked(zeros)[rows]) * scales[rows]


def fused_bias_norm(x: Any, bias: Any, residual: Any, eps: float) -> Any:
    total = residual + (x + bias)
    root = torch.sqrt(total.double().square().mean(-1, keepdim=True) + eps)
    return (total.double() / root).to(x.dtype), total


def row_softmax(x: Any, causal: bool = False, scale: float = 1.0) -> Any:
    powers = (x.double() * scale).exp()
    return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)


def gather_rows(table: Any, index: Any) -> Any:
    return table.index_select(0, index)


def per_token_quant(x: Any, scale_ub: Any = None) -> Any:
    most = torch.finfo(torch.float8_e4m3fn).max
    scale = (x.double().abs().amax(-1, keepdim=True) / most).clamp(min=1 / (most * 512))
    return (x.double() / scale).clamp(-most, most).to(torch.float8_e4m3fn), scale.float()


def rotary_embedding(positions: Any, query: Any, key: Any, head_size: int, cos_sin_cache: Any,
                     is_neox: bool) -> None:  # fmt: skip
    half = head_size // 2
    cos, sin = cos_sin_cache[positions, :half], cos_sin_cache[positions, half:]
    first = slice(0, half) if is_neox else slice(0, None, 2)
    second = slice(half, None) if is_neox else slice(1, None, 2)
    for x in (query, key):
        if x is not None:
            turned = torch.view_as_complex(torch.stack((x[..., first], x[..., second]), -1))
            turned = turned * torch.complex(cos, sin)[:, None]
            x[..., first], x[..., second] = turned.real, turned.imag


VLLM = {"imports": ("import mcoplib._C",)}
ATTENTION = (
    "query: Tensor", "key_cache: Tensor", "value_cache: Tensor", "num_kv_heads: int",
    "scale: float", "block_tables: Tensor", "seq_lens: Tensor", "block_size: int",
    "max_seq_len: int", "alibi_slopes: Tensor?", "kv_cache_dtype: str",
)  # fmt: skip
SGL = {"namespace": "sgl_kernel", "framework": "sgl", "imports": ("import mcoplib.sgl_kernel",)}

CASES = [
    Case(
        "vllm_activation",
        operator("silu_and_mul", "out!: Tensor", "input: Tensor"),
        silu_and_mul,
    ),
    Case(
        "vllm_activation",
        operator("gelu_tanh_and_mul", "out!: Tensor", "input: Tensor"),
        gelu_tanh_and_mul,
    ),
    Case(
        "vllm_attention",
        operator("paged_attention_v1", "out!: Tensor", *ATTENTION),
        paged_attention_v1,
    ),
    Case(
        "vllm_norm",
        operator("rms_norm", "out!: Tensor", "input: Tensor", "weight: Tensor", "epsilon: float"),
        rms_norm,
    ),
    Case(
        "vllm_norm",
        operator(
            "fused_add_rms_norm",
            "input!: Tensor",
            "residual!: Tensor",
            "weight: Tensor",
            "epsilon: float",
        ),
        fused_add_rms_norm,
    ),
    Case(
        "vllm_cache",
        operator(
            "reshape_and_cache_flash",
            "key: Tensor",
            "value: Tensor",
            "key_cache!: Tensor",
            "value_cache!: Tensor",
            "slot_mapping: Tensor",
            "kv_cache_dtype: str",
            namespace="_C_cache_ops",
            call="torch.ops._C_cache_ops.reshape_and_cache_flash",
        ),
        reshape_and_cache_flash,
    ),
    Case(
        "sgl_topk",
        operator(
            "topk_softmax",
            "topk_weights!: Tensor",
            "topk_indices!: Tensor",
            "gating_output: Tensor",
            "renormalize: bool",
            call="torch.ops.sgl_kernel.topk_softmax",
            **SGL,
        ),
        topk_softmax,
    ),
    Case(
        "sgl_align",
        operator(
            "moe_align_block_size",
            "topk_ids: Tensor",
            "num_experts: int",
            "block_size: int",
            "sorted_ids!: Tensor",
            "experts!: Tensor",
            "total!: Tensor",
            call="torch.ops.sgl_kernel.moe_align_block_size",
            **SGL,
        ),
        moe_align_block_size,
    ),
    Case(
        "mcoplib_awq",
        operator(
            "awq_dequantize",
            "kernel: Tensor",
            "scales: Tensor",
            "zeros: Tensor",
            "split: int",
            "x: int",
            "y: int",
            returns=("Tensor",),
        ),
        awq_dequantize,
    ),
    Case(
        "mcoplib_pybind",
        operator(
            "fused_bias_norm",
            "x: Tensor",
            "bias: Tensor",
            "residual: Tensor",
            "eps: float",
            namespace="op",
            framework="mcoplib",
            kind="pybind",
            call="op.fused_bias_norm",
            imports=("from mcoplib import op",),
            returns=("Tensor", "Tensor"),
        ),
        fused_bias_norm,
    ),
    Case(
        "triton_softmax",
        operator(
            "row_softmax",
            "x: Tensor",
            "causal: bool = False",
            "scale: float = 1.0",
            namespace="kernels.softmax",
            framework="torch",
            kind="triton",
            call="row_softmax",
            imports=("from kernels.softmax import row_softmax",),
            returns=("Tensor",),
        ),
        row_softmax,
    ),
    Case(
        "library_gather",
        operator(
            "gather_rows",
            "table: Tensor",
            "index: Tensor",
            namespace="rowops",
            framework="torch",
            kind="library",
            call="torch.ops.rowops.gather_rows",
            imports=("import rowops",),
            returns=("Tensor",),
        ),
        gather_rows,
    ),
    Case(
        "fp8_quant",
        operator(
            "per_token_quant", "x: Tensor", "scale_ub: Tensor? = None", returns=("Tensor", "Tensor")
        ),
        per_token_quant,
    ),
    Case(
        "rotary",
        operator(
            "rotary_embedding",
            "positions: Tensor",
            "query!: Tensor",
            "key!: Tensor?",
            "head_size: int",
            "cos_sin_cache: Tensor",
            "is_neox: bool",
        ),
        rotary_embedding,
    ),
]
