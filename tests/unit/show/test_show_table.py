"""The result table: it fits, it cuts nothing that tells rows apart, it keeps numbers whole."""

from __future__ import annotations

import pytest

from orchestrator.events import Row
from orchestrator.show.table import result_table
from orchestrator.show.text import display_width

WIDE = 200


def row(
    op: str = "torch_rms_norm",
    target: str = "local",
    status: str = "PASSED",
    shape: str = "(4096 4096)",
    timer: str | None = "cold_gpu",
    **more: str | float | tuple[str, ...] | None,
) -> Row:
    values = {"accuracy": "Yes", "dtype": "torch.bfloat16", "seconds": 7.41e-5, "noise": 0.0089}
    values |= {"bandwidth_utilisation": 0.758}
    return Row(op, target, status, shape=shape, timer=timer, **{**values, **more})  # type: ignore[arg-type]


def test_a_wide_one_says_everything_in_a_line() -> None:
    assert result_table([row()], WIDE) == [
        "operator        host   status  Acc_Pass  dtype     shape        GPU time  noise  BWUtil",
        "--------------  -----  ------  --------  --------  -----------  --------  -----  ------",
        "torch_rms_norm  local  PASSED  Yes       bfloat16  (4096 4096)  74.1 µs   0.89%  75.8%",
    ]


@pytest.mark.parametrize(
    ("timers", "title", "cells"),
    [
        (["cold_gpu"], "GPU time", ["74.1 µs"]),
        (["cpu", "cpu"], "CPU time", ["74.1 µs", "74.1 µs"]),
        (["cpu", "cold_gpu"], " time ", ["74.1 µs cpu", "74.1 µs "]),
        ([None], "GPU time", ["74.1 µs"]),
    ],
)
def test_the_timer_is_named(timers: list[str | None], title: str, cells: list[str]) -> None:
    lines = result_table([row(f"op{n}", timer=timer) for n, timer in enumerate(timers)], WIDE)
    assert title in lines[0]
    assert all(cell in line for cell, line in zip(cells, lines[2:], strict=True))


HOSTILE = [
    row("dynamic_per_token_scaled_fp8_quant", "c500-01:vllm-dsv4", "UNAVAILABLE", timer="cpu"),
    row("dynamic_per_token_scaled_fp8_quant", "c500-02:vllm-dsv4", "UNVERIFIED"),
    row("x" * 300, "y" * 300, shape="(" + "9 " * 500_000 + ")"),
    row("中文算子" * 9, "主机" * 9, shape="e\u0301" * 90),
    row("\x1b[2J\n\r", "\u202ehost", shape="\x00\ud800\t"),
    row(status="ERROR", message="boom " * 100, flags=("LAUNCH_BOUND", "THROTTLED")),
]


@pytest.mark.parametrize("width", [80, 81, 100, 132])
def test_it_fits_whatever_is_in_it(width: int) -> None:
    lines = result_table(HOSTILE, width)
    assert max(display_width(line) for line in lines) <= width
    assert len(lines) < 200
    text = "\n".join(lines)
    assert not set(text) & set("\x1b\r\x00\u202e\ud800\t")
    for status in ("UNAVAILABLE", "UNVERIFIED", "PASSED", "ERROR"):
        assert f" {status} " in text
    assert "LAUNCH_BOUND, THROTTLED; boom" in text


def test_a_long_shape_is_cut_where_rows_stay_apart() -> None:
    long = "(4096 22016) -> (4096 11008)"
    lines = result_table([row("silu", shape=long), row("gelu", shape=long)], 80)
    assert len(lines) == 4
    assert all("…" in line for line in lines[2:])


def test_shapes_that_a_cut_would_make_equal_stay_whole() -> None:
    shapes = [f"(4096 22016) -> (4096 {last})" for last in ("11008", "22016")]
    text = "\n".join(result_table([row(shape=shape) for shape in shapes], 80))
    assert "…" not in text
    assert all(shape.split()[-1][:3] in text for shape in shapes)


def test_unknown_is_not_zero() -> None:
    bare = Row("op", "h1", "ERROR", message="no record")
    lines = result_table([bare], 80)
    assert lines[2].split() == ["op", "h1", "ERROR", "-", "-", "-", "-", "-", "-"]
    assert lines[3] == "op on h1: no record"


def test_no_rows_no_table() -> None:
    assert result_table([], 80) == []
