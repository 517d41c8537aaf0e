"""What sources and libraries say of operators: read when a runner first calls one of that name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.author.check.tree import Known


def known_operators(sources: Sequence[Path], libraries: Sequence[Path]) -> Known | None:
    """How to look an operator's name up; None when there is nothing to look in."""
    if not sources and not libraries:
        return None
    raise NotImplementedError
