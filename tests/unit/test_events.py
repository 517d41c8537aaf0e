"""Events come back from their JSON as they were."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from typing import Any

import pytest

from orchestrator.events import Event, MatrixLine, Note, Row, Summary, event_of

KINDS = Event.__subclasses__()


def filled(kind: type[Event]) -> Event:
    """One of a kind with a value in every field."""
    values: dict[str, Any] = {}
    for number, item in enumerate(fields(kind)):
        words = str(item.type)
        if words.startswith("tuple[dict"):
            values[item.name] = ({"a": [1, 2]},)
        elif words.startswith("tuple"):
            values[item.name] = ("x", "y")
        elif words.startswith("dict"):
            values[item.name] = {"k": number}
        elif "float" in words or "int" in words:
            values[item.name] = number + 0.0
        elif item.default is MISSING or "str" in words:
            values[item.name] = f"text {number}"
    return kind(**values)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_there_and_back(kind: type[Event]) -> None:
    event = filled(kind)
    assert event_of(json.loads(json.dumps(event.as_dict()))) == event


def test_kinds_have_names_of_their_own() -> None:
    assert len({kind.kind for kind in KINDS}) == len(KINDS)
    assert {Note, Row, Summary, MatrixLine} <= set(KINDS)


def test_what_another_version_knows_is_dropped() -> None:
    told = {**Note("x", at=1.0).as_dict(), "new": 1}
    assert event_of(told) == Note("x", at=1.0)


@pytest.mark.parametrize("told", [{}, {"event": "nope"}, {"event": "note"}, {"event": None}])
def test_what_is_no_event(told: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no event of ours"):
        event_of(told)
