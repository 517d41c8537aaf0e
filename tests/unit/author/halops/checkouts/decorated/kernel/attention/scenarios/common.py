import torch

DEFAULT_PAGE = 64
DEFAULTS = {"topk": 2048, "page_size": DEFAULT_PAGE}
DTYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "e4m3": torch.float8_e4m3fn,
}


class Unsupported(Exception):
    pass


def need(condition, text):
    if not condition:
        raise ValueError(text)


def heads(conf):
    q, kv = conf["q_heads"], conf["kv_heads"]
    _check_heads(q, kv)
    return q, kv


def _check_heads(q, kv):
    assert q % kv == 0, "heads"


def is_small(dtype):
    return dtype.itemsize == 1
