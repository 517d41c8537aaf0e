"""The result table: it fits, it cuts nothing, it tells rows apart, it keeps numbers whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.events import Row
from orchestrator.show.legend import FLAGS
from orchestrator.show.table import result_table
from orchestrator.show.text import display_width

WIDE = 200


def joined(lines: list[str]) -> list[str]:
    """Lines with those put back that go on in the next one."""
    return "\n".join(lines).replace("\n  ", " ").splitlines()


def row(
    op: str = "torch_rms_norm",
    target: str = "local",
    status: str = "PASSED",
    shape: str | None = "(4096 4096)",
    timer: str | None = "cold_gpu",
    **more: Any,
) -> Row:
    values = {"accuracy": "Yes", "dtype": "torch.bfloat16", "seconds": 7.41e-5, "noise": 0.0089}
    values |= {"bandwidth_utilisation": 0.758}
    return Row(op, target, status, shape=shape, timer=timer, **{**values, **more})


def test_a_wide_one_says_everything_in_a_line() -> None:
    assert result_table([row()], WIDE)[:3] == [
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
        ([None], " time ", ["74.1 µs"]),
    ],
)
def test_the_timer_is_named(timers: list[str | None], title: str, cells: list[str]) -> None:
    lines = result_table([row(f"op{n}", timer=timer) for n, timer in enumerate(timers)], WIDE)
    assert title in lines[0]
    shown = lines[2 : 2 + len(cells)]
    assert all(cell in line for cell, line in zip(cells, shown, strict=True))


_NOISE = "noise: relative standard deviation; the CSV's time columns are means"


@pytest.mark.parametrize(
    ("rows", "legend"),
    [
        ([row()], f"GPU time: median of cold runs (established scripts: mean); {_NOISE}"),
        (
            [row(), row(timer="cpu"), row(timer=None, seconds=None)],
            "GPU time: median of cold runs, CPU time: median of warm runs "
            f"(established scripts: mean); {_NOISE}",
        ),
        ([row(timer=None, seconds=None), row(seconds=float("nan"))], None),
    ],
)
def test_the_statistic_is_named_where_a_time_is_shown(rows: list[Row], legend: str | None) -> None:
    lines = result_table(rows, WIDE)
    assert joined(lines[2 + len(rows) :]) == ([] if legend is None else [legend])
    assert ("GPU time" in lines[0]) is (len(rows) == 1)


HOSTILE = [
    row("dynamic_per_token_scaled_fp8_quant", "c500-01:vllm-dsv4", "UNAVAILABLE", timer="cpu"),
    row("dynamic_per_token_scaled_fp8_quant", "c500-02:vllm-dsv4", "UNVERIFIED"),
    row("x" * 300, "y" * 300, shape="(" + "9 " * 500_000 + ")"),
    row("中文算子" * 9, "主机" * 9, shape="e\u0301" * 90),
    row("\x1b[2J\n\r", "\u202ehost", shape="\x00\ud800\t"),
    row(status="ERROR", message="boom " * 100, flags=("LAUNCH_BOUND", "NEWER_ONE")),
]
# Every column at its widest.
CROWDED = [
    *HOSTILE,
    row(seconds=1e300, noise=1e300, bandwidth_utilisation=-1e300, flops_per_second=1e300),
    row(seconds=12345.0, timer="cpu", repeats=3, repeat_spread=12.5),
    row(repeats=5, repeat_spread=0.004, flags=tuple(FLAGS)),
    row(
        repeats=1,
        flops_per_second=6.4e14,
        roofline={"bound": "compute", "flops_fraction": 123.0},
        bandwidth_utilisation=12.0,
        library={"name": "n" * 900, "version": "\x1b[2J", "sha256": 7},
        thresholds=({"threshold": 0.9, "reason": "r " * 900, "outside_rules": True},),
        device_mismatch="measured\non " + "x" * 900,
    ),
]


@pytest.mark.parametrize("width", [80, 81, 100, 132])
@pytest.mark.parametrize("rows", [HOSTILE, CROWDED])
def test_it_fits_whatever_is_in_it(rows: list[Row], width: int) -> None:
    lines = result_table(rows, width)
    assert max(display_width(line) for line in lines) <= width
    assert len(lines) < 300
    text = "\n".join(lines)
    assert not set(text) & set("\x1b\r\x00\u202e\ud800\t")
    for status in ("UNAVAILABLE", "UNVERIFIED", "PASSED", "ERROR"):
        assert f" {status} " in text
    assert "NEWER_ONE; boom" in text
    assert "\nL LAUNCH_BOUND: " in text


SHAPES = [
    "M=512 N=512 K=4096",
    "(4096 22016) -> (4096 11008)",
    " ".join(f"({number} {number})" for number in range(1000, 1020)),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_never_cut(shape: str) -> None:
    lines = result_table([row("dynamic_per_token_scaled_fp8_quant", shape=shape)], 80)
    start = lines[0].index("shape")
    width = len(lines[1][start:].split()[0])
    cells = [line[start : start + width].strip() for line in lines[2:]]
    legend = next(at for at, line in enumerate(lines) if line.startswith("GPU time:"))
    assert " ".join(cell for cell in cells[: legend - 2] if cell) == shape


@pytest.mark.parametrize(
    ("shape", "cases", "shown"),
    [
        (None, ["rows=8 dtype=float16", "rows=16 dtype=float16"], None),
        ("(8 8)", [None, None], ["(8 8)", "(8 8)"]),
        ("(8 8)", ["eps=1", "eps=2"], ["(8 8) eps=1", "(8 8) eps=2"]),
        (None, [None, None], ["-", "-"]),
    ],
)
def test_cases_of_a_sweep_can_be_told_apart(
    shape: str | None, cases: list[str | None], shown: list[str] | None
) -> None:
    rows = [row(shape=shape, case=case, message="boom") for case in cases]
    lines = result_table(rows, WIDE)
    for line, cell in zip(lines[2:4], shown or cases, strict=True):
        assert f"  {cell}  " in line
    names = f", {' and '.join(case for case in cases if case)}" if cases[0] else ""
    assert lines[-1] == f"torch_rms_norm on local{names}: boom"


def test_the_same_remark_on_many_hosts_and_cases_is_made_once() -> None:
    rows = [
        row("torch_rms_norm", f"c500-{host:02}", case=f"rows={case}", message=message)
        for host in range(1, 5)
        for case in range(6)
        for message in ["odd" if (host, case) == (2, 3) else "no library"]
    ]
    remarks = [line for line in result_table(rows, WIDE) if line.startswith("torch_rms_norm on ")]
    assert remarks == [
        "torch_rms_norm on c500-[01-04], 5 cases: no library",
        "torch_rms_norm on c500-[01,03-04], rows=3: no library",
        "torch_rms_norm on c500-02, rows=3: odd",
    ]


def test_a_shape_that_tells_its_case_stands_alone() -> None:
    rows = [row(shape="(8 8)", case="rows=8"), row(shape="(9 8)", case="rows=9")]
    assert "rows=" not in "\n".join(result_table(rows, WIDE))


def test_unknown_is_not_zero() -> None:
    bare = Row("op", "h1", "ERROR", message="no record")
    lines = result_table([bare, row("timed", timer=None)], 80)
    assert lines[2].split() == ["op", "h1", "ERROR", "-", "-", "-", "-", "-", "-"]
    assert lines[0].split()[-3:] == ["time", "noise", "BWUtil"]
    assert "GPU" not in lines[0]
    assert lines[-1] == "op on h1: no record"


def test_what_nothing_is_known_of_has_no_column() -> None:
    lines = result_table([Row("op", "h1", "ERROR", message="no record")], 80)
    assert lines == [
        "operator  host  status  Acc_Pass  dtype  shape",
        "--------  ----  ------  --------  -----  -----",
        "op        h1    ERROR   -         -      -",
        "op on h1: no record",
    ]


def verified(op: str, metric: str | None = "one_minus_cosine", **more: Any) -> Row:
    return Row(op, "h1", more.pop("status", "PASSED"), accuracy="Yes", metric=metric, **more)


@pytest.mark.parametrize(
    ("rows", "title", "cells"),
    [
        ([verified("a", distance=5.4e-12, distance_limit=1e-6)], "1-cosine", ["5.4e-12 ≤ 1e-06"]),
        (
            [
                verified("a", status="FAILED", distance=0.25, distance_limit=1e-6),
                verified("b", distance=1e-9),
                verified("c"),
            ],
            "1-cosine",
            ["0.25 > 1e-06", "1e-09", "-"],
        ),
        (
            [
                verified("a", distance=-2e-7, distance_limit=1e-6),
                verified("b", "worst_row_error", distance=0.001, distance_limit=0.004),
                verified("c", "mismatches", distance=0.0, distance_limit=0.0),
                verified("d", None),
            ],
            "difference",
            ["1-cosine -2e-07 ≤ 1e-06", "row error 0.001 ≤ 0.004", "mismatches 0 ≤ 0", "-"],
        ),
        ([verified("a", "difference", distance=3.0)], "difference", ["3"]),
    ],
)
def test_what_was_only_verified_shows_how_far_it_is_off(
    rows: list[Row], title: str, cells: list[str]
) -> None:
    lines = result_table(rows, WIDE)
    assert lines[0].endswith(f"  {title}") and "time" not in lines[0] and "BWUtil" not in lines[0]
    for line, cell in zip(lines[2:], cells, strict=False):
        assert line.endswith(f"  {cell}")
    narrow = result_table(
        [replace(one, op="o" * 60, target="t" * 60, shape="(8 " * 30) for one in rows], 80
    )
    assert max(map(display_width, narrow)) <= 80


def test_no_rows_no_table() -> None:
    assert result_table([], 80) == []


REPEATED = {"repeats": 5, "repeat_spread": 0.004}


@pytest.mark.parametrize(
    ("rows", "title", "cells", "said"),
    [
        ([{}], "noise", ["0.89%"], "; noise: relative standard deviation;"),
        ([{"repeats": 1}], "noise", ["0.89%"], "; noise: relative standard deviation;"),
        ([REPEATED], "spread", ["0.40%"], "over 5 processes (established scripts: mean)"),
        ([{**REPEATED, "repeat_spread": None}], "spread", ["-"], "over 5 processes"),
        (
            [REPEATED, {**REPEATED, "repeat_spread": 2.85}],
            "spread",
            ["0.40%", "285.0%"],
            "unsteady: its processes differ by more than 5%",
        ),
        (
            [REPEATED, REPEATED, {**REPEATED, "repeats": 3}],
            "spread",
            ["0.40%", "0.40%", "3\u00d7 0.40%"],
            "over 5 processes",
        ),
        (
            [REPEATED, {"repeats": 1}, {"repeats": None, "noise": None}],
            "spread",
            ["0.40%", "~0.89%", "-"],
            "~ relative standard deviation within the only one",
        ),
    ],
)
def test_repeats_and_how_far_they_spread(
    rows: list[dict[str, Any]], title: str, cells: list[str], said: str
) -> None:
    lines = result_table([row(f"op{n}", **more) for n, more in enumerate(rows)], WIDE)
    at = lines[0].index(f" {title} ") + 1
    assert [line[at:].split("  ")[0] for line in lines[2 : 2 + len(rows)]] == cells
    assert any(said in text for text in joined(lines[2 + len(rows) :]))


@pytest.mark.parametrize(
    ("more", "cells"),
    [
        ({}, ["75.8%"]),
        ({"bandwidth_utilisation": None}, ["-"]),
        ({"bandwidth_utilisation": None, "roofline": {"bandwidth_fraction": 0.5}}, ["50.0%"]),
        ({"roofline": {"bandwidth_fraction": 0.5}}, ["75.8%"]),
        ({"flops_per_second": 6.4e14}, ["75.8%", "640 T"]),
        (
            {
                "flops_per_second": 6.4e14,
                "roofline": {"bound": "compute", "flops_fraction": 0.649, "fraction": 0.649},
            },
            ["75.8%", "640 T 64.9%"],
        ),
        (
            {
                "flops_per_second": 9.87e11,
                "roofline": {"bound": "memory", "flops_fraction": 0.01, "fraction": 0.758},
            },
            ["75.8%", "987 G"],
        ),
    ],
)
def test_how_much_of_the_device_was_used(more: dict[str, Any], cells: list[str]) -> None:
    lines = result_table([row(**more)], WIDE)
    assert lines[0].split("  ")[-len(cells) :] == ["BWUtil", "FLOP/s"][: len(cells)]
    assert [cell.strip() for cell in lines[2].split("  ") if cell][-len(cells) :] == cells


def test_a_flag_is_a_letter_in_its_row_and_said_once() -> None:
    rows = [row("a", flags=("THROTTLED", "LAUNCH_BOUND")), row("b", flags=("LAUNCH_BOUND",))]
    lines = result_table([*rows, row("c")], WIDE)
    assert lines[0].endswith("  flags")
    assert [line.split()[-1] for line in lines[2:5]] == ["LT", "L", "75.8%"]
    assert [line.split(":")[0] for line in lines if "_BOUND" in line] == ["L LAUNCH_BOUND"]
    assert len({letter for letter, _ in FLAGS.values()}) == len(FLAGS)


VLLM = {"name": "vllm", "version": "0.22.0", "path": "/x.so", "sha256": "1a2b3c4d5e6f" * 4}
KNOWN = {"reason": "tail", "expires": "2026-12-31"}
OUTSIDE = {"check": "cosine", "threshold": 0.99, "reason": None, "outside_rules": True}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"library": VLLM}, {"library": VLLM}], ["library vllm 0.22.0 1a2b3c4d5e6f"]),
        (
            [{"library": VLLM}, {"seconds": None, "timer": None}],
            ["library vllm 0.22.0 1a2b3c4d5e6f"],
        ),
        ([{"library": VLLM}, {}], ["library vllm 0.22.0 1a2b3c4d5e6f: op0"]),
        (
            [{"library": VLLM}, {"library": {"name": "torch", "version": "2.13.0"}}],
            ["library vllm 0.22.0 1a2b3c4d5e6f: op0", "library torch 2.13.0: op1"],
        ),
        (
            [{"library": VLLM}, {"library": {**VLLM, "sha256": "ffff" * 16}}],
            ["library vllm 0.22.0 1a2b3c4d5e6f: op0", "library vllm 0.22.0 ffffffffffff: op1"],
        ),
        (
            [{"thresholds": (OUTSIDE,)}],
            ["cosine threshold 0.99 is outside the rules (no reason given): op0"],
        ),
        (
            [{"thresholds": ({**OUTSIDE, "reason": "fp8: rounds"},)}] * 5,
            ["cosine threshold 0.99 is outside the rules (fp8: rounds): op0, op1, op2 and 2 more"],
        ),
        (
            [{"thresholds": ({"threshold": 0.5},), "own_check": True, "overruled": ("bad row 3",)}],
            [
                "the runner passes what the check refused (bad row 3): op0",
                "verification threshold 0.5 is outside the rules (no reason given): op0",
                "verified by a check of the runner's own: op0",
            ],
        ),
        (
            [
                {"message": "wrong", "known_failure": {**KNOWN, "expired": False}},
                {"known_failure": {**KNOWN, "expired": True}},
            ],
            [
                "op0 on local: wrong; known failure (until 2026-12-31): tail",
                "op1 on local: known failure (expired 2026-12-31, it counts again): tail",
            ],
        ),
        (
            [{"device_mismatch": "measured on A, the config names B"}] * 2,
            ["measured on A, the config names B: op0, op1"],
        ),
    ],
)
def test_what_is_said_once_beneath(rows: list[dict[str, Any]], said: list[str]) -> None:
    lines = result_table([row(f"op{n}", **more) for n, more in enumerate(rows)], WIDE)
    assert lines[3 + len(rows) :] == said
