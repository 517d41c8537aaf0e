"""The library that the suite is named after: one function a scenario.

``halops.gemm_dense`` is called by keyword with a, b, out, scale_a, scale_b, global_a, global_b,
mode and sm_count, ``gemm_grouped_contiguous`` with m_indices and ``gemm_group_masked`` with
masked_m besides; a build that lacks one is UNAVAILABLE and says which.
"""

from __future__ import annotations

from typing import Any

import torch
from core.backends import Launch, UnavailableError, need_cuda, require

from kernel.gemm.backends.torch_mm import masked_output
from kernel.gemm.formats.operand import Operand
from kernel.gemm.problem import OUT_DTYPE, Dense, Grouped


def dense(inputs: Dense, sm_count: int) -> Launch:
    """``halops.gemm_dense`` into a kept output, [M, N]."""
    shape = (inputs.a.data.shape[0], inputs.b.data.shape[0])
    out = torch.empty(shape, dtype=OUT_DTYPE, device=inputs.a.data.device)
    return _launch("gemm_dense", inputs.a, inputs.b, out, sm_count)


def contiguous(inputs: Grouped, sm_count: int) -> Launch:
    """``halops.gemm_grouped_contiguous``, [sum of rows, N]."""
    shape = (inputs.a.data.shape[0], inputs.b.data.shape[1])
    out = torch.empty(shape, dtype=OUT_DTYPE, device=inputs.a.data.device)
    indices = inputs.expert_of_row()
    return _launch("gemm_grouped_contiguous", inputs.a, inputs.b, out, sm_count, m_indices=indices)


def masked(inputs: Grouped, sm_count: int) -> Launch:
    """``halops.gemm_group_masked``, the rows that count."""
    out, counts = masked_output(inputs), inputs.rows_device
    launch = _launch("gemm_group_masked", inputs.a, inputs.b, out, sm_count, masked_m=counts)
    return lambda: inputs.counted(launch())


def _launch(
    name: str, a: Operand, b: Operand, out: torch.Tensor, sm_count: int, **further: Any
) -> Launch:
    library = require("halops")
    need_cuda(a.data, "halops")
    if not hasattr(library, name):
        raise UnavailableError(f"this halops has no {name}")
    kernel = getattr(library, name)

    def launch() -> torch.Tensor:
        kernel(
            a=a.data,
            b=b.data,
            out=out,
            scale_a=a.scales if a.scales.numel() else None,
            scale_b=b.scales if b.scales.numel() else None,
            global_a=a.whole if a.whole.numel() else None,
            global_b=b.whole if b.whole.numel() else None,
            mode=a.mode,
            sm_count=sm_count,
            **further,
        )
        return out

    return launch
