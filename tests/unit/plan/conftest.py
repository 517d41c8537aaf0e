"""Real agents: what a plan prints is compared with what an agent does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

from agent_kit import Agents, Jobs

from orchestrator.transport.session import AgentSession


@pytest.fixture
def session() -> Iterator[AgentSession]:
    kit = Agents()
    yield kit.start()
    kit.close()


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path / "target")
