"""Grouped products with the experts' rows one after another: prefill of a mixture of experts.

``shapes`` are [num_experts, max_m, N, K]: at most ``max_m`` rows of A for all experts together
([rows, K]), B [num_experts, N, K], C [rows, N] in bfloat16. Each expert has a multiple of
``m_alignment`` rows; ``routing`` says whether all have as many. The first backend that succeeds is
what speed-ups are against, in the order that the configuration gives: name halops first.
"""

from __future__ import annotations

from typing import Any

import torch
from core.backends import Adapt, Config, Launch, UnsupportedError
from core.metrics import Work
from core.report import first_success
from core.runner import Context, run_case

from kernel.gemm import routing, settings
from kernel.gemm.backends import deep_gemm, golden, halops, torch_mm
from kernel.gemm.formats import operand
from kernel.gemm.problem import LIMIT, Grouped, grouped_work, scale_blocks


def _make_inputs(
    cfg: Config, num_experts: int, max_m: int, N: int, K: int, device: torch.device
) -> Grouped:
    """A and every expert's B, normally distributed, quantised once; seeded by ``seed``.

    Raises ValueError where ``max_m`` leaves an expert no rows.
    """
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
    rows = routing.contiguous_rows(
        num_experts,
        max_m,
        alignment=cfg.get("m_alignment", 128),
        routing=cfg.get("routing", "even"),
        seed=cfg.get("seed", 0),
    )
    generator = torch.Generator(device=device).manual_seed(cfg.get("seed", 0))
    block_a, block_b = scale_blocks(settings.blocks(cfg))
    a = operand.normal(mode, (sum(rows), K), generator, block=block_a)
    b = operand.normal(mode, (num_experts, N, K), generator, block=block_b)
    return Grouped(a, b, rows, torch.tensor(rows, dtype=torch.int32, device=device))


def adapt_halops(inputs: Any, cfg: Config) -> Launch:
    """The library that the suite is named after."""
    return halops.contiguous(inputs, cfg.get("sm_count", 0))


def adapt_golden(inputs: Any, cfg: Config) -> Launch:
    """The written-out reference in float64, on any device."""
    return golden.contiguous(inputs)


def adapt_cublas(inputs: Any, cfg: Config) -> Launch:
    """cuBLAS, an expert after another."""
    if cfg["mode"] == "bf16" and cfg.get("sm_count", 0):
        raise UnsupportedError("cublas does not limit the SMs of bf16 products; leave out sm_count")
    return torch_mm.cublas_contiguous(inputs, cfg.get("sm_count", 0))


def adapt_torch(inputs: Any, cfg: Config) -> Launch:
    """``torch._grouped_mm``, for w8a8-fp8 ``torch._scaled_grouped_mm``."""
    if cfg["mode"] not in ("bf16", "w8a8-fp8"):
        raise UnsupportedError(f"torch does not do {cfg['mode']}, only bf16 and w8a8-fp8")
    if cfg["mode"] == "w8a8-fp8" and cfg.get("fp8_scales", "row") != "row":
        raise UnsupportedError("torch does w8a8-fp8 only with fp8_scales: row")
    if cfg.get("sm_count", 0):
        raise UnsupportedError("torch does not limit the SMs; leave out sm_count")
    return torch_mm.grouped_contiguous(inputs)


def adapt_deep_gemm(inputs: Any, cfg: Config) -> Launch:
    """DeepGEMM."""
    if cfg["mode"] in ("w8a8-mxfp8", "w4a4-nvfp4"):
        raise UnsupportedError(f"deep_gemm does not do {cfg['mode']}, only bf16 and w8a8-fp8")
    if cfg["mode"] == "w8a8-fp8" and cfg.get("fp8_scales", "row") != "block":
        raise UnsupportedError("deep_gemm does w8a8-fp8 only with fp8_scales: block")
    return deep_gemm.contiguous(inputs, cfg.get("sm_count", 0))


def _get_backends() -> dict[str, Adapt]:
    return {
        "halops": adapt_halops,
        "golden": adapt_golden,
        "cublas": adapt_cublas,
        "torch": adapt_torch,
        "deep_gemm": adapt_deep_gemm,
    }


def run_scenario(cfg: Config, ctx: Context) -> None:
    """One case for each of ``shapes``; the first backend that succeeds is the base."""
    mode = settings.check_mode(cfg)
    for num_experts, max_m, N, K in settings.check_shapes(cfg, ("num_experts", "max_m", "N", "K")):

        def build(E: int = num_experts, max_m: int = max_m, N: int = N, K: int = K) -> Grouped:
            return _make_inputs(cfg, E, max_m, N, K, ctx.device)

        def work(inputs: Grouped, N: int = N, K: int = K) -> Work:
            blocks, swizzled = settings.blocks(cfg), settings.swizzled(cfg)
            return grouped_work(mode, inputs.rows, N, K, blocks=blocks, swizzled=swizzled)

        params = settings.parameters(cfg, num_experts=num_experts, max_m=max_m, N=N, K=K)
        params["m_alignment"] = cfg.get("m_alignment", 128)
        params["routing"] = cfg.get("routing", "even")
        run_case(
            ctx,
            cfg,
            params,
            _get_backends(),
            build,
            work,
            settings.options(cfg),
            base=first_success,
            limit=LIMIT,
        )
