"""The fields that all GEMM scenarios read alike, checked before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

from core.backends import Config
from core.runner import ConfigError, Options

from kernel.gemm.formats.operand import MODES


def options(cfg: Config) -> Options:
    """How results are checked and timed."""
    return Options(
        refcheck=cfg.get("refcheck", True),
        refcheck_reference=cfg.get("refcheck_reference", "golden"),
        cold_l2_cache=cfg.get("cold_l2_cache", True),
        use_cuda_graph=cfg.get("use_cuda_graph", False),
        gpu_type=cfg.get("gpu_type"),
    )


def check_mode(cfg: Config) -> str:
    """The configuration's ``mode``; raises ``ConfigError`` for one that is none of ``MODES``."""
    mode = cfg["mode"]
    if mode not in MODES:
        raise ConfigError(f"mode {mode!r} is none of {', '.join(MODES)}")
    if cfg.get("fp8_scales", "row") not in ("row", "block"):
        raise ConfigError(f"fp8_scales {cfg['fp8_scales']!r} is neither row nor block")
    return str(mode)


def check_shapes(cfg: Config, sides: Sequence[str]) -> list[list[int]]:
    """The configuration's ``shapes``; raises ``ConfigError`` unless each has a number a side."""
    shapes = cfg["shapes"]
    for shape in shapes:
        whole = isinstance(shape, list) and all(type(side) is int and side > 0 for side in shape)
        if not whole or len(shape) != len(sides):
            raise ConfigError(f"shape {shape!r} is no [{', '.join(sides)}] of positive integers")
    return list(shapes)


def blocks(cfg: Config) -> bool:
    """Whether w8a8-fp8 has its scales by blocks (``fp8_scales: block``) instead of rows."""
    return bool(cfg["mode"] == "w8a8-fp8" and cfg.get("fp8_scales", "row") == "block")


def swizzled(cfg: Config) -> bool:
    """Whether the block scales of MXFP8 and NVFP4 are counted with the padding of their tiles."""
    return bool(cfg.get("swizzled_scales", True))


def parameters(cfg: Config, **sides: int) -> dict[str, object]:
    """What names a case: mode, sides, SMs it may use, its data's seed; scales where they differ."""
    found: dict[str, object] = {"mode": cfg["mode"], **sides, "sm_count": cfg.get("sm_count", 0)}
    found["seed"] = cfg.get("seed", 0)
    if cfg["mode"] == "w8a8-fp8":
        found["fp8_scales"] = cfg.get("fp8_scales", "row")
    return found
