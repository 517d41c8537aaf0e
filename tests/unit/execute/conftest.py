"""Real agents for jobs that are run the way a run does it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

from agent_kit import Agents, Jobs

from orchestrator.transport.session import AgentSession


@pytest.fixture
def agents() -> Iterator[Agents]:
    kit = Agents()
    yield kit
    kit.close()


@pytest.fixture
def session(agents: Agents) -> AgentSession:
    return agents.start()


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path / "target")
