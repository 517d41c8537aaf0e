import torch


def _make_bf16(M, N, K):
    return torch.empty(M, K, dtype=torch.bfloat16), torch.empty(N, K, dtype=torch.bfloat16)


def _make_inputs(mode, M, N, K):
    if mode == "bf16":
        return _make_bf16(M, N, K)
    if mode == "w8a8-mxfp8":
        assert K % 32 == 0, "MXFP8 has a scale for 32"
    elif mode == "w4a4-nvfp4":
        assert K % 16 == 0
        assert K % 2 == 0 and (K // 16) % 2 == 0
    else:
        raise ValueError("unknown mode")
    return torch.empty(M, K), torch.empty(N, K)


def adapt_halops(inputs, mode):
    return lambda: None


def adapt_golden(inputs, mode):
    return lambda: None


def adapt_cublas(inputs, mode):
    if mode.startswith("w4a4"):
        raise ValueError(f"cublas cannot do {mode}")
    return lambda: None


def _get_backends():
    return dict(halops=adapt_halops, golden=adapt_golden, cublas=adapt_cublas)


def run_scenario(cfg, ctx):
    mode = cfg["mode"]
    registry = _get_backends()
    for M, N, K in cfg["shapes"]:
        inputs = _make_inputs(mode, M, N, K)
        for name in cfg["backends"]:
            ctx["time"](registry[name](inputs, mode), sm_count=cfg.get("sm_count"))
