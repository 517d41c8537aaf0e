import functools

import torch

ALIGN = {"bf16": 8, "w8a8-fp8": 16, "w4a4-nvfp4": 32}
_BACKENDS = {}


def adapt_cublas(inputs, precision, *, bias):
    if precision not in ("bf16", "w8a8-fp8"):
        raise RuntimeError("cublas: bf16 and fp8")
    return lambda: inputs


def adapt_any(inputs, precision, *, bias):
    return lambda: inputs


_BACKENDS.update(halops=adapt_any, golden=adapt_any)
_BACKENDS.update({"cublas": adapt_cublas})


def _get_backends():
    return _BACKENDS


def _make_operands(precision, m, n, k):
    align = ALIGN[precision]
    assert k % align == 0 and n % align == 0, f"{precision}: K and N in {align}"
    return torch.empty(m, k), torch.empty(n, k)


def _run(env, settings, bias):
    precision = settings["mode"]
    baseline = None
    for m, n, k in settings["shapes"]:
        operands = _make_operands(precision, m, n, k)
        for name in settings["backends"]:
            took = env.measure(_get_backends()[name](operands, precision, bias=bias))
            if not baseline:
                baseline = took


run_dense = functools.partial(_run, bias=False)
run_dense_bias = functools.partial(_run, bias=True)
