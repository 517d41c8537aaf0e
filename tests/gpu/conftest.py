"""Skip, with the reason, where there is no GPU or no nvbench; else a tree that may use them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "harness"))

from harness_tree import Tree, make_tree


def _missing() -> str | None:
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    if not torch.cuda.is_available():
        return "torch sees no GPU here"
    try:
        found = importlib.util.find_spec("cuda.bench")
    except ModuleNotFoundError:
        found = None
    return None if found else "no nvbench here (cuda-bench or mxbench)"


@pytest.fixture
def gpu_tree(tmp_path: Path) -> Tree:
    """A benchmark tree whose runs see the GPU."""
    missing = _missing()
    if missing is not None:
        pytest.skip(missing)
    tree = make_tree(tmp_path / "benchmark")
    tree.env = {}
    return tree
