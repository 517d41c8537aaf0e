import torch

from core.utils import _move_to_front


def adapt_halops(inputs, cfg):
    import halops

    return lambda: halops.prefill(*inputs)


def adapt_golden(inputs, cfg):
    q, k, v = inputs
    return lambda: torch.softmax(q @ k.transpose(-1, -2), -1) @ v


def adapt_fa2(inputs, cfg):
    q, k, v = inputs
    from flash_attn import flash_attn_func

    return lambda: flash_attn_func(q, k, v, causal=True)


def _get_backends():
    return {"halops": adapt_halops, "golden": adapt_golden, "fa2": adapt_fa2}


def build_inputs(cfg, s):
    dtype = getattr(torch, cfg["dtype"])
    b, hq, hkv, d = cfg["batch_size"], cfg["num_q_heads"], cfg["num_kv_heads"], cfg["head_dim"]
    q = torch.randn(b, hq, s, d, dtype=dtype)
    k = torch.randn(b, hkv, s, d, dtype=dtype)
    return q, k, torch.randn_like(k)


def run_scenario(cfg, ctx):
    registry = _get_backends()
    rows = []
    for s in cfg["s_list"]:
        inputs = build_inputs(cfg, s)
        for name in _move_to_front(cfg["backends"], "halops"):
            fn = registry[name](inputs, cfg)
            rows.append(ctx["time"](fn))
    if cfg.get("refcheck", True):
        registry[cfg.get("refcheck_reference", "golden")]
    return rows
