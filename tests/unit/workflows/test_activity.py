"""Signs of life: only when all else is silent, one line for many targets."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from orchestrator.events import Event, Note
from orchestrator.workflows import activity as module
from orchestrator.workflows.activity import Activity


def _collect(monkeypatch: pytest.MonkeyPatch, silence: float) -> tuple[Activity, list[Event]]:
    monkeypatch.setattr(module, "SILENCE", silence)
    seen: list[Event] = []
    return Activity(seen.append), seen


def test_what_is_waited_for_is_said_once_for_all_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENCE", 0.0)
    texts: list[str] = []
    said = threading.Event()

    def sink(event: Event) -> None:
        if isinstance(event, Note):
            texts.append(event.message)
            said.set()

    activity = Activity(sink)
    with ExitStack() as stack:
        for target in ("a", "b", "c", "d", "e"):
            stack.enter_context(activity.doing("running x", target))
        stack.enter_context(activity.doing("connecting", "f"))
        stack.enter_context(activity)
        assert said.wait(10.0)
    assert texts[0].startswith("running x on a, b, c and 2 more, ")


def test_nothing_is_said_while_other_things_are(monkeypatch: pytest.MonkeyPatch) -> None:
    activity, seen = _collect(monkeypatch, 3600.0)
    with activity, activity.doing("running x", "a"):
        activity(Note("something"))
        threading.Event().wait(1.2)  # two looks of the watch
    assert [event.message for event in seen if isinstance(event, Note)] == ["something"]


def test_what_has_ended_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    activity, _ = _collect(monkeypatch, 3600.0)
    with pytest.raises(ValueError), activity.doing("running x", "a"):
        raise ValueError
    assert activity._sentences() == []
