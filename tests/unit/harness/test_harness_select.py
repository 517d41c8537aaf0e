"""``--case``: which cases of a sweep are measured."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from harness import sweep
from harness.errors import TreeError

CONFIG: dict[str, Any] = {
    "rows": [8, 16, 160],
    "dtype": ["float16", "bfloat16"],
    "eps": [1e-6, 0.5],
    "fused": [True, False, None],
    "shape": [{"n": 1}, {"n": 2}],
    "hidden": 4096,
    "samples": 10,
    "device_id": 0,
}
CASES = sweep.expand(CONFIG, "config/op.json")


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ([], {}),
        (["rows=8"], {"rows": [8]}),
        (["rows=16"], {"rows": [16]}),
        (["dtype=float16"], {"dtype": ["float16"]}),
        (['dtype="float16"'], {"dtype": ["float16"]}),
        ([" dtype = float16 "], {"dtype": ["float16"]}),
        (["eps=0.000001"], {"eps": [1e-6]}),
        (["eps=1e-06"], {"eps": [1e-6]}),
        (["fused=true"], {"fused": [True]}),
        (["fused=False"], {"fused": [False]}),
        (["fused=null"], {"fused": [None]}),
        (['shape={"n": 2}'], {"shape": [{"n": 2}]}),
        (["hidden=4096"], {}),
        (["rows=8", "dtype=bfloat16"], {"rows": [8], "dtype": ["bfloat16"]}),
        (["rows=8", "rows=160"], {"rows": [8, 160]}),
    ],
)
def test_filters_keep_the_cases_that_they_name(
    filters: list[str], kept: dict[str, list[Any]]
) -> None:
    wanted = [case for case in CASES if all(case[key] in kept[key] for key in kept)]
    assert sweep.select(CASES, filters, "config/op.json") == wanted


def test_values_of_one_text_are_told_apart_as_json() -> None:
    cases = sweep.expand({"x": [1, 1.0, True, "1"]}, "config/op.json")
    picked = [sweep.select(cases, [f"x={text}"], "c") for text in ("1.0", "true")]
    assert [json.dumps(found) for found in picked] == ['[{"x": 1.0}]', '[{"x": true}]']
    # A text is taken as well: nothing else can name it.
    assert sweep.select(cases, ["x=1"], "c") == [{"x": 1}, {"x": "1"}]


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        (["rows"], "--case 'rows': write KEY=VALUE"),
        (["=8"], "--case '=8': write KEY=VALUE"),
        ([""], "--case '': write KEY=VALUE"),
        (["row=8"], "c: --case row: no such parameter; did you mean rows?"),
        (["zzz=8"], "no such parameter; swept are rows, dtype, eps, fused, shape"),
        # They do not say which case it is.
        (["samples=10"], "--case samples: no such parameter"),
        (["device_id=0"], "--case device_id: no such parameter"),
        (["rows=9"], "c: no case is rows=9: rows is 8, 16, 160"),
        (["hidden=1"], "no case is hidden=1: hidden is 4096"),
        (["dtype=half", "rows=8"], "dtype is float16, bfloat16; rows is 8, 16, 160"),
        (["eps="], "no case is eps=: eps is 1e-06, 0.5"),
    ],
)
def test_filters_that_keep_nothing_say_what_there_is(filters: list[str], words: str) -> None:
    with pytest.raises(TreeError, match=re.escape(words)):
        sweep.select(CASES, filters, "c")


def test_nothing_is_swept() -> None:
    with pytest.raises(TreeError, match="no such parameter; nothing is swept there"):
        sweep.select([{"rows": 8}], ["zzz=8"], "c")


WIDE = {name: list(range(100)) for name in "abcd"}


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (["a=1", "b=2", "c=3", "d=4"], 1),
        (["a=1", "b=2", "b=5", "c=3"], 200),
        (["a=1", "b=2"], 10_000),
    ],
)
def test_a_wide_sweep_is_narrowed_before_it_is_laid_out(filters: list[str], count: int) -> None:
    cases = sweep.expand(WIDE, "config/op.json", filters)
    assert len(cases) == count == len(sweep.select(cases, filters, "config/op.json"))


@pytest.mark.parametrize("filters", [[], ["a=1"], ["a=1000", "b=1"]])
def test_a_sweep_that_nobody_can_measure_is_refused(filters: list[str]) -> None:
    with pytest.raises(TreeError, match=r"config/op\.json: a, b, c, d make \d+ cases, and"):
        sweep.expand(WIDE, "config/op.json", filters)


def test_a_filter_that_fits_nothing_is_told_by_select() -> None:
    filters = ["rows=12345"]
    config = {"rows": [1, 2], "b": [3, 4]}
    cases = sweep.expand(config, "config/op.json", filters)
    with pytest.raises(TreeError, match="no case is rows=12345: rows is 1, 2"):
        sweep.select(cases, filters, "config/op.json")
