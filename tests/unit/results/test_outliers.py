"""Outliers: found where they are, not where hosts are few, unlike, unsteady or merely noisy."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from orchestrator.events import MatrixLine, Outlier, Row
from orchestrator.results.outliers import matrix


def row(target: str, seconds: float | None, **changes: Any) -> Row:
    values: dict[str, Any] = {
        "op": "rms",
        "target": target,
        "status": "PASSED",
        "case_id": "c1",
        "seconds": seconds,
        "timer": "cold_gpu",
        "device": "MetaX C500",
    }
    return Row(**(values | changes))


def hosts(*seconds: float, **changes: Any) -> list[Row]:
    return [row(f"h{n}", value, **changes) for n, value in enumerate(seconds)]


def odd(rows: list[Row]) -> list[str]:
    return [one.target for one in matrix(rows)[1]]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(hosts(1, 1, 1.06), ["h2"], id="slower than all others"),
        pytest.param(hosts(1, 1, 0.94), ["h2"], id="faster is odd too"),
        pytest.param(hosts(1, 1, 1.05 - 1e-9), [], id="within 5 %"),
        pytest.param(hosts(1, 1.5), [], id="two hosts cannot say"),
        pytest.param(hosts(1, 1.04, 1.3), ["h2"], id="0.25 is more than 3 sigma of 0.057"),
        pytest.param(hosts(1, 1.04, 1.2), [], id="0.154 is less than 3 sigma of 0.171"),
        pytest.param(hosts(1, 1, 2, 2), [], id="half and half: none is odd"),
        pytest.param(hosts(1, 1, 1, 1.2, repeat_spread=0.3), [], id="unsteady within itself"),
        pytest.param(hosts(1, 1, 1, 1.2, repeat_spread=0.19), ["h3"], id="less than its distance"),
        pytest.param([*hosts(1, 1, 1), row("n1", 3, device="NVIDIA H200")], [], id="another model"),
        pytest.param([*hosts(1, 1, 1), row("n1", 3, timer="cpu")], [], id="another timer"),
        pytest.param(
            [*hosts(1, 1, 1), row("n1", 3, device="C500")], ["n1"], id="vendor words do not count"
        ),
        pytest.param(
            [*hosts(1, 1), row("f", 3, status="FAILED")], [], id="what failed has no time"
        ),
        pytest.param(
            [*hosts(1, 1, float("nan")), row("x", None), row("z", 0.0)],
            [],
            id="times that are none",
        ),
        pytest.param([*hosts(1, 1, 1), row("u", 2, status="UNVERIFIED")], ["u"], id="unverified"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_who_is_odd(rows: list[Row], expected: list[str]) -> None:
    assert odd(rows) == expected


def test_what_is_said_of_an_outlier() -> None:
    rows = [*hosts(1.0, 1.0, 1.0), row("h3", 1.25, flags=("CONTENDED",))]
    [line], [outlier] = matrix(rows)
    assert line == MatrixLine(
        "rms",
        "C500",
        "cold_gpu",
        median=1.0,
        spread=0.0,
        seconds={"h0": 1.0, "h1": 1.0, "h2": 1.0, "h3": 1.25},
        at=line.at,
    )
    assert outlier == Outlier(
        "rms", None, "h3", "C500", 1.25, 1.0, 0.25, 0.05, 4, ("CONTENDED",), at=outlier.at
    )
    assert json.loads(json.dumps(line.as_dict()))["event"] == "matrix"
    assert json.loads(json.dumps(outlier.as_dict()))["event"] == "outlier"


def cases(target: str, *seconds: float | None, **changes: Any) -> list[Row]:
    return [
        row(target, value, case_id=f"c{n}", case=f"n={n}", **changes)
        for n, value in enumerate(seconds)
        if value is not None
    ]


def test_few_cases_have_a_line_each() -> None:
    rows = [*cases("a", 1, 10), *cases("b", 1, 10), *cases("c", 1, 20), *cases("d", 1)]
    lines, outliers = matrix(rows)
    assert [(line.case, line.cases, line.median) for line in lines] == [
        ("n=0", 1, 1),
        ("n=1", 1, 10),
    ]
    assert [(one.case, one.target, one.deviation) for one in outliers] == [("n=1", "c", 1.0)]
    assert set(lines[1].seconds) == {"a", "b", "c"}


def test_many_cases_are_one_line_of_geometric_means() -> None:
    rows = [row for name in "abc" for row in cases(name, 1, 2, 4, 8)]
    rows += cases("d", 1.1, 2.2, 4.4, 8.8)
    [line], [outlier] = matrix(rows)
    assert (line.case, line.cases) == (None, 4)
    assert line.seconds["a"] == pytest.approx(64**0.25)
    assert line.seconds["d"] == pytest.approx(64**0.25 * 1.1)
    assert (outlier.target, outlier.case) == ("d", None)
    assert outlier.deviation == pytest.approx(0.1)


def test_a_host_that_lacks_cases_is_compared_in_those_it_has() -> None:
    """The plain mean over what each has would call it twice as fast."""
    rows = [row for name in "abc" for row in cases(name, 1, 2, 4, 8)]
    rows += cases("d", 1, 2, None, None)
    rows += [row("d", None, status="FAILED", case_id="c2"), row("d", None, status="ERROR")]
    [line], outliers = matrix(rows)
    assert outliers == []
    assert line.seconds["d"] == pytest.approx(line.seconds["a"])
    assert line.statuses == {"d": "FAILED"}


def test_one_case_of_many_that_is_odd_is_named() -> None:
    rows = [row for name in "abcdefgh" for row in cases(name, *[1.0] * 12)]
    rows += cases("i", *[1.0] * 11, 1.4)
    _, outliers = matrix(rows)
    assert [(one.case, one.target) for one in outliers] == [("n=11", "i")]


def test_statuses_stand_where_there_is_no_time() -> None:
    rows = [
        *hosts(1, 1),
        row("f", None, status="FAILED"),
        row("e", None, status="ERROR", case_id=None, device=None),
        row("lost", None, status="NOT_RUN", case_id=None, device=None, timer=None),
        row("e", 1, op="softmax"),
        row("f", None, op="broken", status="ERROR", case_id=None),
    ]
    lines, _ = matrix(rows)
    assert [(line.op, line.model, line.statuses) for line in lines] == [
        # What device `e` has is known from its other operator.
        ("rms", "C500", {"f": "FAILED", "e": "ERROR"}),
        ("rms", None, {"lost": "NOT_RUN"}),
        ("softmax", "C500", {}),
        ("broken", "C500", {"f": "ERROR"}),
    ]


def test_a_failed_row_does_not_make_a_cpu_a_gpu() -> None:
    device = "Intel(R) Xeon(R) CPU"
    rows = [
        row("a", None, status="FAILED", timer=None, device=device),
        row("b", 1, timer="cpu", device=device),
        row("b", 1, op="other", timer="cpu", device=device),
    ]
    assert {line.model for line in matrix(rows)[0]} == {"CPU_Intel_Xeon"}


def test_noise_of_a_real_fleet_raises_few_alarms_and_a_slow_host_one() -> None:
    """A thousand hosts, 2 % noise: 5 % is 2.5 sigma, 3 sigma is 6 %, so three in a thousand."""
    chance = random.Random(7)
    rows = [row(f"h{n}", 1e-5 * chance.gauss(1, 0.02)) for n in range(1000)]
    rows.append(row("slow", 1e-5 * 1.15))
    found = odd(rows)
    assert "slow" in found
    assert len(found) <= 10


def test_order_of_rows_does_not_matter() -> None:
    rows = [row for name in "abcd" for row in cases(name, 1, 2, 4, 8)] + cases("e", 2, 4, 8, 16)
    lines, outliers = matrix(rows)
    random.Random(1).shuffle(rows)
    again, outliers_again = matrix(rows)
    assert again[0].seconds == pytest.approx(lines[0].seconds)
    assert [o.target for o in outliers] == [o.target for o in outliers_again] == ["e"]
