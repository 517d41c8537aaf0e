"""``--output json`` ends with a summary object also when a command cannot begin."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["hosts", "--output", "json"], 2),  # no inventory
        (["run", "--output=json"], 2),  # no operator
        (["run", "--op", "x", "--nonsense", "--output", "json"], 2),
    ],
)
def test_a_summary_ends_it(words: list[str], code: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["event"] == "summary"
    assert summary["exit_code"] == code
    assert summary["message"] in done.stderr
    assert len(done.stderr.splitlines()) == 1
