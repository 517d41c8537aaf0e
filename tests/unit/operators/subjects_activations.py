"""Activations from torch's own float64 functions, or from Python's ``math``, value by value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from faults import Subject, part

TINY = {"num_tokens": 17, "intermediate_size": 96}
Function = Callable[[float], float]


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def _silu(value: float) -> float:
    return value * _sigmoid(value)


def _gelu(value: float) -> float:
    return value * math.erfc(-value / math.sqrt(2)) / 2


def _gelu_tanh(value: float) -> float:
    # tanh(u) + 1 = 2 sigmoid(2 u)
    return value * _sigmoid(2 * math.sqrt(2 / math.pi) * (value + 0.044715 * value**3))


def _each(function: Function, values: torch.Tensor) -> torch.Tensor:
    found = [function(value) for value in values.double().flatten().tolist()]
    return torch.tensor(found, dtype=torch.float64).reshape(values.shape)


def _gated(function: Function, out: Any, input: Any, *, fault: str = "") -> None:
    """The activation of the first half times the second, rounded after either.

    ``rounded once``, at the end, is no fault: kernels differ there.
    """
    left, right = input.tensor_split(2, dim=-1)
    if fault == "halves exchanged":
        left, right = right, left
    elif fault == "interleaved":
        left, right = input[..., ::2], input[..., 1::2]
    active = left if fault == "no activation" else _each(function, left)
    if fault != "rounded once":
        active = active.to(input.dtype)
    if fault == "not gated":
        right = torch.ones_like(right)
    out.copy_(active.double() * right.double())


def silu_and_mul(out: Any, input: Any, **wrong: Any) -> None:
    _gated(_silu, out, input, **wrong)


def mul_and_silu(out: Any, input: Any, *, fault: str = "") -> None:
    swapped = "" if fault == "halves exchanged" else fault
    order = input if fault == "halves exchanged" else torch.roll(input, out.shape[-1], dims=-1)
    _gated(_silu, out, order, fault=swapped)


def gelu_and_mul(out: Any, input: Any, **wrong: Any) -> None:
    _gated(_gelu, out, input, **wrong)


def gelu_tanh_and_mul(out: Any, input: Any, **wrong: Any) -> None:
    _gated(_gelu_tanh, out, input, **wrong)


def fatrelu_and_mul(out: Any, input: Any, threshold: float, *, fault: str = "") -> None:
    def fatrelu(value: float) -> float:
        if fault == "shifted":
            return max(value - threshold, 0.0)
        if fault == "threshold ignored":
            return max(value, 0.0)
        if fault == "not strict":
            return value if value >= threshold else 0.0
        return value if value > threshold else 0.0

    own = fault in ("shifted", "threshold ignored", "not strict")
    _gated(fatrelu, out, input, fault="" if own else fault)


def swigluoai_and_mul(
    out: Any, input: Any, alpha: float = 1.702, limit: float = 7.0, *, fault: str = ""
) -> None:
    for row in range(input.shape[0]):
        values = input[row].double().tolist()
        for column in range(out.shape[1]):
            gate, up = values[2 * column], values[2 * column + 1]
            if fault == "halves":
                gate, up = values[column], values[column + out.shape[1]]
            if fault == "exchanged":
                gate, up = up, gate
            if fault != "no limit":
                gate, up = min(gate, limit), max(-limit, min(up, limit))
            if fault == "gate clamped below":
                gate = max(gate, -0.5)
            if fault == "alpha ignored":
                alpha = 1.0
            one = 0.0 if fault == "no one" else 1.0
            out[row, column] = (up + one) * gate * _sigmoid(alpha * gate)


def gelu_new(out: Any, input: Any) -> None:
    out.copy_(_each(_gelu_tanh, input))


def gelu_fast(out: Any, input: Any) -> None:
    out.copy_(torch.nn.functional.gelu(input.double(), approximate="tanh"))


def gelu_quick(out: Any, input: Any) -> None:
    out.copy_(_each(lambda value: value * _sigmoid(1.702 * value), input))


def _exact_gelu(out: Any, input: Any) -> None:
    out.copy_(_each(_gelu, input))


def _silu_alone(out: Any, input: Any) -> None:
    out.copy_(_each(_silu, input))


def _relu(out: Any, input: Any) -> None:
    out.copy_(input.clamp(min=0))


GATED = ["halves exchanged", "interleaved", "no activation", "not gated"]
OF_FATRELU = [
    "halves exchanged",
    "interleaved",
    "not gated",
    "shifted",
    "threshold ignored",
    "not strict",
]
OF_SWIGLUOAI = [
    "halves",
    "exchanged",
    "no limit",
    "gate clamped below",
    "alpha ignored",
    "no one",
]


def _subjects(
    kernel: Callable[..., None], arguments: str, faults: list[str], **others: Callable[..., None]
) -> list[Subject]:
    return [
        Subject(
            kernel.__name__,
            "_C",
            f"{kernel.__name__}(Tensor! out, Tensor input{arguments}) -> ()",
            kernel,
            {**TINY, "dtype": dtype},
            right={"rounded once": part(kernel, fault="rounded once")} if faults else {},
            wrong={**{fault: part(kernel, fault=fault) for fault in faults}, **others},
            label=dtype,
        )
        for dtype in ("bfloat16", "float16", "float32")
    ]


SUBJECTS = [
    *_subjects(silu_and_mul, "", GATED, gelu=gelu_and_mul),
    *_subjects(mul_and_silu, "", GATED, silu_and_mul=silu_and_mul),
    *_subjects(gelu_and_mul, "", GATED, silu=silu_and_mul),
    *_subjects(gelu_tanh_and_mul, "", GATED, silu=silu_and_mul),
    *_subjects(fatrelu_and_mul, ", float threshold", OF_FATRELU),
    *_subjects(swigluoai_and_mul, ", float alpha=1.702, float limit=7.0", OF_SWIGLUOAI),
    *_subjects(gelu_new, "", [], relu=_relu, quick=gelu_quick),
    *_subjects(gelu_fast, "", [], relu=_relu, quick=gelu_quick),
    *_subjects(gelu_quick, "", [], relu=_relu, silu=_silu_alone, exact=_exact_gelu),
]
