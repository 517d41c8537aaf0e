"""The worst elements of a case that failed, beneath the table."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from orchestrator.events import Row
from orchestrator.show import make_renderer
from orchestrator.show.table import result_table
from orchestrator.show.text import display_width


def element(index: list[int], got: Any, expected: Any, error: float | None) -> dict[str, Any]:
    relative = None if error is None else error / abs(expected)
    return {
        "index": index,
        "got": got,
        "expected": expected,
        "abs_error": error,
        "rel_error": relative,
    }


def output(name: str | None = "out", *elements: dict[str, Any], **more: Any) -> dict[str, Any]:
    values = {
        "output": name,
        "reason": "the worst row is off",
        "shape": [8, 16],
        "expected_shape": [8, 16],
        "dtype": "bfloat16",
        "expected_dtype": "bfloat16",
        "elements": list(elements),
    }
    return {**values, **more}


def failed(target: str = "h1", *outputs: dict[str, Any], **more: Any) -> Row:
    values = {"status": "FAILED", "message": "it is wrong", "worst": outputs, "accuracy": "No"}
    return Row("rms_norm", target, **{**values, **more})


WRONG = output("out", element([3, 7], -5.0, 2.5, 7.5), element([0, 0], "nan", 1.0, None))


def beneath(*rows: Row, width: int = 100) -> list[str]:
    lines = result_table(rows, width)
    start = next(i for i, line in enumerate(lines) if ": it is wrong" in line)
    return lines[start:]


def test_a_line_for_each_element() -> None:
    assert beneath(failed("h1", WRONG)) == [
        "rms_norm on h1: it is wrong",
        "  out (8 16) bfloat16:",
        "    index  got  expected  abs error  rel error",
        "    [3 7]  -5   2.5       7.5        3",
        "    [0 0]  nan  1         -          -",
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shape": [8, 15]}, "  out (8 15) bfloat16, expected (8 16) bfloat16"),
        ({"expected_dtype": "float32"}, "  out (8 16) bfloat16, expected (8 16) float32"),
        (
            {"shape": None, "expected_shape": None, "dtype": None, "reason": "no such index"},
            "  out: no such index",
        ),
    ],
)
def test_what_has_no_elements_says_what_is_wrong(changes: dict[str, Any], said: str) -> None:
    assert beneath(failed("h1", output("out", **changes)))[1:] == [said]


def test_an_output_without_a_name() -> None:
    assert beneath(failed("h1", output(None)))[1] == "  output (8 16) bfloat16"


def test_the_same_on_many_hosts_is_told_once() -> None:
    rows = [failed(f"h{number}", WRONG) for number in range(1, 4)]
    rows.append(failed("h5", WRONG, message="in other words"))
    other = failed("h4", output("out", element([1, 1], 0.0, 1.0, 1.0)))
    lines = beneath(*rows, other)
    assert sum("[3 7]" in line for line in lines) == 1
    assert lines[0] == "rms_norm on h[1-3]: it is wrong"
    assert lines.count("  the same elements as on h1") == 1
    assert sum("[1 1]" in line for line in lines) == 1


def test_no_more_outputs_than_people_read() -> None:
    lines = beneath(failed("h1", *(output(f"out{number}") for number in range(16))))
    assert lines[-1] == "  and 12 more outputs, which the records name"
    assert len(lines) == 1 + 4 + 1


@pytest.mark.parametrize("width", [80, 120])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    name, number = "cache" * 40, "9" * 400
    wide = output(name, element([10**9] * 4, number, -1.234567891234e-300, 1e300))
    lines = beneath(failed("h1", wide), width=width)
    assert all(display_width(line) <= width for line in lines)


def test_long_integers_are_told_apart() -> None:
    lines = beneath(failed("h1", output("out", element([3, 7], 2**62 + 1, 2**62, 1))), width=80)
    assert "4611686018427387905  4611686018427387904" in lines[-1]


def test_what_a_target_says_cannot_act_on_the_terminal() -> None:
    evil = output("out\x1b[2J", element([0], "\x1b]0;x\x07", 1.0, None), reason="\x1b[31m")
    assert not any("\x1b" in line or "\x07" in line for line in beneath(failed("h1", evil)))


def test_what_passed_in_the_end_is_not_accused() -> None:
    lines = result_table([failed("h1", WRONG, status="PASSED")], 100)
    assert not any("[3 7]" in line for line in lines)


def test_scripts_get_all_of_it() -> None:
    stream = io.StringIO()
    make_renderer("json", stream, io.StringIO())(failed("h1", WRONG))
    assert json.loads(stream.getvalue())["worst"] == [WRONG]
