import torch

from kernel.gemm.scenarios.dense import _get_backends


def _make_masked(shape, mode):
    num_experts, max_m, N, K = shape
    if mode in ("w8a8-mxfp8", "w4a4-nvfp4"):
        assert K % 32 == 0
    return torch.empty(num_experts, max_m, K)


def run_scenario(cfg, ctx):
    registry = _get_backends()
    base = None
    for shape in cfg["shapes"]:
        inputs = _make_masked(shape, cfg["mode"])
        for name in cfg["backends"]:
            result = ctx["time"](registry[name](inputs, cfg["mode"]))
            if result is None:
                continue
            if base is None:
                base = result
