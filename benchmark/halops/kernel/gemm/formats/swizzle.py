"""The order in which Blackwell's tensor cores read block scales: tiles of 128 rows by 4 scales.

Source: cuBLAS documentation, "1D block scaling factors layout": within a tile the scale of row r
and column c lies at (r % 32) * 16 + (r // 32) * 4 + c, tiles follow each other along K first, and
both sides are padded (rows to 128, scales to 4), which is memory that is read, too.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

ROWS, COLUMNS = 128, 4


def swizzle(scales: torch.Tensor) -> torch.Tensor:
    """One-byte ``scales`` [rows, columns] in the order of tiles, padded with zero bytes; flat."""
    rows, columns = scales.shape
    raw = F.pad(scales.view(torch.uint8), (0, -columns % COLUMNS, 0, -rows % ROWS))
    # [tile, r // 32, r % 32, tile along K, c]
    tiles = raw.reshape(raw.shape[0] // ROWS, 4, 32, raw.shape[1] // COLUMNS, COLUMNS)
    return tiles.permute(0, 3, 2, 1, 4).reshape(-1).view(scales.dtype)
