"""Markers in output: found however they are spelled and cut, and bounded in what is kept."""

from __future__ import annotations

import pytest

from orchestrator.suites.markers import MarkerScanner, scan, together

FAIL = "[VERIFY] op -> FAIL (1-CosSim: 3.00e-02)"


@pytest.mark.parametrize(
    ("line", "failure", "failed", "distance"),
    [
        (FAIL, FAIL, 1, "3.00e-02"),
        (f"2026-11-30 INFO {FAIL}", FAIL, 1, "3.00e-02"),
        ("[VERIFY] a -> b -> FAIL", "[VERIFY] a -> b -> FAIL", 1, None),
        ("[VERIFY] op ->FAIL (1-CosSim: nan)", "[VERIFY] op ->FAIL (1-CosSim: nan)", 1, "nan"),
        ("\x1b[31m[VERIFY]\x1b[0m op -> \x1b[1;31mFAIL\x1b[0m", "[VERIFY] op -> FAIL", 1, None),
        ("[VERIFY] a -> PASS [VERIFY] b -> FAIL", "[VERIFY] a -> PASS [VERIFY] b -> FAIL", 1, None),
        ("[VERIFY] op -> PASS (1-CosSim: 0)", None, 0, None),
        ("[FATAL] op: no", "[FATAL] op: no", 0, None),
        ("op -> FAIL", None, 0, None),
    ],
)
def test_a_line(line: str, failure: str | None, failed: int, distance: str | None) -> None:
    found = scan(["before", line, "after"])
    assert (found.failure, found.verifications_failed, found.failed_distance) == (
        failure,
        failed,
        distance,
    )


@pytest.mark.parametrize("at", range(0, 200, 7))
@pytest.mark.parametrize("text", [FAIL, "[FATAL] op: no", "[VERIFY] " + "y" * 150 + " -> FAIL"])
def test_a_marker_across_the_pieces_of_a_long_line(at: int, text: str) -> None:
    line = "x" * at + text + "z" * 500
    scanner = MarkerScanner(100)
    for start in range(0, len(line), 100):
        scanner.feed(line[start : start + 100])
    assert scanner.found.failure is not None
    assert scanner.found.verifications_failed == int("VERIFY" in text)


def test_streams_together() -> None:
    trace = ["Traceback (most recent call last):", "  File", "RuntimeError: late"]
    found = together([scan([FAIL, *trace]), scan([FAIL, "[FATAL] op: no"])])
    assert found.verifications_failed == 2
    assert found.failure == "[FATAL] op: no"
    assert (found.exception, found.traceback) == (("RuntimeError", "late"), trace)


def test_what_is_kept_is_bounded() -> None:
    trace = "Traceback (most recent call last):"
    lines = [FAIL + "y" * 10_000] * 5000 + [trace] + ["  y" * 10_000] * 5000 + ["OSError: no"]
    found = scan(lines)
    assert found.verifications_failed == 5000
    assert len(found.failure or "") <= 2000
    assert len(found.traceback) <= 201 and max(map(len, found.traceback)) <= 2000
    assert found.exception == ("OSError", "no")
