"""RMS norms computed with numpy in float64, token by token."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from faults import Subject, part

TINY = {"num_tokens": 17, "hidden_size": 96}
SCHEMAS = {
    "rms_norm": "rms_norm(Tensor! result, Tensor input, Tensor weight, float epsilon) -> ()",
    "fused_add_rms_norm": (
        "fused_add_rms_norm(Tensor! input, Tensor! residual, Tensor weight, float epsilon) -> ()"
    ),
    "rms_norm_static_fp8_quant": (
        "rms_norm_static_fp8_quant(Tensor! result, Tensor input, Tensor weight, Tensor scale, "
        "float epsilon) -> ()"
    ),
    "fused_add_rms_norm_static_fp8_quant": (
        "fused_add_rms_norm_static_fp8_quant(Tensor! result, Tensor input, Tensor! residual, "
        "Tensor weight, Tensor scale, float epsilon) -> ()"
    ),
}


def _norm(
    rows: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    *,
    mean: bool = False,
    once: bool = False,
) -> torch.Tensor:
    """Each token by its Euclidean length.

    ``mean``: a layer norm, which also centres. ``once``: rounded once, at the end.
    """
    gain = weight.double().numpy()
    normed = []
    for row in rows.double().numpy():
        if mean:
            row = row - row.sum() / row.size
        length = numpy.sqrt(numpy.dot(row, row) / row.size + epsilon)
        normed.append(row / length)
    # The library rounds here, and again after the weight.
    exact = torch.from_numpy(numpy.stack(normed))
    rounded = exact if once else exact.to(rows.dtype).double()
    return torch.from_numpy(rounded.numpy() * gain).to(rows.dtype)


def rms_norm(result: Any, input: Any, weight: Any, epsilon: float, **wrong: Any) -> None:
    if wrong.pop("no_epsilon", False):
        epsilon = 0.0
    if wrong.pop("no_weight", False):
        weight = torch.ones_like(weight)
    result.copy_(_norm(input, weight, epsilon, **wrong))


def fused_add_rms_norm(
    input: Any,
    residual: Any,
    weight: Any,
    epsilon: float,
    *,
    order: str = "add first",
    **others: Any,
) -> None:
    before = residual.clone()
    residual.copy_(input.double() + residual.double())
    norm = _norm(residual if order == "add first" else before, weight, epsilon, **others)
    if order == "norm into residual":
        residual.copy_(norm)
    input.copy_(norm)


def rms_norm_static_fp8_quant(
    result: Any,
    input: Any,
    weight: Any,
    scale: Any,
    epsilon: float,
    *,
    once: bool = False,
    **wrong: Any,
) -> None:
    result.copy_(to_fp8(_norm(input, weight, epsilon, once=once), float(scale), **wrong))


def fused_add_rms_norm_static_fp8_quant(
    result: Any,
    input: Any,
    residual: Any,
    weight: Any,
    scale: Any,
    epsilon: float,
    *,
    once: bool = False,
    **wrong: Any,
) -> None:
    residual.copy_(input.double() + residual.double())
    result.copy_(to_fp8(_norm(residual, weight, epsilon, once=once), float(scale), **wrong))


def e4m3_values() -> numpy.ndarray:
    """All finite non-negative values of float8_e4m3fn, from its definition, in the bytes' order."""
    values = [mantissa / 8 * 2.0**-6 for mantissa in range(8)]
    for exponent in range(1, 16):
        values += [(1 + mantissa / 8) * 2.0 ** (exponent - 7) for mantissa in range(8)]
    return numpy.array(values[:-1])  # the last pattern is NaN


def to_fp8(x: torch.Tensor, scale: float, *, fault: str = "") -> torch.Tensor:
    """Nearest value, ties to the even byte, beyond the largest the largest; as float8_e4m3fn.

    ``fault``: ``truncated``, ``inverse`` (multiplied with the scale), ``wraps`` (NaN beyond).
    """
    values = e4m3_values()
    scaled = x.double().numpy() * scale if fault == "inverse" else x.double().numpy() / scale
    magnitude = numpy.abs(scaled)
    above = numpy.searchsorted(values, magnitude).clip(1, len(values) - 1)
    low, high = values[above - 1], values[above]
    up = (magnitude - low > high - magnitude) | (
        (magnitude - low == high - magnitude) & (above % 2 == 0)
    )
    if fault == "truncated":
        up = magnitude >= high
    code = numpy.where(up, above, above - 1)
    if fault == "wraps":
        code = numpy.where(magnitude > values[-1], 0x7F, code)
    code = numpy.where(numpy.signbit(scaled), code + 128, code).astype(numpy.uint8)
    return torch.from_numpy(code).view(torch.float8_e4m3fn)


FP8_FAULTS = ("truncated", "inverse", "wraps")

SUBJECTS = [
    *(
        Subject(
            "rms_norm",
            "_C",
            SCHEMAS["rms_norm"],
            rms_norm,
            {**TINY, "dtype": dtype},
            wrong={
                "no epsilon": part(rms_norm, no_epsilon=True),
                "no weight": part(rms_norm, no_weight=True),
                "layer norm": part(rms_norm, mean=True),
            },
            right={"rounded once": part(rms_norm, once=True)},
            label=dtype,
        )
        for dtype in ("bfloat16", "float16", "float32")
    ),
    *(
        Subject(
            "fused_add_rms_norm",
            "_C",
            SCHEMAS["fused_add_rms_norm"],
            fused_add_rms_norm,
            {**TINY, "dtype": dtype},
            wrong={
                "norm of the residual before adding": part(fused_add_rms_norm, order="norm first"),
                "norm in the residual": part(fused_add_rms_norm, order="norm into residual"),
            },
            right={"rounded once": part(fused_add_rms_norm, once=True)},
            label=dtype,
        )
        for dtype in ("bfloat16", "float32")
    ),
    *(
        Subject(
            kernel.__name__,
            "_C",
            SCHEMAS[kernel.__name__],
            kernel,
            TINY,
            wrong={fault: part(kernel, fault=fault) for fault in FP8_FAULTS},
            right={"rounded once": part(kernel, once=True)},
        )
        for kernel in (rms_norm_static_fp8_quant, fused_add_rms_norm_static_fp8_quant)
    ),
]
