from itertools import product

import torch

_SIXTEEN = frozenset({torch.bfloat16, torch.float16})


class Shape:
    def __init__(self, spec, kv, steps):
        self.spec = spec
        self.kv = kv
        self.queries = 1 + steps
        self.group, left = divmod(spec["num_q_heads"], spec["num_kv_heads"])
        self.left = left

    @property
    def rows(self):
        return self.group * self.queries

    def check(self):
        assert not self.left, "heads divide"
        assert self.rows <= 64


def _dtype(spec):
    match spec["dtype"]:
        case "fp8" | "e4m3":
            return torch.float8_e4m3fn
        case other:
            return getattr(torch, other)


def build_inputs(shape):
    shape.check()
    if shape.spec.get("quant", "none") == "per_block":
        assert shape.kv % 128 == 0
    return {"q": torch.zeros(shape.spec["batch_size"], shape.rows, 128, dtype=_dtype(shape.spec))}


def sixteen_only(name):
    def adapt_it(inputs, spec):
        if inputs["q"].dtype not in _SIXTEEN:
            raise TypeError(name + " has 16 bits")
        return inputs

    return adapt_it


def adapt_halops(inputs, spec):
    return inputs


def _get_backends():
    found = {"halops": adapt_halops, "golden": lambda inputs, spec: inputs}
    found.update({name: sixteen_only(name) for name in ("fa2", "fa4")})
    try:
        import flashinfer  # noqa: F401
    except ImportError:
        pass
    else:
        found["fi"] = adapt_halops
    return found


def run_mtp(spec, out):
    names = list(spec["backends"])
    if "halops" in names:
        names.remove("halops")
        names.insert(0, "halops")
    grid = product(spec["s_kv_list"], spec.get("mtp_steps_list") or [0])
    for kv, steps in grid:
        assert spec["batch_size"] * kv <= 1 << 20
        inputs = build_inputs(Shape(spec, kv, steps))
        out += [_get_backends()[name](inputs, spec) for name in names]
