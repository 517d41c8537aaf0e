"""How many rows each expert gets: evenly, as a configuration lists them, or drawn with a seed."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def contiguous_rows(
    num_experts: int, max_m: int, *, alignment: int, routing: str, seed: int
) -> tuple[int, ...]:
    """Rows of each expert where all lie one after another in at most ``max_m`` rows.

    Every expert's are a multiple of ``alignment``, so that no tile of a kernel spans two experts.
    ``even``: ``max_m // num_experts``, rounded down, each; ``random``: as many rows together, dealt
    out by ``alignment`` to experts drawn with ``seed``: some get more, some perhaps none.
    Raises ValueError where not one ``alignment`` an expert fits, or for another ``routing``.
    """
    per_expert = max_m // num_experts // alignment * alignment
    if per_expert <= 0:
        raise ValueError(
            f"{max_m} rows are too few for {num_experts} experts: per_expert is {per_expert}, "
            f"at least {alignment} each are needed"
        )
    if routing == "even":
        return (per_expert,) * num_experts
    if routing == "random":
        deals = num_experts * per_expert // alignment
        # Drawn on the CPU, so that a seed means the same rows on every device.
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randint(num_experts, (deals,), generator=generator)
        return tuple((torch.bincount(drawn, minlength=num_experts) * alignment).tolist())
    raise ValueError(f"routing {routing!r} is neither even nor random")


def masked_rows(
    num_experts: int, max_m: int, masked_m: int | Sequence[int] | None
) -> tuple[int, ...]:
    """Rows of each expert that count, of the ``max_m`` that each has room for.

    ``masked_m``: a number for all, one for each, or None: ``max_m`` for all. Raises ValueError for
    a list of another length or a number that does not fit.
    """
    if masked_m is None:
        masked_m = max_m
    rows = (masked_m,) * num_experts if isinstance(masked_m, int) else tuple(masked_m)
    if len(rows) != num_experts:
        raise ValueError(f"masked_m has {len(rows)} numbers for {num_experts} experts")
    if not all(0 <= count <= max_m for count in rows) or not any(rows):
        raise ValueError(f"masked_m {list(rows)}: not all within 0 and max_m = {max_m}, or all 0")
    return rows
