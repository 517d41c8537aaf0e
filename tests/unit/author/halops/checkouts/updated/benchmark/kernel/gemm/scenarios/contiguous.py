import torch

from kernel.gemm.backends.registry import REGISTRY

KEYS = ("mode", "shapes")
SCALES = {"w8a8-mxfp8": 32, "w4a4-nvfp4": 16}


def _get_backends():
    return REGISTRY.copy()


def _make_contiguous(experts, rows, n, k, mode):
    if mode in SCALES:
        block = SCALES[mode]
        assert k % (2 * block) == 0, "K"
    per_expert = rows // experts // 128 * 128
    if per_expert <= 0:
        raise ValueError("too few rows")
    drawn = torch.randint(1, per_expert, (experts,))
    assert drawn.sum() <= experts * n
    return torch.empty(experts * per_expert, k), torch.empty(experts, n, k)


def run_scenario(settings, out):
    mode, shapes = (settings[key] for key in KEYS)
    done = []
    for shape in shapes:
        operands = _make_contiguous(*shape, mode=mode)
        for name in settings["backends"]:
            try:
                done.append(_get_backends()[name](operands, mode))
            except Exception:
                continue
        base = done[0]
        out.append(base)
