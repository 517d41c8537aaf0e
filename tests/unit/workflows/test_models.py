"""How long operators took before, as the diaries of runs tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.workflows.models import recorded_seconds

EARLY, LATE = "20260101-000000-aaaaaa", "20260102-000000-bbbbbb"


def ended(op: str, seconds: Any, status: str = "PASSED") -> str:
    event = {"event": "job_ended", "op": op, "seconds": seconds, "status": status}
    return json.dumps(event)


@pytest.mark.parametrize(
    ("diaries", "expected"),
    [
        ({}, {}),
        ({EARLY: [ended("a", 1.5)]}, {"a": 1.5}),
        ({EARLY: [ended("a", 1), ended("b", 2)], LATE: [ended("a", 3)]}, {"a": 3.0, "b": 2.0}),
        # what was not run took no time
        ({EARLY: [ended("a", 1)], LATE: [ended("a", 9, "NOT_RUN")]}, {"a": 1.0}),
        ({EARLY: [ended("a", 1, "TIMEOUT")]}, {"a": 1.0}),
        # damaged ones, and a last line that was cut off
        (
            {EARLY: ["", "[]", "7", ended("a", None), "{}", ended("b", 2), '{"event": "job_en']},
            {"b": 2.0},
        ),
        ({EARLY: [json.dumps({"event": "note", "message": "x"}), ended("a", 4)]}, {"a": 4.0}),
    ],
)
def test_recorded_seconds(
    tmp_path: Path, diaries: dict[str, list[str]], expected: dict[str, float]
) -> None:
    for run, lines in diaries.items():
        (tmp_path / run).mkdir()
        (tmp_path / run / "events.jsonl").write_text("\n".join(lines))
    (tmp_path / "20260103-000000-cccccc").mkdir()  # one that was cut off at once
    (tmp_path / ".console-x.jsonl").write_text(ended("hidden", 1))
    assert recorded_seconds(tmp_path) == expected


def test_without_runs_nothing_is_known(tmp_path: Path) -> None:
    assert recorded_seconds(tmp_path / "none") == {}
