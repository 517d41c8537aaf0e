"""What a person wants benchmarked, by meaning: independent of any checkout's names of fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Word:
    """A word that only a checkout can tell the meaning of: a backend, a scenario, a field, a GPU.

    ``backend``: it stood behind the word "backend". ``negated``: it is not wanted.
    """

    text: str
    negated: bool = False
    backend: bool = False


@dataclass(frozen=True)
class Intent:
    """The values that a text has, by meaning.

    ``tags`` are the kinds of work (attention, decode, paged, ...), ``not_tags`` those that were
    ruled out. ``dtypes`` are torch names where there is one (``bfloat16``), else the format
    (``fp8``, ``mxfp8``, ``w8a8-fp8``); ``cache_dtype`` is the KV cache's. ``amounts`` are numbers
    by meaning (``batch``, ``kv_len``, ``q_heads``, ...), lengths in tokens, 4k being 4096;
    ``shapes`` GEMM shapes as they were written. ``named`` are values by a checkout's own name of a
    field. ``switches`` are refcheck, cuda_graph and cold_l2. ``chinese``: answer in Chinese.
    ``unclear`` says what was understood but not what for, ``unknown`` are words that nothing was
    made of, ``told`` is how something was taken that could be meant otherwise.
    """

    text: str = ""
    tags: tuple[str, ...] = ()
    not_tags: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    cache_dtype: str | None = None
    amounts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    shapes: tuple[tuple[int, ...], ...] = ()
    words: tuple[Word, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    switches: Mapping[str, bool] = field(default_factory=dict)
    all_backends: bool = False
    chinese: bool = False
    unclear: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
