"""Fixtures of the harness' tests; ``harness`` itself is imported from the repository's tree."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness_tree import BENCHMARK, Tree, make_tree

if str(BENCHMARK) not in sys.path:
    sys.path.insert(0, str(BENCHMARK))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path / "benchmark")


@pytest.fixture(scope="module")
def shared_tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """One tree for the read-only tests of a module."""
    return make_tree(tmp_path_factory.mktemp("tree") / "benchmark")


@pytest.fixture
def row() -> Callable[..., Any]:
    """Make a row as a measured case gives it; keywords change cells by ``Col`` name or extras."""
    from harness.csvtable import Col, Row

    def make(op: str = "my_op", case: str = "aaaa", gpu: str = "", **cells: str) -> Row:
        values = [op, "0", "MetaX C500", "Yes", "0.00e+00", op, "float16", "(8 8)"]
        values += ["100", "2e-05", "0.1", gpu, "0.01", "", "", "", "100", ""]
        for name in set(cells) & set(Col.__members__):
            values[Col[name]] = cells.pop(name)
        extra = {"GPU Median (sec)": "", "Repeats": "1", "Repeat Spread": "", "case_id": case}
        return Row(values, extra | cells)

    return make
