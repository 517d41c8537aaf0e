"""A reader that has seen enough, and an output that has no room: ``mxfleet runs | head -1``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MXFLEET = Path(sys.executable).with_name("mxfleet")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a run that printed something."""
    (tmp_path / "inventory.yaml").write_text("hosts:\n  here: {transport: local}\n")
    logs = tmp_path / "runs" / "20260101-000000-aaaaaa" / "logs" / "here"
    logs.mkdir(parents=True)
    (logs / "gelu.log").write_text("a line\n" * 20000)
    (logs.parents[1] / "plan.json").write_text(
        '{"run": "20260101-000000-aaaaaa", "jobs": [{"target": "here", "op": "gelu"}]}'
    )
    return tmp_path


def into_nobody(words: str, folder: Path) -> tuple[int, str]:
    """Exit code and standard error of a command whose output is a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [MXFLEET, *words.split()],
            cwd=folder,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writing)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "words", ["runs", "runs --output json", "logs", "logs --output json", "hosts", "nightly status"]
)
def test_who_only_reads_may_stop_reading(folder: Path, words: str) -> None:
    assert into_nobody(words, folder) == (0, "")


def test_what_changes_something_says_that_it_was_cut_off(folder: Path) -> None:
    code, said = into_nobody("init other", folder)
    assert code == 130 and "nobody reads the output any more" in said


def test_a_full_disk_is_no_reader_that_went_away(folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [MXFLEET, "logs"], cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 130
    assert "the output cannot be written: No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1
