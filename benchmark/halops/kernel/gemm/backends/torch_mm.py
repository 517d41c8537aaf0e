"""Matrix products of PyTorch: plain ones (cuBLAS on NVIDIA) and those of quantised operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from core.backends import Launch, UnavailableError, need_capability, need_cuda
from torch.nn import functional

from kernel.gemm.formats.operand import Operand
from kernel.gemm.formats.swizzle import swizzle
from kernel.gemm.problem import OUT_DTYPE, Dense, Grouped


def dense(inputs: Dense) -> Launch:
    """``torch.mm`` of bfloat16 operands into a kept output, [M, N]."""
    a, b = inputs.a.data, inputs.b.data.t()
    out = torch.empty(a.shape[0], b.shape[1], dtype=OUT_DTYPE, device=a.device)
    return lambda: torch.mm(a, b, out=out)


def cublas_dense(inputs: Dense, sm_count: int) -> Launch:
    """The dense product by cuBLAS, in whatever format the operands have, [M, N].

    ``sm_count`` SMs, 0 for all. Raises ``UnavailableError`` where this device or this PyTorch does
    not multiply such operands.
    """
    need_cuda(inputs.a.data, "cublas")
    shape = (inputs.a.data.shape[0], inputs.b.data.shape[0])
    out = torch.empty(shape, dtype=OUT_DTYPE, device=inputs.a.data.device)
    return _in_turn([_product(inputs.a, inputs.b, out)], out, sm_count)


def cublas_contiguous(inputs: Grouped, sm_count: int) -> Launch:
    """One cuBLAS product after another, an expert each; [sum of rows, N].

    Their numbers of rows are known on the CPU, which a model would have to wait for.
    """
    need_cuda(inputs.a.data, "cublas")
    shape = (inputs.a.data.shape[0], inputs.b.data.shape[1])
    out = torch.empty(shape, dtype=OUT_DTYPE, device=inputs.a.data.device)
    products = []
    for expert, (count, end) in enumerate(zip(inputs.rows, inputs.ends, strict=True)):
        if count:
            rows = slice(end - count, end)
            products.append(_product(inputs.a.rows(rows), inputs.b[expert], out[rows]))
    return _in_turn(products, out, sm_count)


def cublas_masked(inputs: Grouped, sm_count: int) -> Launch:
    """One cuBLAS product after another over all rows of each expert; the rows that count."""
    need_cuda(inputs.a.data, "cublas")
    out = masked_output(inputs)
    products = [
        _product(inputs.a[expert], inputs.b[expert], out[expert])
        for expert in range(len(inputs.rows))
    ]
    return _in_turn(products, inputs.counted(out), sm_count)


def grouped_contiguous(inputs: Grouped) -> Launch:
    """``torch._grouped_mm``, or ``torch._scaled_grouped_mm`` for w8a8-fp8; [sum of rows, N]."""
    a, b = inputs.a.data, inputs.b.data.transpose(1, 2)
    ends = torch.tensor(inputs.ends, dtype=torch.int32, device=a.device)
    if inputs.a.mode == "bf16":
        if not hasattr(torch, "_grouped_mm"):
            raise UnavailableError(f"PyTorch {torch.__version__} has no torch._grouped_mm")
        return lambda: torch._grouped_mm(a, b, offs=ends)
    need_cuda(a, "torch")
    if not hasattr(torch, "_scaled_grouped_mm"):
        raise UnavailableError(f"PyTorch {torch.__version__} has no torch._scaled_grouped_mm")
    scale_a, scale_b = inputs.a.scales.flatten(), inputs.b.scales.flatten(1)
    return lambda: torch._scaled_grouped_mm(a, b, scale_a, scale_b, offs=ends, out_dtype=OUT_DTYPE)


def padded(inputs: Grouped) -> Launch:
    """``torch.bmm`` over all ``max_m`` rows of every expert; the rows that count."""
    a, b, out = inputs.a.data, inputs.b.data.transpose(1, 2), masked_output(inputs)
    counted = inputs.counted(out)

    def launch() -> torch.Tensor:
        torch.bmm(a, b, out=out)
        return counted

    return launch


def masked_output(inputs: Grouped) -> torch.Tensor:
    """Room for what a masked product writes, [experts, max_m, N]."""
    experts, max_m = inputs.a.data.shape[:2]
    width = inputs.b.data.shape[1]
    return torch.empty(experts, max_m, width, dtype=OUT_DTYPE, device=inputs.a.data.device)


def _in_turn(products: Sequence[Callable[[], object]], out: torch.Tensor, sm_count: int) -> Launch:
    """A launch of all ``products``, on ``sm_count`` SMs, that returns the ``out`` they write."""

    def launch() -> torch.Tensor:
        with _limited(sm_count, out.device):
            for product in products:
                product()
        return out

    return launch


def _product(a: Operand, b: Operand, out: torch.Tensor) -> Callable[[], object]:
    """Writes A B^T to ``out``, for operands of any format; raises ``UnavailableError``."""
    data_a, data_b = a.data, b.data.t()
    if a.mode == "bf16":
        return lambda: torch.mm(data_a, data_b, out=out)
    if a.mode == "w4a4-nvfp4":
        need_capability("cublas in w4a4-nvfp4", 10, 12)
        return _nvfp4(a, b, out)
    if a.mode == "w8a8-mxfp8":
        need_capability("cublas in w8a8-mxfp8", 10, 12)
        scale_a, scale_b = (
            swizzle(side).view(torch.float8_e8m0fnu) for side in (a.scales, b.scales)
        )
    elif a.block[1]:
        # A's scales of one column of blocks lie next to each other, B's of one row of blocks.
        scale_a, scale_b = a.scales.t().contiguous().t(), b.scales.t()
    else:
        scale_a, scale_b = a.scales, b.scales.t()
    return lambda: torch._scaled_mm(
        data_a, data_b, scale_a=scale_a, scale_b=scale_b, out_dtype=OUT_DTYPE, out=out
    )


def _nvfp4(a: Operand, b: Operand, out: torch.Tensor) -> Callable[[], object]:
    """By ``torch.nn.functional.scaled_mm``, which takes the scale of the whole as well.

    It has no ``out``: the copy is part of the launch.
    """
    if not hasattr(functional, "scaled_mm"):
        raise UnavailableError(f"PyTorch {torch.__version__} has no scaled_mm for NVFP4")
    recipe: Any = functional.ScalingType
    order: Any = functional.SwizzleType
    recipes = [recipe.BlockWise1x16, recipe.TensorWise]
    orders = [order.SWIZZLE_32_4_4, order.NO_SWIZZLE]
    scales = [[swizzle(side.scales), side.whole.flatten()] for side in (a, b)]
    packed = torch.float4_e2m1fn_x2
    data_a, data_b = a.data.view(packed), b.data.view(packed).t()

    def launch() -> object:
        return out.copy_(
            functional.scaled_mm(
                data_a,
                data_b,
                scales[0],
                recipes,
                scales[1],
                recipes,
                orders,
                orders,
                output_dtype=OUT_DTYPE,
            )
        )

    return launch


@contextmanager
def _limited(sm_count: int, device: torch.device) -> Iterator[None]:
    """Have cuBLAS leave all SMs but ``sm_count`` alone; 0: it may use all."""
    if sm_count == 0:
        yield
        return
    if not hasattr(torch._C, "_set_sm_carveout_experimental"):
        raise UnavailableError(f"PyTorch {torch.__version__} cannot limit the SMs of cuBLAS")
    carve = torch._C._set_sm_carveout_experimental
    carve(torch.cuda.get_device_properties(device).multi_processor_count - sm_count)
    try:
        yield
    finally:
        carve(None)
