"""The one number that a verification went by, and its limit."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.records import Verification
from orchestrator.results.accuracy import distance_of

COSINE = {"check": "cosine", "threshold": 0.999999}
CLOSE = {"check": "close", "threshold": 0.004}


@pytest.mark.parametrize(
    ("metrics", "thresholds", "found"),
    [
        ({"one_minus_cosine": 1e-9, "norm_ratio": 1.0}, [COSINE], ("one_minus_cosine", 1e-9, 1e-6)),
        ({"one_minus_cosine": 1e-9}, [], ("one_minus_cosine", 1e-9, None)),
        (
            {"k.one_minus_cosine": 1e-9, "v.one_minus_cosine": -2e-8},
            [COSINE, CLOSE],
            ("one_minus_cosine", -2e-8, 1e-6),
        ),
        (
            # Which of the outputs was held to which of them is not known.
            {"k.one_minus_cosine": 1e-9, "v.one_minus_cosine": 2e-8},
            [COSINE, {**COSINE, "threshold": 0.99}],
            ("one_minus_cosine", 2e-8, None),
        ),
        ({"one_minus_cosine": None}, [COSINE], ("one_minus_cosine", None, 1e-6)),
        (
            {"k.worst_row_error": 0.01, "v.worst_row_error": None},
            [CLOSE],
            ("worst_row_error", None, 0.004),
        ),
        ({"worst_row_error": 0.5}, [{**CLOSE, "threshold": 2}], ("worst_row_error", 0.5, None)),
        ({"mismatches": 3.0}, [], ("mismatches", 3.0, 0.0)),
        ({"difference": 0.5}, None, ("difference", 0.5, None)),
        ({}, [COSINE], None),
    ],
)
def test_what_a_verification_went_by(metrics: Any, thresholds: Any, found: Any) -> None:
    verification = Verification(passed=True, metrics=metrics, thresholds=thresholds)
    assert distance_of(verification) == found


def test_without_a_verification_there_is_none() -> None:
    assert distance_of(None) is None
