"""What the tests of generated benchmarks share: all of them generated once a session."""

from __future__ import annotations

import shutil

import pytest
from authored import AUTHORED
from authored_work import Generated, Work

# Input of the tests, not tests. (A conftest.py in there would put the trees on the search path.)
collect_ignore_glob = ["trees/*", "halops/checkouts/*", "trials/*", "seeded/*", "stand_ins/*"]


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """A working folder without any of the trees' operators; not for writing."""
    return Work(tmp_path_factory.mktemp("bare") / "work").lay_out()


@pytest.fixture(scope="session")
def generated(bare: Work, tmp_path_factory: pytest.TempPathFactory) -> Generated:
    """A working folder with a benchmark of each."""
    folder = tmp_path_factory.mktemp("generated") / "work"
    shutil.copytree(bare.folder, folder, symlinks=True)
    return Generated(Work(folder), AUTHORED)
