"""Clean trees: nothing is found in the shipped runners, in established ones, in the skeleton."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeded.established import RUNNERS
from seeded.trees import SHIPPED, plant

from orchestrator.author.check import check_tree


def test_nothing_is_found_in_the_shipped_tree() -> None:
    assert [str(finding) for finding in check_tree(SHIPPED)] == []


@pytest.mark.parametrize("operator", ["my_op", *RUNNERS])
def test_nothing_is_found_in_established_runners(tmp_path: Path, operator: str) -> None:
    assert [str(finding) for finding in check_tree(plant(tmp_path, operator))] == []
