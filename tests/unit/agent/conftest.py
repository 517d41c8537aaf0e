"""Fixtures that give real agents on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
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
    return Jobs(tmp_path)
