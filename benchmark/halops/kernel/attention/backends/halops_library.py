"""The library ``halops`` itself: its attention functions by the scenario's name.

``halops.attention.<scenario>`` is called with keyword arguments: the tensors, ``softmax_scale``,
``causal`` and, where they are quantised, the scales of the cache; it returns the output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from core.backends import Launch, UnavailableError, require

from kernel.attention.sequences import Sequences


def entry(scenario: str) -> Callable[..., torch.Tensor]:
    """The library's function for ``scenario``; raises ``UnavailableError`` without one."""
    module = require("halops.attention", "halops")
    found: Callable[..., torch.Tensor] | None = getattr(module, scenario, None)
    if found is None:
        raise UnavailableError(f"halops is installed, but has no halops.attention.{scenario}")
    return found


def prepare(scenario: str, **arguments: Any) -> Launch:
    """A launch of the library's function with ``arguments``."""
    function = entry(scenario)
    return lambda: function(**arguments)


def prepare_sequences(scenario: str, inputs: Sequences) -> Launch:
    """A launch over paged ``inputs``; the library returns [T, Hq, Dvo]."""
    return prepare(
        scenario,
        q=inputs.q,
        k_cache=inputs.k_pages,
        v_cache=inputs.v_pages,
        page_table=inputs.page_table,
        cu_seqlens_q=inputs.cu_q,
        seq_lens=inputs.seq_lens,
        softmax_scale=inputs.scale,
        causal=inputs.causal,
        k_scale=inputs.k_scale,
        v_scale=inputs.v_scale,
        out_dtype=inputs.out_dtype,
    )
