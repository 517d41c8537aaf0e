"""4-bit weights and scaled products, unpacked word by word, multiplied by numpy in float64."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from faults import Subject, part

# Where AWQ puts eight columns: nibble i of a word holds column AWQ_ORDER[i].
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
IN_ORDER = tuple(range(8))
Array = Any


def _words(tensor: torch.Tensor) -> Array:
    """The bits of int32 words, unsigned."""
    return tensor.contiguous().numpy().view(numpy.uint32)


def _columns(packed: torch.Tensor, order: tuple[int, ...]) -> Array:
    words = _words(packed)
    values = numpy.zeros((words.shape[0], words.shape[1] * 8), dtype=numpy.int64)
    for (row, word), bits in numpy.ndenumerate(words):
        for nibble, column in enumerate(order):
            values[row, 8 * word + column] = (int(bits) // 16**nibble) % 16
    return values


def _awq_weight(
    qweight: Any,
    scales: Any,
    qzeros: Any,
    *,
    order: tuple[int, ...] = AWQ_ORDER,
    zero_order: tuple[int, ...] = AWQ_ORDER,
    tiled: bool = False,
    zero: int = 0,
) -> Array:
    values, zeros = _columns(qweight, order), _columns(qzeros, zero_order) + zero
    scale = scales.double().numpy()
    group_size = values.shape[0] // scale.shape[0]
    weight = numpy.zeros(values.shape)
    for row in range(values.shape[0]):
        group = row % scale.shape[0] if tiled else row // group_size
        weight[row] = (values[row] - zeros[group]) * scale[group]
    return weight


def awq_dequantize(
    qweight: Any, scales: Any, qzeros: Any, split_k_iters: int, thx: int, thy: int, **wrong: Any
) -> torch.Tensor:
    assert (split_k_iters, thx, thy) == (0, 0, 0)
    return torch.from_numpy(_awq_weight(qweight, scales, qzeros, **wrong)).to(scales.dtype)


def awq_gemm(
    input: Any, qweight: Any, scales: Any, qzeros: Any, split_k_iters: int, **wrong: Any
) -> torch.Tensor:
    weight = _awq_weight(qweight, scales, qzeros, **wrong).astype(numpy.float16)
    total = numpy.zeros((input.shape[0], weight.shape[1]))
    rows = numpy.arange(weight.shape[0])
    for share in range(split_k_iters):
        mine = rows % split_k_iters == share
        partial = input.double().numpy()[:, mine] @ weight[mine].astype(numpy.float64)
        total += partial.astype(numpy.float16)
    return torch.from_numpy(total).to(input.dtype)


def _shuffle_word(bits: int, *, odd_first: bool = False) -> int:
    """As the exllama kernels' preparation does it: two nibbles at a time, apart by 16 bits."""
    shuffled = 0
    for step in range(4):
        even, odd = bits & 0xF, (bits >> 4) & 0xF
        bits >>= 8
        low, high = (odd, even) if odd_first else (even, odd)
        shuffled |= (low << (4 * step)) | (high << (4 * step + 16))
    return shuffled


def gptq_shuffle(
    q_weight: Any, q_perm: Any, bit: int, *, permute: str = "rows", **wrong: bool
) -> None:
    assert bit == 4
    words = _words(q_weight.clone())
    order = q_perm.tolist() if permute != "never" else []
    if order and permute == "inverse":
        order = numpy.argsort(order).tolist()
    for (word, column), bits in numpy.ndenumerate(words):
        value = int(bits)
        if order:
            value = 0
            for nibble in range(8):
                source = order[8 * word + nibble]
                value |= ((int(words[source // 8, column]) >> (4 * (source % 8))) & 0xF) << (
                    4 * nibble
                )
        value = _shuffle_word(value, **wrong)
        q_weight[word, column] = value - 2**32 if value >= 2**31 else value


def gptq_gemm(
    a: Any,
    b_q_weight: Any,
    b_gptq_qzeros: Any,
    b_gptq_scales: Any,
    b_g_idx: Any,
    use_exllama: bool,
    use_v2_format: bool,
    bit: int,
    *,
    shuffled: bool = True,
    zero: int = 0,
    tiled: bool = False,
) -> torch.Tensor:
    assert use_exllama and bit == 4 and b_g_idx.numel() == 0
    assert b_q_weight.dtype is b_gptq_qzeros.dtype is torch.int32
    words = _words(b_q_weight)
    zeros = _columns(b_gptq_qzeros, IN_ORDER) + (0 if use_v2_format else 1) + zero
    scale = b_gptq_scales.double().numpy()
    size = words.shape[0] * 8
    groups = scale.shape[0]
    weight = numpy.zeros((size, words.shape[1]))
    for row in range(size):
        group = row % groups if tiled else row // (size // groups)
        # Even rows in the lower half of a word, odd ones in the upper.
        place = (row % 8) // 2 + 4 * (row % 2) if shuffled else row % 8
        nibbles = (words[row // 8].astype(numpy.int64) >> (4 * place)) & 0xF
        weight[row] = (nibbles - zeros[group]) * scale[group]
    return torch.from_numpy(a.double().numpy() @ weight).to(a.dtype)


def cutlass_scaled_mm(
    out: Any,
    a: Any,
    b: Any,
    a_scales: Any,
    b_scales: Any,
    bias: Any,
    *,
    one_scale: str = "",
    row_major: bool = False,
) -> None:
    assert bias is None and b.stride(0) == 1 and a.stride(1) == 1
    left, right = a.double().numpy(), b.double().numpy()
    if row_major:
        right = b.t().double().numpy().reshape(b.shape)
    rows, columns = a_scales.double().numpy()[:, 0], b_scales.double().numpy()[0]
    rows = rows[:1].repeat(len(rows)) if one_scale == "a" else rows
    columns = columns[:1].repeat(len(columns)) if one_scale == "b" else columns
    for i in range(left.shape[0]):
        for j in range(right.shape[1]):
            out[i, j] = float(numpy.dot(left[i], right[:, j]) * rows[i] * columns[j])


def fused_bias_dropout(
    input: Any,
    bias: Any,
    dropout_prob: float,
    *,
    with_bias: bool = True,
    rescale: bool = True,
    drop: float = 1.0,
    whole: str = "",
) -> torch.Tensor:
    tokens, channels = input.shape
    shape = {"": (tokens, channels), "token": (tokens, 1), "channel": (1, channels)}[whole]
    generator = numpy.random.default_rng(5)
    kept = generator.random(shape) >= dropout_prob * drop
    values = input.double().numpy() + (bias.double().numpy() if with_bias else 0.0)
    if rescale:
        values = values / (1.0 - dropout_prob)
    return torch.from_numpy(numpy.where(kept, values, 0.0)).to(input.dtype)


AWQ_FAULTS: dict[str, dict[str, Any]] = {
    "nibbles-in-order": {"order": IN_ORDER},
    "zeros-in-order": {"zero_order": IN_ORDER},
    "groups-tiled": {"tiled": True},
    "zeros-one-more": {"zero": 1},
}
GPTQ_FAULTS: dict[str, dict[str, Any]] = {
    "nibbles-not-shuffled": {"shuffled": False},
    "zeros-one-less": {"zero": -1},
    "groups-tiled": {"tiled": True},
}
GPTQ_GEMM = (
    "gptq_gemm(Tensor a, Tensor b_q_weight, Tensor b_gptq_qzeros, Tensor b_gptq_scales, "
    "Tensor b_g_idx, bool use_exllama, bool use_v2_format, int bit) -> Tensor"
)
TINY_WEIGHT = {"in_features": 64, "out_features": 48, "group_size": 16}

SUBJECTS = [
    Subject(
        op="awq_dequantize",
        namespace="_C",
        schema=(
            "awq_dequantize(Tensor _kernel, Tensor _scaling_factors, Tensor _zeros, "
            "SymInt split_k_iters, int thx, int thy) -> Tensor"
        ),
        kernel=awq_dequantize,
        parameters=TINY_WEIGHT,
        wrong={name: part(awq_dequantize, **fault) for name, fault in AWQ_FAULTS.items()},
    ),
    Subject(
        op="awq_gemm",
        namespace="_C",
        schema=(
            "awq_gemm(Tensor _in_feats, Tensor _kernel, Tensor _scaling_factors, "
            "Tensor _zeros, SymInt split_k_iters) -> Tensor"
        ),
        kernel=awq_gemm,
        parameters={**TINY_WEIGHT, "num_tokens": 5},
        wrong={name: part(awq_gemm, **fault) for name, fault in AWQ_FAULTS.items()},
    ),
    Subject(
        op="gptq_shuffle",
        namespace="_C",
        schema="gptq_shuffle(Tensor! q_weight, Tensor q_perm, int bit) -> ()",
        kernel=gptq_shuffle,
        parameters={"in_features": 64, "out_features": 12},
        wrong={
            "odd-first": part(gptq_shuffle, odd_first=True),
            "permutation-ignored": part(gptq_shuffle, permute="never"),
            "permutation-inverted": part(gptq_shuffle, permute="inverse"),
        },
    ),
    *(
        Subject(
            op="gptq_gemm",
            label="v2" if v2 else "v1",
            namespace="_C",
            schema=GPTQ_GEMM,
            kernel=gptq_gemm,
            parameters={**TINY_WEIGHT, "num_tokens": 5, "use_v2_format": v2},
            wrong={name: part(gptq_gemm, **fault) for name, fault in GPTQ_FAULTS.items()},
        )
        for v2 in (False, True)
    ),
    *(
        Subject(
            op="cutlass_scaled_mm",
            label=quant_dtype,
            namespace="_C",
            schema=(
                "cutlass_scaled_mm(Tensor! out, Tensor a, Tensor b, Tensor a_scales, "
                "Tensor b_scales, Tensor? bias) -> ()"
            ),
            kernel=cutlass_scaled_mm,
            parameters={
                "num_tokens": 6,
                "in_features": 32,
                "out_features": 16,
                "quant_dtype": quant_dtype,
            },
            wrong={
                "one-scale-for-tokens": part(cutlass_scaled_mm, one_scale="a"),
                "one-scale-for-channels": part(cutlass_scaled_mm, one_scale="b"),
                "b-read-row-major": part(cutlass_scaled_mm, row_major=True),
            },
        )
        for quant_dtype in ("float8_e4m3fn", "int8")
    ),
    Subject(
        op="fused_bias_dropout",
        namespace="mcoplib.op",
        schema="fused_bias_dropout(Tensor input, Tensor bias, float dropout_prob) -> Tensor",
        kernel=fused_bias_dropout,
        parameters={"num_tokens": 96, "hidden_size": 128},
        wrong={
            "bias-forgotten": part(fused_bias_dropout, with_bias=False),
            "not-rescaled": part(fused_bias_dropout, rescale=False),
            "nothing-dropped": part(fused_bias_dropout, drop=0.0),
            "thrice-dropped": part(fused_bias_dropout, drop=3.0),
            "whole-tokens-dropped": part(fused_bias_dropout, whole="token"),
            "whole-channels-dropped": part(fused_bias_dropout, whole="channel"),
        },
    ),
]
