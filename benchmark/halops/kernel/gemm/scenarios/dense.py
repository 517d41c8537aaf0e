"""One matrix product C = A B^T, as a linear layer has it: ``shapes`` of [M, N, K].

A is [M, K] (activations), B [N, K] (weights), C [M, N] in bfloat16. K is bound by the formats'
blocks, in ``_make_inputs``; bf16 binds nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from core.backends import Adapt, Config, Launch, UnsupportedError, _move_to_front
from core.runner import Context, run_case

from kernel.gemm import settings
from kernel.gemm.backends import deep_gemm, golden, halops, torch_mm
from kernel.gemm.formats import operand
from kernel.gemm.problem import LIMIT, Dense, dense_work, scale_blocks


def _make_inputs(cfg: Config, M: int, N: int, K: int, device: torch.device) -> Dense:
    """A and B, normally distributed, quantised once for all backends; seeded by ``seed``."""
    mode = cfg["mode"]
    if mode == "w8a8-fp8":
        assert K % 16 == 0, f"K = {K}: a row of FP8 is read 16 bytes at a time"
        assert N % 16 == 0, f"N = {N}: FP8 tensor cores write 16 columns at a time"
        if cfg.get("fp8_scales", "row") == "block":
            assert K % 128 == 0, f"K = {K}: a scale stands for 128 along K"
            assert N % 128 == 0, f"N = {N}: a scale of B stands for 128 rows"
    elif mode == "w8a8-mxfp8":
        assert K % 32 == 0, f"K = {K}: a scale stands for 32 along K"
    elif mode == "w4a4-nvfp4":
        assert K % 32 == 0, f"K = {K}: a row of packed FP4 is read 16 bytes at a time"
    generator = torch.Generator(device=device).manual_seed(cfg.get("seed", 0))
    block_a, block_b = scale_blocks(settings.blocks(cfg))
    a = operand.normal(mode, (M, K), generator, block=block_a)
    b = operand.normal(mode, (N, K), generator, block=block_b)
    return Dense(a, b)


def adapt_halops(inputs: Any, cfg: Config) -> Launch:
    """The library that the suite is named after."""
    return halops.dense(inputs, cfg.get("sm_count", 0))


def adapt_golden(inputs: Any, cfg: Config) -> Launch:
    """The written-out reference in float64, on any device."""
    return golden.dense(inputs)


def adapt_cublas(inputs: Any, cfg: Config) -> Launch:
    """cuBLAS: ``torch.mm``, for quantised operands ``torch._scaled_mm``."""
    if cfg["mode"] == "bf16" and cfg.get("sm_count", 0):
        raise UnsupportedError("cublas does not limit the SMs of bf16 products; leave out sm_count")
    return torch_mm.cublas_dense(inputs, cfg.get("sm_count", 0))


def adapt_torch(inputs: Any, cfg: Config) -> Launch:
    """``torch.mm``, on any device."""
    if cfg["mode"] != "bf16":
        raise UnsupportedError(f"torch does not do {cfg['mode']}, only bf16")
    if cfg.get("sm_count", 0):
        raise UnsupportedError("torch does not limit the SMs; leave out sm_count")
    return torch_mm.dense(inputs)


def adapt_deep_gemm(inputs: Any, cfg: Config) -> Launch:
    """DeepGEMM."""
    if cfg["mode"] in ("w8a8-mxfp8", "w4a4-nvfp4"):
        raise UnsupportedError(f"deep_gemm does not do {cfg['mode']}, only bf16 and w8a8-fp8")
    if cfg["mode"] == "w8a8-fp8" and cfg.get("fp8_scales", "row") != "block":
        raise UnsupportedError("deep_gemm does w8a8-fp8 only with fp8_scales: block")
    return deep_gemm.dense(inputs, cfg.get("sm_count", 0))


def _get_backends() -> dict[str, Adapt]:
    return {
        "halops": adapt_halops,
        "golden": adapt_golden,
        "cublas": adapt_cublas,
        "torch": adapt_torch,
        "deep_gemm": adapt_deep_gemm,
    }


def run_scenario(cfg: Config, ctx: Context) -> None:
    """One case for each of ``shapes``."""
    mode = settings.check_mode(cfg)
    names = _move_to_front(cfg["backends"], "halops")
    for M, N, K in settings.check_shapes(cfg, ("M", "N", "K")):

        def build(M: int = M, N: int = N, K: int = K) -> Dense:
            return _make_inputs(cfg, M, N, K, ctx.device)

        work = dense_work(
            mode, M, N, K, blocks=settings.blocks(cfg), swizzled=settings.swizzled(cfg)
        )
        run_case(
            ctx,
            cfg,
            settings.parameters(cfg, M=M, N=N, K=K),
            _get_backends(),
            build,
            lambda inputs, work=work: work,  # type: ignore[misc]
            settings.options(cfg),
            names=names,
            limit=LIMIT,
        )
