"""Compare element by element: bit for bit, or the worst row within what the dtype can hold.

Where cosine similarity averages one wrong row among many away, every row is held to its own
magnitude here. In float64 and in blocks, as in ``checks``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from harness import checks
from harness.checks import Comparison, numbers, refused, survey, unlike

# Largest error of an element, relative to its row's largest magnitude.
LIMITS: dict[torch.dtype, float] = {
    # Sums of 1e5 terms in another order are off by 1e-13; the rest is for approximated functions.
    torch.float64: 1e-10,
    # 84 steps: 1e4 terms in another order and fast exp, rsqrt and division (2 to 10 steps each).
    torch.float32: 1e-5,
    # Two steps of the largest element: half a step each for the kernel's rounding, one rounded
    # intermediate and the reference's rounding, and half to spare. Still below an error of 2 %.
    torch.float16: 2 * torch.finfo(torch.float16).eps,
    torch.bfloat16: 2 * torch.finfo(torch.bfloat16).eps,
    # One step: a value that lies between two may be rounded to either.
    **{
        getattr(torch, name): torch.finfo(getattr(torch, name)).eps
        for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
        if hasattr(torch, name)
    },
}
LIMITS[torch.complex64], LIMITS[torch.complex128] = LIMITS[torch.float32], LIMITS[torch.float64]
# Steps of integers: quantised values may be rounded to either neighbour; wider integers count or
# name something.
_NARROW_STEPS, _WIDE_STEPS = 1, 0
# Kernels sum in float32 at best: half a step of the tensor's largest value says nothing.
_ACCUMULATION = 2.0**-24
SCALE_TOLERANCE = 0.01

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def exact(out: torch.Tensor, ref: torch.Tensor) -> Comparison:
    """Compare bit for bit: shape, dtype, every value, NaN payloads and negative zeros.

    The difference is 0.0 or 1.0.
    """
    reason = None
    if out.shape != ref.shape:
        reason = f"shape {tuple(out.shape)} where the reference has {tuple(ref.shape)}"
    elif out.dtype is not ref.dtype:
        reason = f"{out.dtype} output where the reference has {ref.dtype}"
    elif out.numel() == 0:
        reason = "the output is empty, so there is nothing to verify"
    if reason is not None:
        return Comparison(False, 1.0, reason, {"mismatches": None})
    left, right = _bits(out), _bits(ref)
    count, first = 0, -1
    for start in range(0, left.numel(), checks._SLICE):
        a = left[start : start + checks._SLICE]
        differs = a != right[start : start + checks._SLICE].to(a.device)
        found = int(differs.sum())
        if found and not count:
            first = start + int(differs.to(torch.uint8).argmax())
        count += found
    if count:
        # A complex number has two halves.
        index = first // (left.numel() // out.numel())
        reason = (
            f"{count} of {left.numel()} values differ, first at {place(index, out.shape)}: "
            f"{_value(out, index)} where the reference has {_value(ref, index)}"
        )
    return Comparison(not count, float(count > 0), reason, {"mismatches": float(count)})


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    tensor = tensor.resolve_neg().contiguous().reshape(-1)
    return tensor.view(_BITS[tensor.element_size()])


def place(index: int, shape: torch.Size) -> str:
    """A flat index as the tensor's own: ``[3, 17]``."""
    return str(indices(index, shape))


def indices(index: int, shape: torch.Size) -> list[int]:
    """A flat index as one of each dimension of ``shape``."""
    found: list[int] = []
    for size in reversed(shape):
        found.insert(0, index % size)
        index //= size
    return found


def _value(tensor: torch.Tensor, index: int) -> object:
    element = tensor.detach().reshape(-1)[index]
    try:
        return element.item()
    except (NotImplementedError, RuntimeError):
        # Packed numbers that torch cannot turn into one of Python's.
        return f"byte {element.reshape(1).view(torch.uint8).item()}"


@dataclass
class _Worst:
    """The worst so far: an element's error (steps, or by its row's magnitude), a row's scale."""

    error: float = 0.0
    relative: float = 0.0
    index: int = 0
    fails: bool = False
    scale: float = 1.0
    row: int = 0
    scale_fails: bool = False


def usual_limit(dtype: torch.dtype) -> float:
    """The limit of ``close`` for outputs of ``dtype``; integers: steps. 0.0: none is usual."""
    if dtype in LIMITS:
        return LIMITS[dtype]
    if dtype.is_floating_point or dtype.is_complex or dtype is torch.bool:
        return 0.0
    return float(_NARROW_STEPS if dtype.itemsize == 1 else _WIDE_STEPS)


def close(
    out: torch.Tensor,
    ref: torch.Tensor,
    limit: float | None = None,
    dtype: torch.dtype | None = None,
) -> Comparison:
    """Compare every element with its row's magnitude; a row is the last dimension.

    ``limit`` is the largest error relative to the row's largest magnitude in ``ref``; integers:
    the largest number of steps. Default: ``usual_limit(dtype)``, ``dtype`` that of ``out``.
    Rows that vanish beside the tensor's largest value are held to half a float32 step of that (or
    to their dtype's smallest normal number). Each row's scale must also agree within 1 % and what
    one wrong step of its largest element does, which finds what rounding would hide. Both sides
    must be finite.
    The difference is the worst row's error, relative to its magnitude.
    Raises ``ValueError`` for a limit that anything would meet.
    """
    dtype = dtype or out.dtype
    limit = usual_limit(dtype) if limit is None else float(limit)
    whole = not (dtype.is_floating_point or dtype.is_complex)
    if not (0.0 <= limit < (math.inf if whole else 1.0)):
        raise ValueError(f"limit {limit} is not in [0, {'inf' if whole else 1}); write 0.01, say")
    names = ("worst_row_error", "worst_row_scale", "max_abs_error")
    reason = unlike(out, ref) or coarser(dtype, ref.dtype)
    if reason is not None:
        return refused(reason, *names)
    # A row of complex numbers has two columns for each.
    halves = 2 if out.is_complex() else 1
    columns = halves * (out.shape[-1] if out.dim() else 1)
    left, right = numbers(out).reshape(-1), numbers(ref).reshape(-1)
    seen = survey(left, right)
    if isinstance(seen, str):
        return refused(seen, *names)
    floor = _floor(dtype, limit, seen.largest_ref)
    worst = _Worst()
    for rows in _row_blocks(left.numel() // columns, columns):
        _look(worst, left, right, rows, columns, limit, floor, whole)
    reason = None
    if worst.fails:
        kind = "steps" if whole else "of the row's magnitude"
        reason = (
            f"the worst row is off by {worst.error:.3g} {kind}, allowed is {limit:.3g}: "
            f"at {place(worst.index // halves, out.shape)} {_value(left, worst.index)} "
            f"where the reference has {_value(right, worst.index)}"
        )
    elif worst.scale_fails:
        row = place(worst.row, out.shape[:-1])
        reason = (
            f"row {row} is {worst.scale:.4g} times the reference's, allowed is 1 % and one step"
        )
    figures = dict(zip(names, (worst.relative, worst.scale, seen.worst), strict=True))
    return Comparison(reason is None, worst.relative, reason, figures)


def coarser(dtype: torch.dtype, ref: torch.dtype) -> str | None:
    """Why a reference cannot judge an output of ``dtype``: it holds fewer digits."""
    if dtype.is_floating_point and ref.is_floating_point and ref.itemsize < dtype.itemsize:
        return f"{dtype} output against a coarser {ref} reference; compute it in float64"
    return None


def _floor(dtype: torch.dtype, limit: float, largest: float) -> float:
    """The least magnitude a row is held to."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return 1.0
    fine = dtype in (torch.float64, torch.complex128)
    unit = 2.0**-53 if fine else _ACCUMULATION
    # Never more than the tensor's own magnitude, however small the limit.
    share = min(1.0, unit / limit) if limit else 0.0
    return max(share * largest, torch.finfo(dtype).tiny)


def _row_blocks(rows: int, columns: int) -> Iterator[range]:
    step = max(1, checks._SLICE // columns)
    for start in range(0, rows, step):
        yield range(start, min(start + step, rows))


def _look(
    worst: _Worst,
    left: torch.Tensor,
    right: torch.Tensor,
    rows: range,
    columns: int,
    limit: float,
    floor: float,
    whole: bool,
) -> None:
    """Update ``worst`` with a block of rows; a row longer than a slice is taken piece by piece."""
    pieces = []
    for first in range(0, columns, checks._SLICE):
        width = min(checks._SLICE, columns - first)
        start, stop = rows.start * columns + first, (rows.stop - 1) * columns + first + width
        a, b = left[start:stop], right[start:stop].to(left.device)
        a, b = a.reshape(len(rows), width), b.reshape(len(rows), width)
        error, where = _errors(a, b).max(dim=1)
        pieces.append((a, b, error, where + first, b.to(torch.float64).abs().amax(dim=1)))
    error = torch.stack([piece[2] for piece in pieces]).amax(dim=0)
    largest = torch.stack([piece[4] for piece in pieces]).amax(dim=0)
    magnitude = largest.clamp(min=floor)
    relative = error / magnitude
    measure = error if whole else relative
    row = int(measure.argmax())
    if float(measure[row]) > worst.error:
        piece = max(pieces, key=lambda one: float(one[2][row]))
        worst.error, worst.relative = float(measure[row]), float(relative[row])
        worst.index = (rows.start + row) * columns + int(piece[3][row])
        worst.fails = not worst.error <= limit
    _look_at_scale(worst, [(a, b) for a, b, *_ in pieces], rows, magnitude, largest, limit, whole)


def _look_at_scale(
    worst: _Worst,
    pieces: Sequence[tuple[torch.Tensor, torch.Tensor]],
    rows: range,
    magnitude: torch.Tensor,
    largest: torch.Tensor,
    limit: float,
    whole: bool,
) -> None:
    """Update the worst scale: by what factor a row of the reference comes nearest to the output's.

    Rows below the floor have none of their own.
    """
    product, square = torch.zeros_like(magnitude), torch.zeros_like(magnitude)
    for a, b in pieces:
        x, y = (t.to(torch.float64) / magnitude[:, None] for t in (a, b))
        product += (x * y).sum(dim=1)
        square += (y * y).sum(dim=1)
    judged = largest >= magnitude
    scale = torch.where(judged, product / square, 1.0)
    # One element as large as the row's largest, wrong by what is allowed, moves the scale by this.
    allowed = (limit / magnitude if whole else limit) / square
    off = (scale - 1.0).abs()
    over = torch.where(judged, off - (SCALE_TOLERANCE + allowed), -1.0)
    fails = bool((over > 0).any())
    row = int((over if fails else off).argmax())
    if fails > worst.scale_fails or (
        fails == worst.scale_fails and float(off[row]) > abs(worst.scale - 1.0)
    ):
        worst.scale, worst.row, worst.scale_fails = float(scale[row]), rows.start + row, fails


def _errors(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """|a - b| in float64; integers that differ do so by one at least, also beyond 2**53."""
    error = (a.to(torch.float64) - b.to(torch.float64)).abs()
    if a.dtype.is_floating_point or b.dtype.is_floating_point or a.dtype.itemsize < 8:
        return error
    # The same 64 bits as signed ones: not every device compares unsigned ones.
    equal = a.view(torch.int64) == b.to(a.dtype).view(torch.int64)
    return torch.where(equal, error, error.clamp(min=1.0))
