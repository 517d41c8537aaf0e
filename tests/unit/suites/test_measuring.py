"""What a run asks of its measurements: the front door's words, and what old scripts cannot do."""

from __future__ import annotations

import json

import pytest

from orchestrator.suites.measuring import Measuring


@pytest.mark.parametrize(
    ("measuring", "words"),
    [
        (Measuring(), []),
        (Measuring(samples=5), ["--set", "samples=5"]),
        (Measuring(sampling="established"), ["--sampling", "established"]),
        (Measuring(sampling="adaptive", repeats=3), ["--sampling", "adaptive", "--repeats", "3"]),
        (Measuring(cases=("a=1", "b=x y")), ["--case", "a=1", "--case", "b=x y"]),
        (Measuring(strict=True), ["--strict"]),
        (Measuring(cases=("a=1",), verify_only=True), ["--case", "a=1", "--verify"]),
        (Measuring(profiler=("ncu",)), ["--repeats", "1"]),
        (Measuring(repeats=3, profiler=("ncu",)), ["--repeats", "3"]),
    ],
)
def test_the_words_for_the_front_door(measuring: Measuring, words: list[str]) -> None:
    assert measuring.words() == words


@pytest.mark.parametrize(
    ("measuring", "beyond"),
    [
        (Measuring(), []),
        (Measuring(samples=5, strict=True), []),
        (Measuring(sampling="established", repeats=1), []),
        (Measuring(sampling="adaptive"), ["--sampling adaptive"]),
        (Measuring(repeats=5), ["--repeats 5"]),
        (Measuring(cases=("a=1", "b=2"), repeats=1), ["--case a=1", "--case b=2"]),
        (Measuring(cases=("a=1",), strict=True, verify_only=True), []),
    ],
)
def test_what_established_scripts_cannot_honour(measuring: Measuring, beyond: list[str]) -> None:
    assert measuring.beyond_established() == beyond


def test_it_is_kept_as_it_is() -> None:
    whole = Measuring(1, "adaptive", 2, ("a=1",), True, True, ("ncu", "-f"))
    kept = json.loads(json.dumps(whole.as_dict()))
    assert Measuring.from_dict(kept) == whole
    assert Measuring.from_dict({}) == Measuring()
    assert kept == {
        "samples": 1,
        "sampling": "adaptive",
        "repeats": 2,
        "cases": ["a=1"],
        "strict": True,
        "verify_only": True,
        "profiler": ["ncu", "-f"],
    }
