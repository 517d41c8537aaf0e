import torch

from core.utils import _move_to_front

_FP8 = ("fp8", "e4m3", "float8_e4m3fn")


def _is_fp8(cfg):
    return cfg["dtype"] in _FP8


def adapt_halops(inputs, cfg):
    return lambda: None


def adapt_golden(inputs, cfg):
    return lambda: None


def adapt_fi(inputs, cfg):
    return lambda: None


def adapt_fa2(inputs, cfg):
    if inputs["q"].dtype == torch.float8_e4m3fn:
        raise ValueError("fa2 has no FP8")
    return lambda: None


def adapt_cudnn(inputs, cfg):
    if _is_fp8(cfg):
        raise NotImplementedError("cudnn decode is BF16 and FP16 only")
    return lambda: None


def _get_backends():
    registry = {
        "halops": adapt_halops,
        "golden": adapt_golden,
        "fi": adapt_fi,
        "fi(trtllm-gen)": adapt_fi,
        "fa2": adapt_fa2,
        "cudnn": adapt_cudnn,
    }
    return registry


def build_inputs(cfg, s_kv, mtp):
    name = cfg["dtype"]
    dtype = torch.float8_e4m3fn if _is_fp8(cfg) else getattr(torch, name)
    hq, hkv = cfg["num_q_heads"], cfg["num_kv_heads"]
    assert hq % hkv == 0, "query heads must be a multiple of KV heads"
    group = hq // hkv
    assert (1 + mtp) * group <= 64, "MTP bound"
    q = torch.empty(cfg["batch_size"], 1 + mtp, hq, cfg["head_dim"], dtype=dtype)
    return {"q": q, "kv": torch.empty(cfg["batch_size"], s_kv, hkv, cfg["head_dim"], dtype=dtype)}


def run_scenario(cfg, ctx):
    registry = _get_backends()
    backends = _move_to_front(list(cfg["backends"]), "halops")
    rows = []
    for mtp in cfg.get("mtp_steps_list", [0]):
        for s_kv in cfg["s_kv_list"]:
            inputs = build_inputs(cfg, s_kv, mtp)
            for name in backends:
                try:
                    fn = registry[name](inputs, cfg)
                except Exception as e:
                    rows.append({"error": str(e)})
                    continue
                rows.append(ctx["time"](fn, graph=cfg.get("use_cuda_graph", True)))
    return rows
