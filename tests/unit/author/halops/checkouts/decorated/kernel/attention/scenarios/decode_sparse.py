from dataclasses import dataclass

import torch

from core.registry import Backends

from .common import DEFAULTS, DTYPES, Unsupported, heads, is_small, need

backends = Backends()
KV = "kv_lens"


@dataclass
class Inputs:
    q: object
    kv: object


@backends.register("halops")
def adapt_halops(inputs, conf):
    return lambda: inputs


@backends.register("golden", "naive")
def adapt_golden(inputs, conf):
    return lambda: inputs


@backends.register("fa2")
def adapt_fa2(inputs, conf):
    _no_small(inputs.q)
    return lambda: inputs


def _no_small(tensor):
    if is_small(tensor.dtype):
        raise Unsupported("16 bits only")


def _get_backends():
    return backends.table()


def _build_inputs(conf, length):
    dtype = DTYPES[conf["dtype"]]
    q, kv = heads(conf)
    topk = conf.get("topk", DEFAULTS["topk"])
    page = conf.get("page_size", DEFAULTS["page_size"])
    need(topk % page == 0, "topk is whole pages")
    need(topk <= length, "topk is at most the length")
    return Inputs(
        q=torch.zeros(conf["batch_size"], q, 128).to(dtype),
        kv=torch.zeros(length, kv, 128, dtype=dtype),
    )


def _lengths(conf):
    for length in conf[KV]:
        yield length


def run_decode_sparse(env, conf):
    wanted = sorted(conf["backends"], key=lambda name: name != "halops")
    for length in _lengths(conf):
        inputs = _build_inputs(conf, length)
        table = _get_backends()
        for name in wanted:
            env.measure(table[name](inputs, conf))
