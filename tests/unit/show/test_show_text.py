"""Foreign text on a terminal: harmless, measured in cells, never half a character."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.show.numbers import counted, duration, elapsed, percent, rate, size
from orchestrator.show.text import display_width, fold, pad, safe, truncate


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain µs 中 é", "plain µs 中 é"),
        ("a\tb", "a\tb"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("10%\r20%", "10%\\x0d20%"),
        ("two\nlines", "two\\x0alines"),
        ("\x00\x7f", "\\x00\\x7f"),
        ("\x9b31m\x85", "\\x9b31m\\x85"),
        ("a\u202eb\u2066c\u200fd", "a\\u202eb\\u2066c\\u200fd"),
        ("a\u2028b", "a\\u2028b"),
        ("\ud800x\udfff", "\ufffdx\ufffd"),
    ],
)
def test_controls_are_written_out(text: str, shown: str) -> None:
    assert safe(text) == shown
    assert safe(shown) == shown


@given(st.text(st.characters()))
def test_no_text_can_act(text: str) -> None:
    shown = safe(text)
    assert not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in shown if c != "\t")
    assert not any(unicodedata.bidirectional(c) in ("RLO", "LRO", "RLI", "PDF") for c in shown)


@pytest.mark.parametrize(
    ("text", "width"),
    [("abc", 3), ("中文", 4), ("e\u0301", 1), ("", 0), ("a\u200db", 2), ("😀", 2)],
)
def test_width(text: str, width: int) -> None:
    assert display_width(text) == width
    assert display_width(pad(text, 9)) == 9


@pytest.mark.parametrize(
    ("text", "width", "cut"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdef", 4, "abc…"),
        ("中文字", 4, "中…"),
        ("e\u0301e\u0301e\u0301", 2, "e\u0301…"),
    ],
)
def test_truncate(text: str, width: int, cut: str) -> None:
    assert truncate(text, width) == cut


@pytest.mark.parametrize(
    ("text", "width", "pieces"),
    [
        ("short", 9, ["short"]),
        ("", 3, [""]),
        ("torch_rms_norm", 8, ["torch_", "rms_norm"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("one two", 5, ["one", "two"]),
        ("one two", 3, ["one", "two"]),
        ("store /tmp/mxfleet-0 (1 GB free)", 16, ["store", "/tmp/mxfleet-0", "(1 GB free)"]),
        ("set env_script here", 12, ["set", "env_script", "here"]),
        ("a rows=65536", 6, ["a", "rows=", "65536"]),
        ("moe_abcdefghi", 10, ["moe_", "abcdefghi"]),
        ("  abcdef", 3, ["  a", "bcd", "ef"]),
    ],
)
def test_fold(text: str, width: int, pieces: list[str]) -> None:
    assert fold(text, width) == pieces


@given(st.text(st.characters(exclude_categories=["Cs", "Zs"])), st.integers(2, 9))
def test_folding_and_cutting_fit_and_lose_nothing(text: str, width: int) -> None:
    assert "".join(fold(text, width)) == text
    assert all(display_width(piece) <= width for piece in [*fold(text, width)])
    assert display_width(truncate(text, width)) <= width


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (3.9e-6, "3.90 µs"),
        (12.34e-6, "12.3 µs"),
        (123.4e-6, "123 µs"),
        (999.6e-6, "1.00 ms"),
        (9.996e-6, "10.0 µs"),
        (5e-10, "0.50 ns"),
        (0.0, "0.00 ns"),
        (1.5, "1.50 s"),
        (12345.0, "12345 s"),
        (None, "-"),
        (float("nan"), "-"),
        (float("inf"), "-"),
    ],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "< 0.01 s"),
        (4e-5, "< 0.01 s"),
        (0.03, "0.03 s"),
        (9.999, "10.0 s"),
        (12345.0, "12345 s"),
        (None, "-"),
    ],
)
def test_how_long_a_command_took(seconds: float | None, shown: str) -> None:
    assert elapsed(seconds) == shown


@pytest.mark.parametrize(
    ("count", "name", "shown"),
    [
        (1, "files sent", "1 file sent"),
        (2, "files sent", "2 files sent"),
        (1, "targets UNUSABLE", "1 target UNUSABLE"),
        (1, "PASSED", "1 PASSED"),
        (261_148, "bytes sent", "261 kB sent"),
        (1, "bytes to send", "1 B to send"),
    ],
)
def test_counts(count: int, name: str, shown: str) -> None:
    assert counted(count, name) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 B"), (999, "999 B"), (1234, "1.23 kB"), (5e9, "5.00 GB")]
)
def test_sizes(count: float, shown: str) -> None:
    assert size(count) == shown


@pytest.mark.parametrize(
    ("fraction", "shown"),
    [
        (0.0031, "0.31%"),
        (0.4759, "47.6%"),
        (1.005, "100.5%"),
        (0.09999, "10.0%"),
        (12.345, "1234%"),
        (1e300, ">9999%"),
        (-1e300, "< 0%"),
        (None, "-"),
    ],
)
def test_percents(fraction: float | None, shown: str) -> None:
    assert percent(fraction) == shown


@pytest.mark.parametrize(
    ("per_second", "shown"),
    [
        (6.4e14, "640 T"),
        (1.234e15, "1.23 P"),
        (9.87e11, "987 G"),
        (12.0, "12.0"),
        (1e300, ">9999 P"),
        (float("nan"), "-"),
        (None, "-"),
    ],
)
def test_rates(per_second: float | None, shown: str) -> None:
    assert rate(per_second) == shown
