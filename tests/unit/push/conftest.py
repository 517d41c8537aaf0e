"""Real agents and working folders for push tests."""

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


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A working folder with a small benchmark."""
    folder = tmp_path / "work"
    benchmark = folder / "benchmark"
    for name in ("config", "runners", "statistics"):
        (benchmark / name).mkdir(parents=True)
    (benchmark / "mcoplib_mxbenchmark_ops.py").write_text(
        'import os\nSUPPORTED_OPERATORS = [\n    "a_op",\n    "b_op",\n]\n'
    )
    for op in ("a_op", "b_op"):
        (benchmark / "config" / f"{op}.json").write_text("{}")
        (benchmark / "runners" / f"mcoplib_mxbenchmark_{op}_runners.py").write_text(f"# {op}\n")
    (benchmark / "statistics" / "results.csv").write_text("kept here\n")
    (folder / "env").mkdir()
    (folder / "env" / "env.sh").write_text("true\n")
    (folder / "env" / "README").write_text("not pushed\n")
    return folder
