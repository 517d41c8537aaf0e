"""What rows have to say: the same reason for many operators is told once."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.events import Row
from orchestrator.show.remarks import remarks


def gone(op: str, target: str, message: str, **more: Any) -> Row:
    return Row(op, target, "UNAVAILABLE", message=message, **more)


C = "no library here has torch.ops._C.{}; looked for vllm (not installed)"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([gone("a", "h1", C.format("a"))], [f"a on h1: {C.format('a')}"]),
        (
            [gone(op, host, C.format(op)) for op in "ab" for host in ("h1", "h2")],
            [f"UNAVAILABLE on h[1-2]: a, b: {C.format('*')}"],
        ),
        (
            [gone("a", "h1", C.format("a")), gone("b", "h2", C.format("b"))],
            [
                f"UNAVAILABLE on h1: a: {C.format('*')}",
                f"UNAVAILABLE on h2: b: {C.format('*')}",
            ],
        ),
        (
            [
                gone("a", "h1", C.format("a")),
                Row("c", "h1", "ERROR", message="it broke"),
                gone("b", "h1", "no module mcoplib.op here"),
            ],
            [
                f"a on h1: {C.format('a')}",
                "c on h1: it broke",
                "b on h1: no module mcoplib.op here",
            ],
        ),
        (
            # A flag or a known failure says more than that it is absent.
            [
                gone("a", "h1", C.format("a"), flags=("ODD",)),
                gone("b", "h1", C.format("b")),
            ],
            [f"a on h1: ODD; {C.format('a')}", f"b on h1: {C.format('b')}"],
        ),
        (
            # A lost target: all that was to run there.
            [Row(op, "loop2", "NOT_RUN", message="the link was lost") for op in "abcd"],
            ["NOT_RUN on loop2: 4 operators: the link was lost"],
        ),
        (
            [Row(op, h, "NOT_RUN", message="no route") for op in "ab" for h in ("h1", "h2")],
            ["NOT_RUN on h[1-2]: a, b: no route"],
        ),
        (
            [Row("a", "h1", "NOT_RUN", case=f"rows={n}", message="cut off") for n in (8, 16)],
            ["a on h1, rows=8 and rows=16: cut off"],
        ),
        (
            [gone(op, "h1", "no C here; folders searched: /a, /b c, /d; sorry") for op in "ab"],
            ["UNAVAILABLE on h1: a, b: no C here; 3 folders searched; sorry"],
        ),
        (
            [Row("a", "h1", "FAILED", parameters={"rows": 8, "dtype": "half"}, message="off")],
            ["a on h1, rows=8 dtype=half: off"],
        ),
        (
            [Row("a", "h1", "FAILED", case="rows=8", parameters={"rows": 8}, message="off")],
            ["a on h1, rows=8: off"],
        ),
    ],
)
def test_reasons_are_told_once(rows: list[Row], said: list[str]) -> None:
    assert remarks(rows, 400) == said


def test_a_reason_with_hostile_bytes_is_harmless() -> None:
    lines = remarks([gone(op, "h1", "\x1b[2J gone\n") for op in ("a\x07", "b")], 80)
    assert not any(ord(char) < 32 for line in lines for char in line)
