"""Inventories are written as files: what is tested is what a user's file does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from orchestrator.inventory.load import load
from orchestrator.inventory.model import Inventory

Loader = Callable[[str], Inventory]


@pytest.fixture
def inventory_file(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "inventory.yaml"
        path.write_text(dedent(text), encoding="utf-8")
        return path

    return write


@pytest.fixture
def loaded(inventory_file: Callable[[str], Path]) -> Loader:
    return lambda text: load(inventory_file(text))
