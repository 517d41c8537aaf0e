"""Compare what has no order: rows as multisets, and the k best of each row with their ties."""

from __future__ import annotations

import dataclasses

import torch

from harness import checks, elements
from harness.checks import Comparison, refused


def unordered(out: torch.Tensor, ref: torch.Tensor, limit: float | None = None) -> Comparison:
    """Compare each row (last dimension) of ``out`` with that of ``ref`` as multisets.

    Integers and bools bit for bit (the same dtype), everything else with ``elements.close``.
    Takes memory for a float64 copy of both.
    """
    if out.is_complex() or ref.is_complex():
        return refused("complex numbers have no order, so rows of them cannot be sorted")
    whole = not out.dtype.is_floating_point
    if whole and out.dtype is not ref.dtype:
        return refused(f"{out.dtype} output where the reference has {ref.dtype}")
    reason = elements.coarser(out.dtype, ref.dtype)
    if reason is not None:
        return refused(reason)
    if out.dim() == 0 or out.shape != ref.shape or out.numel() == 0:
        return elements.exact(out, ref) if whole else elements.close(out, ref, limit)
    ordered = _sorted(out), _sorted(ref).to(out.device)
    found = elements.exact(*ordered) if whole else elements.close(*ordered, limit, out.dtype)
    return dataclasses.replace(found, compared=ordered)


def _sorted(tensor: torch.Tensor) -> torch.Tensor:
    tensor = checks.numbers(tensor)
    if tensor.dtype is torch.uint64:
        tensor = tensor.contiguous().view(torch.int64)
    wide = torch.float64 if tensor.dtype.is_floating_point else torch.int64
    return tensor.to(wide).sort(dim=-1).values


def topk(
    values: torch.Tensor | None,
    indices: torch.Tensor,
    scores: torch.Tensor,
    *,
    largest: bool = True,
    limit: float | None = None,
) -> Comparison:
    """Judge ``indices`` (and ``values``) as the k best of each row of ``scores``.

    ``scores``: [..., n]; ``indices``: [..., k], integers; ``values``: like ``indices``, or None.
    The order within a row does not matter, and any of several tied candidates is right. Each index
    must lie in [0, n) and occur once in its row, ``scores`` there must be the value returned
    within ``limit`` (``elements.close``; the default is that of the values' dtype), and the scores
    chosen must be the k best: exactly without ``values``, else within ``limit`` too, since the
    operator ranks its own rounded scores.
    """
    names = ("worst_row_error", "worst_row_scale", "max_abs_error")
    reason = _misfit(values, indices, scores)
    if reason is not None:
        return refused(reason, *names)
    rows = scores.detach().reshape(-1, scores.shape[-1])
    chosen = indices.detach().to(rows.device).reshape(len(rows), -1).to(torch.int64)
    reason = _bad_index(chosen, rows.shape[1])
    if reason is not None:
        return refused(reason, *names)
    exactly = values is None and limit is None
    dtype = scores.dtype if values is None else values.dtype
    found, best = _take(rows, chosen, largest)
    # A best score that is missing shows in sorted rows, whatever was returned as its value.
    ordered = found.sort(dim=-1).values
    ranked = elements.close(ordered, best, 0.0 if exactly else limit, dtype)
    if not ranked.passed:
        return Comparison(
            False,
            ranked.difference,
            f"the chosen scores are not the {chosen.shape[1]} best: {ranked.reason}",
            ranked.figures,
            compared=(ordered, best),
        )
    if values is None:
        return ranked
    matched = elements.close(values.reshape(found.shape), found, limit)
    if not matched.passed:
        return Comparison(
            False,
            matched.difference,
            f"the values are not the scores at their indices: {matched.reason}",
            matched.figures,
            compared=(values.reshape(found.shape), found),
        )
    return max(ranked, matched, key=lambda one: one.difference)


def _misfit(values: torch.Tensor | None, indices: torch.Tensor, scores: torch.Tensor) -> str | None:
    """Why shapes or dtypes do not belong together."""
    if indices.dtype.is_floating_point or indices.dtype.is_complex or indices.dtype is torch.bool:
        return f"the indices are {indices.dtype}, which is no integer"
    if scores.dim() == 0 or indices.shape[:-1] != scores.shape[:-1] or not indices.dim():
        return f"indices {tuple(indices.shape)} do not fit scores {tuple(scores.shape)}"
    if values is not None and values.shape != indices.shape:
        return f"values {tuple(values.shape)} where the indices have {tuple(indices.shape)}"
    if indices.numel() == 0:
        return "the output is empty, so there is nothing to verify"
    if indices.shape[-1] > scores.shape[-1]:
        return f"{indices.shape[-1]} indices a row, but {scores.shape[-1]} scores"
    return None


def _bad_index(chosen: torch.Tensor, count: int) -> str | None:
    outside = (chosen < 0) | (chosen >= count)
    if bool(outside.any()):
        first = int(outside.reshape(-1).to(torch.uint8).argmax())
        row, column = divmod(first, chosen.shape[1])
        return (
            f"{int(outside.sum())} of {chosen.numel()} indices lie outside [0, {count}), "
            f"first {int(chosen[row, column])} at row {row}, column {column}"
        )
    ordered = chosen.sort(dim=-1).values
    twice = (ordered[:, 1:] == ordered[:, :-1]).any(dim=-1)
    if bool(twice.any()):
        row = int(twice.to(torch.uint8).argmax())
        return f"{int(twice.sum())} rows name an index twice, first row {row}"
    return None


def _take(
    rows: torch.Tensor, chosen: torch.Tensor, largest: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores at the indices, and the best ones ascending: [rows, k] each.

    In float64, which does not hold all integers: those in int64 (uint64 has no order in torch).
    """
    whole = not rows.dtype.is_floating_point and rows.dtype is not torch.uint64
    wide = torch.int64 if whole else torch.float64
    found, best = [], []
    step = max(1, checks._SLICE // rows.shape[1])
    for start in range(0, len(rows), step):
        block = rows[start : start + step].to(wide)
        found.append(block.gather(1, chosen[start : start + step]))
        top = block.topk(chosen.shape[1], dim=-1, largest=largest).values
        best.append(top.sort(dim=-1).values)
    return torch.cat(found), torch.cat(best)
