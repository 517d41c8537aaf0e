"""The suite's modules are imported from the repository's tree, as its front door finds them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

BENCHMARK = Path(__file__).resolve().parents[3] / "benchmark"
for folder in (BENCHMARK, BENCHMARK / "halops"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@pytest.fixture(autouse=True)
def one_thread() -> object:
    """Small cases are faster so, and leave the machine to others."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
