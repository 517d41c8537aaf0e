"""DeepGEMM: bfloat16, and FP8 with a scale a 1 x 128 of A and a 128 x 128 of B."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from core.backends import Launch, UnavailableError, need_capability, need_cuda, require

from kernel.gemm.backends.torch_mm import masked_output
from kernel.gemm.formats.operand import Operand
from kernel.gemm.problem import OUT_DTYPE, Dense, Grouped

Stored = torch.Tensor | tuple[torch.Tensor, torch.Tensor]


def dense(inputs: Dense, sm_count: int) -> Launch:
    """``bf16_gemm_nt`` or ``fp8_gemm_nt`` into a kept output, [M, N]."""
    kernel = _kernel(inputs.a, "gemm_nt", sm_count)
    a, b = _stored(inputs.a), _stored(inputs.b)
    shape = (inputs.a.data.shape[0], inputs.b.data.shape[0])
    out = torch.empty(shape, dtype=OUT_DTYPE, device=inputs.a.data.device)

    def launch() -> torch.Tensor:
        kernel(a, b, out)
        return out

    return launch


def contiguous(inputs: Grouped, sm_count: int) -> Launch:
    """``m_grouped_*_gemm_nt_contiguous``, which reads each row's expert; [sum of rows, N]."""
    kernel = _kernel(inputs.a, "gemm_nt_contiguous", sm_count, "m_grouped_")
    a, b, expert = _stored(inputs.a), _stored(inputs.b), inputs.expert_of_row()
    shape = (inputs.a.data.shape[0], inputs.b.data.shape[1])
    out = torch.empty(shape, dtype=OUT_DTYPE, device=inputs.a.data.device)

    def launch() -> torch.Tensor:
        kernel(a, b, out, expert)
        return out

    return launch


def masked(inputs: Grouped, sm_count: int) -> Launch:
    """``m_grouped_*_gemm_nt_masked``, which reads each expert's count; the rows that count."""
    kernel = _kernel(inputs.a, "gemm_nt_masked", sm_count, "m_grouped_")
    a, b, out = _stored(inputs.a), _stored(inputs.b), masked_output(inputs)
    counted = inputs.counted(out)
    expected = -(-sum(inputs.rows) // len(inputs.rows))

    def launch() -> torch.Tensor:
        kernel(a, b, out, inputs.rows_device, expected)
        return counted

    return launch


def _kernel(a: Operand, name: str, sm_count: int, prefix: str = "") -> Callable[..., Any]:
    """DeepGEMM's function for operands like ``a``, called with ``sm_count`` SMs (0: all).

    Raises ``UnavailableError`` where the library, the function or a GPU for it is missing.
    """
    library = require("deep_gemm")
    need_cuda(a.data, "deep_gemm")
    need_capability("deep_gemm", 9, 10)
    full = f"{prefix}{'bf16' if a.mode == 'bf16' else 'fp8'}_{name}"
    if not hasattr(library, full):
        raise UnavailableError(f"this deep_gemm has no {full}")
    kernel = getattr(library, full)
    properties = torch.cuda.get_device_properties(a.data.device)

    def call(*values: Any) -> None:
        library.set_num_sms(sm_count or properties.multi_processor_count)
        kernel(*values)

    return call


def _stored(side: Operand) -> Stored:
    return side.data if side.mode == "bf16" else (side.data, side.scales)
