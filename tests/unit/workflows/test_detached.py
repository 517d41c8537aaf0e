"""What keeps a run in the background from beginning is told where it was started."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.events import Event
from orchestrator.workflows import detached


def test_a_folder_that_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write into the run's folder"):
        detached.start(tmp_path / "file" / "runs", lambda event: None)


def test_one_that_ends_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detached, "_PROGRAM", "raise SystemExit(1)")
    heard: list[Event] = []
    with pytest.raises(UsageError, match="exit code 1, and left no word"):
        detached.start(tmp_path / "runs", heard.append)
    assert not heard and not list((tmp_path / "runs").iterdir())
