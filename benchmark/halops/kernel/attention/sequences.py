"""Sequences whose keys and values lie in pages, as serving engines keep them, and views of them.

Queries are packed token after token; sequence i owns the pages that row i of the page table names,
in an order that is shuffled over the whole cache. Backends that want another layout get a copy in
it, made before anything is timed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from core.backends import UnsupportedError

FP8_MAX = 448.0


@dataclass(frozen=True)
class Sequences:
    """One batch: ``q`` [T, Hq, Dqk], ``k_pages`` [P, page, Hkv, Dqk], ``v_pages`` [.., Dvo].

    ``q_lens`` and ``kv_lens`` are the actual lengths, one a sequence; ``page_table`` int32
    [B, most pages of one]. Numbers in the cache are the stored ones times ``k_scale`` and
    ``v_scale`` (float32 scalars, or [Hkv]; None: 1). ``out_dtype`` is that of the output.
    """

    q: torch.Tensor
    k_pages: torch.Tensor
    v_pages: torch.Tensor
    page_table: torch.Tensor
    q_lens: list[int]
    kv_lens: list[int]
    scale: float
    causal: bool
    out_dtype: torch.dtype
    k_scale: torch.Tensor | None = None
    v_scale: torch.Tensor | None = None

    @property
    def page_size(self) -> int:
        """Tokens a page."""
        return self.k_pages.shape[1]

    @property
    def head_dim_vo(self) -> int:
        """Elements of a head's output."""
        return self.v_pages.shape[-1]

    @property
    def scale_bytes(self) -> int:
        """Bytes of the cache's scales."""
        return sum(
            s.numel() * s.element_size() for s in (self.k_scale, self.v_scale) if s is not None
        )

    def queries(self, index: int) -> slice:
        """The rows of ``q`` that are sequence ``index``'s."""
        start = sum(self.q_lens[:index])
        return slice(start, start + self.q_lens[index])

    def gathered(self, pages: torch.Tensor, index: int) -> torch.Tensor:
        """Keys or values of sequence ``index`` as they are stored: [Sk, Hkv, D]."""
        length = self.kv_lens[index]
        own = self.page_table[index, : -(-length // self.page_size)].long()
        # FP8 numbers are moved as the bytes they are: not every device can index them.
        as_bytes = pages.view(torch.uint8) if pages.element_size() == 1 else pages
        return as_bytes[own].view(pages.dtype).flatten(0, 1)[:length]

    def packed(self, pages: torch.Tensor) -> torch.Tensor:
        """Keys or values of all sequences one after the other: [sum of Sk, Hkv, D]."""
        parts = [self.gathered(pages, index) for index in range(len(self.kv_lens))]
        if pages.element_size() == 1:
            return torch.cat([part.view(torch.uint8) for part in parts]).view(pages.dtype)
        return torch.cat(parts)

    def dense(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Q, K, V as [B, S, H, D]; raises ``UnsupportedError`` where lengths differ."""
        if len(set(self.q_lens)) > 1 or len(set(self.kv_lens)) > 1:
            raise UnsupportedError("a dense layout does not do sequences of different lengths")
        batch = len(self.q_lens)
        k, v = (self.packed(pages) for pages in (self.k_pages, self.v_pages))
        return (
            self.q.view(batch, self.q_lens[0], *self.q.shape[1:]),
            k.view(batch, self.kv_lens[0], *k.shape[1:]),
            v.view(batch, self.kv_lens[0], *v.shape[1:]),
        )

    @cached_property
    def cu_q(self) -> torch.Tensor:
        """int32 [B + 1]: where each sequence's queries begin."""
        return self._starts(self.q_lens)

    @cached_property
    def cu_kv(self) -> torch.Tensor:
        """int32 [B + 1]: where each sequence's keys begin, when packed."""
        return self._starts(self.kv_lens)

    @cached_property
    def seq_lens(self) -> torch.Tensor:
        """int32 [B]: the lengths of keys."""
        return torch.tensor(self.kv_lens, dtype=torch.int32, device=self.q.device)

    def page_lists(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The pages as FlashInfer takes them, int32: starts [B + 1], pages in use, last lengths."""
        counts = [-(-length // self.page_size) for length in self.kv_lens]
        rows = [row[:count] for row, count in zip(self.page_table, counts, strict=True)]
        last = [(length - 1) % self.page_size + 1 for length in self.kv_lens]
        lasts = torch.tensor(last, dtype=torch.int32, device=self.q.device)
        return self._starts(counts), torch.cat(rows), lasts

    def _starts(self, lengths: Sequence[int]) -> torch.Tensor:
        starts = [0, *itertools.accumulate(lengths)]
        return torch.tensor(starts, dtype=torch.int32, device=self.q.device)


def lengths(batch: int, longest: int, ragged: bool) -> list[int]:
    """Lengths of ``batch`` sequences: all ``longest``, or evenly from half of it up to it."""
    if not ragged or batch == 1:
        return [longest] * batch
    least = max(1, longest // 2)
    return [least + (longest - least) * index // (batch - 1) for index in range(batch)]


def page_table(kv_lens: Sequence[int], page_size: int, generator: torch.Generator) -> torch.Tensor:
    """int32 [B, most pages of one]: disjoint pages in shuffled order; unused entries are 0."""
    counts = [-(-length // page_size) for length in kv_lens]
    order = torch.randperm(sum(counts), generator=generator, device=generator.device)
    table = torch.zeros(len(counts), max(counts), dtype=torch.int32, device=generator.device)
    start = 0
    for row, count in zip(table, counts, strict=True):
        row[:count] = order[start : start + count]
        start += count
    return table


def quantise(values: torch.Tensor, kind: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """``values`` [P, page, Hkv, D] as E4M3 and their scale: ``none``, ``per_tensor``, ``per_head``.

    The largest magnitude becomes 448, the largest that E4M3 holds; ``none`` rounds as they are.
    Raises ``ValueError`` for another kind.
    """
    if kind == "none":
        return values.to(torch.float8_e4m3fn), None
    if kind == "per_tensor":
        scale = values.abs().amax() / FP8_MAX
    elif kind == "per_head":
        scale = values.abs().amax(dim=(0, 1, 3)) / FP8_MAX
    else:
        raise ValueError(f"cache_quant_type {kind!r}: use none, per_tensor or per_head")
    spread = scale if scale.dim() == 0 else scale[:, None]
    return (values / spread).to(torch.float8_e4m3fn), scale.to(torch.float32)
