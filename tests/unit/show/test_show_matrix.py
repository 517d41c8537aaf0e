"""The matrix as text: hosts side by side where they fit, else folded; within the width always."""

from __future__ import annotations

import io
from collections import Counter

import pytest

from orchestrator.events import MatrixLine, Outlier, Row, Summary
from orchestrator.show.hostset import host_set
from orchestrator.show.matrix import matrix_lines, signed
from orchestrator.show.plain import PlainRenderer
from orchestrator.show.text import display_width

SECONDS = {"c500-01": 4e-6, "c500-02": 4e-6, "c500-03": 5e-6}


def outlier(target: str = "c500-03", op: str = "rms", deviation: float = 0.25) -> Outlier:
    return Outlier(op, None, target, "C500", 5e-6, 4e-6, deviation, 0.05, 3, ("CONTENDED",))


def test_hosts_side_by_side() -> None:
    lines = [
        MatrixLine("rms", "C500", "cold_gpu", None, 1, 4e-6, 0.0, SECONDS),
        MatrixLine(
            "soft", "C500", "cold_gpu", None, 6, 4e-6, 0.0, {"c500-01": 4e-6}, {"c500-02": "FAILED"}
        ),
        MatrixLine("gelu", "C500", "cold_gpu", "n=1", 1, 4e-6, 0.0, SECONDS, {"c500-01": "FAILED"}),
        MatrixLine("rms", None, statuses={"lost": "NOT_RUN"}),
        MatrixLine("none", None, statuses={"lost": "ERROR"}),
    ]
    assert matrix_lines(lines, [outlier()], 80) == [
        "GPU time (geometric mean over an operator's cases) on C500, operators × hosts",
        "operator        c500-01  c500-02  c500-03   lost",
        "--------------  -------  -------  --------  -------",
        "rms             4.00 µs  4.00 µs  5.00 µs*  NOT_RUN",
        "soft (6 cases)  4.00 µs  FAILED",
        "gelu n=1        4.00 µs  4.00 µs  5.00 µs",
        "    FAILED in some cases on 1: c500-01",
        "none                                        ERROR",
        "",
        "* outliers: off the median of their model by more than 5%, three times the",
        "spread over its hosts, and the spread over their own processes",
        "  c500-03 is slower: rms +25.0% (5.00 µs, median of 3 hosts 4.00 µs,",
        "    CONTENDED)",
    ]


def test_many_hosts_are_folded() -> None:
    seconds = {f"c500-{n:03}": 4e-6 for n in range(100)} | {"c500-100": 5e-6, "c500-101": 3.9e-6}
    failed = {f"c500-{n:03}": "FAILED" for n in range(200, 240)}
    lines = [MatrixLine("rms", "C500", "cpu", None, 1, 4e-6, 0.001, seconds, failed)]
    shown = matrix_lines(lines, [outlier("c500-100")], 80)
    assert shown[:5] == [
        "CPU time on C500, operators × hosts",
        "operator  hosts  median   spread  fastest          slowest",
        "--------  -----  -------  ------  ---------------  ----------------",
        "rms       102    4.00 µs  0.10%   -2.50% c500-101  +25.0%* c500-100",
        "    FAILED on 40: c500-[200-239]",
    ]


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [MatrixLine("rms", "C500", "cold_gpu", seconds={"a": 1.0}, median=1.0)],
        [MatrixLine("rms", None, statuses={"a": "NOT_RUN", "b": "NOT_RUN"})],
        [MatrixLine(f"op{n}", "C500", "cpu", seconds={f"h{n}": 1.0}, median=1.0) for n in range(9)],
    ],
)
def test_where_nothing_can_be_compared_there_is_no_matrix(lines: list[MatrixLine]) -> None:
    assert matrix_lines(lines, [], 80) == []


def test_models_stand_apart() -> None:
    lines = [
        MatrixLine(
            "rms", model, "cold_gpu", None, 1, 1.0, 0.0, {f"{model}-1": 1.0, f"{model}-2": 1.0}
        )
        for model in ("C500", "H200")
    ]
    shown = matrix_lines(lines, [], 80)
    assert [line for line in shown if " on " in line] == [
        "GPU time on C500, operators × hosts",
        "GPU time on H200, operators × hosts",
    ]


def test_the_oddest_hosts_come_first_and_many_are_counted() -> None:
    line = MatrixLine("rms", "C500", "cold_gpu", None, 1, 4e-6, 0.0, SECONDS)
    several = [outlier("x", f"op{n}", 0.1 + n / 100) for n in range(5)]
    single = [outlier(f"h{n:02}", "rms", 0.5) for n in range(30)]
    shown = matrix_lines([line], [*single, *several, outlier("x", "rms", -0.2)], 200)
    first = next(n for n, text in enumerate(shown) if "is slower" in text)
    assert shown[first].startswith("  x is slower in 5: op4 +14.0% (")
    assert shown[first + 1] == "    and 2 more"
    assert shown[-1] == "  and 12 hosts more"


@pytest.mark.parametrize("text", ["\x1b[2J", "中" * 90, "x" * 5000, "a\tb", "\ud800", "[1-3]", ""])
@pytest.mark.parametrize("hosts", [2, 3, 60])
@pytest.mark.parametrize("width", [80, 200])
def test_hostile_names_stay_within_the_width(text: str, hosts: int, width: int) -> None:
    seconds = {f"{text}{n}": 1e-6 * (n + 1) for n in range(hosts)}
    statuses = {f"lost{text}{n}": text for n in range(hosts)}
    line = MatrixLine(text, text, text, text, 1, 1e-6, 0.1, seconds, statuses)
    odd = Outlier(text, text, f"{text}1", text, 1e300, 1e-300, 1e308, 0.1, 3, (text,))
    shown = matrix_lines([line], [odd], width)
    assert shown
    for one in shown:
        assert display_width(one) <= width
        assert all(c.isprintable() for c in one)


@pytest.mark.parametrize(
    ("deviation", "text"),
    [(0.123, "+12.3%"), (-0.05, "-5.00%"), (0.0, "+0.00%"), (1e9, "+>9999%")],
)
def test_deviations(deviation: float, text: str) -> None:
    assert signed(deviation) == text


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), ""),
        (("a",), "a"),
        (("c500-01", "c500-03", "c500-02"), "c500-[01-03]"),
        (("n1:vllm", "n2:vllm", "n2:sgl"), "n2:sgl,n[1-2]:vllm"),
        (("a b", "@all", "!x", "n[1-3]", "n1", "n2"), "n[1-2],!x,@all,a b,n[1-3]"),
        (("\x1b[1m",), "\\x1b[1m"),
    ],
)
def test_host_sets(names: tuple[str, ...], text: str) -> None:
    assert host_set(names) == text


def rows_of(*counts: tuple[str, int]) -> list[Row]:
    """So many rows of each status, an operator of their own each; the first statuses last."""
    return [
        Row(
            f"{status.lower()}_{number}",
            "h1",
            status,
            message=None if status == "PASSED" else f"why {status}",
            seconds=1e-6 if status == "PASSED" else None,
            timer="cold_gpu" if status == "PASSED" else None,
        )
        for status, count in counts
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("rows", "matrix", "listed", "said"),
    [
        (
            rows_of(("UNAVAILABLE", 60), ("PASSED", 100)),
            True,
            {"UNAVAILABLE": 60, "PASSED": 100},
            "",
        ),
        (
            # What is not there gives way first, and is told in a sentence all the same.
            rows_of(("UNAVAILABLE", 150), ("PASSED", 100), ("FAILED", 2)),
            True,
            {"PASSED": 100, "FAILED": 2, "UNAVAILABLE": 98},
            "not listed one by one: 52 UNAVAILABLE",
        ),
        (
            rows_of(("UNAVAILABLE", 50), ("NOT_RUN", 30), ("PASSED", 250), ("TIMEOUT", 2)),
            True,
            {"PASSED": 198, "TIMEOUT": 2},
            "not listed one by one: 52 PASSED, 50 UNAVAILABLE, 30 NOT_RUN",
        ),
        (
            # Where no matrix has the times, the table has them all.
            rows_of(("UNAVAILABLE", 50), ("PASSED", 250)),
            False,
            {"PASSED": 250},
            "not listed one by one: 50 UNAVAILABLE",
        ),
    ],
)
def test_of_very_many_rows_what_was_not_run_gives_way_first(
    rows: list[Row], matrix: bool, listed: dict[str, int], said: str
) -> None:
    out = io.StringIO()
    render = PlainRenderer(out, color=False, width=80, errors=io.StringIO())
    for row in rows:
        render(row)
    if matrix:
        render(MatrixLine("rms", "C500", "cold_gpu", None, 1, 4e-6, 0.0, SECONDS))
    render(Summary("testall", 1))
    table = [line.split() for line in out.getvalue().splitlines()]
    found = Counter(words[2] for words in table if len(words) > 3 and words[1] == "h1")
    assert found == listed
    assert said in out.getvalue()
    for status in {row.status for row in rows} & {"UNAVAILABLE", "NOT_RUN"}:
        count = sum(row.status == status for row in rows)
        assert f"{status} on h1: {count} operators: why {status}" in out.getvalue()
