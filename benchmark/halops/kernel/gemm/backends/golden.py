"""The written-out reference: stored numbers dequantised, multiplied and summed in float64.

Products of two stored numbers are exact in float64, and the sums err by some 1e-16 a term, so what
a kernel loses by its own order of summing and its output's dtype is all that a comparison shows.
"""

from __future__ import annotations

import torch
from core.backends import Launch

from kernel.gemm.formats.operand import Operand
from kernel.gemm.problem import Dense, Grouped


def product(a: Operand, b: Operand) -> torch.Tensor:
    """A B^T of A [rows, K] and B [N, K], in float32 [rows, N]."""
    return (a.dequantised() @ b.dequantised().t()).float()


def dense(inputs: Dense) -> Launch:
    """Launch the dense product; float32 [M, N]."""
    return lambda: product(inputs.a, inputs.b)


def contiguous(inputs: Grouped) -> Launch:
    """Launch each expert's product on its rows; float32 [sum of rows, N]."""

    def launch() -> torch.Tensor:
        parts, ends = [], inputs.ends
        for expert, count in enumerate(inputs.rows):
            rows = slice(ends[expert] - count, ends[expert])
            parts.append(product(inputs.a.rows(rows), inputs.b[expert]))
        return torch.cat(parts)

    return launch


def masked(inputs: Grouped) -> Launch:
    """Launch each expert's product on the rows that count; float32, else zero."""

    def launch() -> torch.Tensor:
        experts, max_m = inputs.a.data.shape[:2]
        out = torch.zeros(experts, max_m, inputs.b.data.shape[1], device=inputs.a.data.device)
        for expert, count in enumerate(inputs.rows):
            out[expert, :count] = product(inputs.a[expert].rows(slice(count)), inputs.b[expert])
        return inputs.counted(out)

    return launch
