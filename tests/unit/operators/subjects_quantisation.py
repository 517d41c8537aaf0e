"""Quantisation from the definition of the target type, with numpy and Python's own rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch
from faults import FAULTS, Subject, part
from subjects_norms import FP8_FAULTS, to_fp8

# The first and the last token differ in magnitude enough for scales of their own.
TINY = {"num_tokens": 20, "hidden_size": 96}


def static_scaled_fp8_quant(
    result: Any, input: Any, scale: Any, group_shape: Any = None, **wrong: Any
) -> None:
    result.copy_(to_fp8(input, float(scale), **wrong))


def dynamic_scaled_fp8_quant(result: Any, input: Any, scale: Any, *, fault: str = "") -> None:
    values = input.double().numpy()
    largest = max(abs(float(value)) for value in values.flat)
    if fault == "first row's maximum":
        largest = float(numpy.abs(values[0]).max())
    if fault == "signed maximum":
        largest = float(values.max()) / 2
    scale.fill_(largest / (256 if fault == "another range" else 448))
    known = fault if fault in FP8_FAULTS else ""
    result.copy_(to_fp8(input, float(scale), fault=known))
    if fault == "scale inverted":
        scale.copy_(1 / scale)


def dynamic_per_token_scaled_fp8_quant(
    result: Any, input: Any, scale: Any, scale_ub: Any, *, fault: str = ""
) -> None:
    for row in range(input.shape[0]):
        source = 0 if fault == "scale of the first token" else row
        largest = max(abs(value) for value in input[source].tolist())
        if scale_ub is not None and fault != "bound ignored":
            largest = min(largest, float(scale_ub))
        smallest = 0.0 if fault == "no smallest scale" else 1 / (448 * 512)
        scale[row] = max(largest / 448, smallest)
        known = fault if fault in FP8_FAULTS else ""
        result[row] = to_fp8(input[row], float(scale[row]), fault=known)


def _to_int8(values: Any, fault: str) -> Any:
    """Round half to even as Python does; saturate."""
    if fault == "truncated":
        whole = [int(value) for value in values]
    elif fault == "half away from zero":
        whole = [int(value + numpy.copysign(0.5, value)) for value in values]
    else:
        whole = [round(value) for value in values]
    if fault == "wraps":
        whole = [(value + 128) % 256 - 128 for value in whole]
    return torch.tensor([max(-128, min(127, value)) for value in whole], dtype=torch.int8)


def static_scaled_int8_quant(
    result: Any, input: Any, scale: Any, azp: Any, *, fault: str = ""
) -> None:
    shift = 0 if azp is None or fault == "zero point ignored" else int(azp)
    if fault == "zero point subtracted":
        shift = -shift
    for row in range(input.shape[0]):
        scaled = (input[row].double() / scale.double()).tolist()
        if fault == "zero point before rounding, truncated":
            result[row] = _to_int8([value + shift for value in scaled], "truncated")
        elif fault in ("truncated", "wraps"):
            result[row] = _to_int8([int(v) + shift for v in scaled], fault)
        else:
            result[row] = _to_int8([round(value) + shift for value in scaled], fault)


def dynamic_scaled_int8_quant(
    result: Any, input: Any, scale: Any, azp: Any, *, fault: str = ""
) -> None:
    for row in range(input.shape[0]):
        values = input[0 if fault == "scale of the first token" else row].double().tolist()
        low, high = min(values), max(values)
        shift = 0
        if azp is None:
            scale[row] = max(-low, high) / (100 if fault == "another range" else 127)
        else:
            scale[row] = (high - low) / 255
            shift = round(-128 - low / float(scale[row]))
            azp[row] = -shift if fault == "zero point negated" else shift
        scaled = (input[row].double() / float(scale[row])).tolist()
        if fault == "truncated":
            result[row] = _to_int8([int(value) + shift for value in scaled], "")
        else:
            result[row] = _to_int8([round(value) + shift for value in scaled], fault)


def _subject(
    kernel: Callable[..., None],
    arguments: str,
    faults: tuple[str, ...],
    label: str = "",
    harmless: dict[str, str] | None = None,
    **parameters: Any,
) -> Subject:
    return Subject(
        kernel.__name__,
        "_C",
        f"{kernel.__name__}(Tensor! result, Tensor input, {arguments}) -> ()",
        kernel,
        {**TINY, **parameters},
        wrong={fault: part(kernel, fault=fault) for fault in faults},
        harmless=harmless or {},
        label=label,
    )


STATIC_FP8 = "Tensor scale, int[]? group_shape=None"
PER_TOKEN = (
    "truncated",
    "inverse",
    "bound ignored",
    "no smallest scale",
    "scale of the first token",
    "wraps",
)
PER_TENSOR = (
    "truncated",
    "inverse",
    "first row's maximum",
    "signed maximum",
    "another range",
    "scale inverted",
)
SHIFTED = ("zero point ignored", "zero point subtracted", "zero point before rounding, truncated")
ONE_SCALE = {"swapped-rows:scale": "there is one element"}
NO_ZERO_POINT = {f"{fault}:azp": "a symmetric quantisation has none" for fault in FAULTS}

SUBJECTS = [
    _subject(static_scaled_fp8_quant, STATIC_FP8, FP8_FAULTS),
    _subject(static_scaled_fp8_quant, STATIC_FP8, FP8_FAULTS, "float32", dtype="float32"),
    _subject(dynamic_scaled_fp8_quant, "Tensor! scale", PER_TENSOR, harmless=ONE_SCALE),
    _subject(dynamic_per_token_scaled_fp8_quant, "Tensor! scale, Tensor? scale_ub", PER_TOKEN),
    _subject(static_scaled_int8_quant, "Tensor scale,Tensor? azp", ("truncated", "wraps")),
    _subject(
        static_scaled_int8_quant,
        "Tensor scale,Tensor? azp",
        ("truncated", "wraps", *SHIFTED),
        "asymmetric",
        symmetric=False,
    ),
    _subject(
        dynamic_scaled_int8_quant,
        "Tensor! scale, Tensor!? azp",
        ("truncated", "scale of the first token", "another range"),
        harmless=NO_ZERO_POINT,
    ),
    _subject(
        dynamic_scaled_int8_quant,
        "Tensor! scale, Tensor!? azp",
        ("truncated", "scale of the first token", "zero point negated"),
        "asymmetric",
        symmetric=False,
    ),
]
