"""``--case`` on this side: the same cases as the front door's filter, and errors that help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ExitCode, UsageError
from orchestrator.suites.cases import check_cases

BENCHMARK = Path(__file__).resolve().parents[3] / "benchmark"
CONFIG: dict[str, Any] = {
    "device_id": 0,
    "device_name": ["MetaX C500", "NVIDIA H200"],
    "samples": 100,
    "num_tokens": [1024, 4096],
    "hidden_size": 8192,
    "epsilon": 1e-6,
    "dtype": ["bfloat16", "float16"],
    "causal": [True, False],
    "block": [[16, 16], [8, 8]],
    "batch_size_list": [1, 2],
    "text": "1",
    "name": "a=b",
    "none": None,
}
# filters, and a part of what is said (None: there is such a case)
FILTERS: list[tuple[list[str], str | None]] = [
    ([], None),
    (["num_tokens=4096"], None),
    (["num_tokens = 4096 "], None),
    (["num_tokens=4096", "num_tokens=1"], None),
    (["num_tokens=4096", "dtype=float16", "causal=true", "block=[8, 8]"], None),
    (["block=[8,8]"], None),
    (["causal=False"], None),  # as Python writes it
    (["hidden_size=8192"], None),
    (["epsilon=1e-06"], None),
    (["epsilon=0.000001"], None),
    (["batch_size_list=[1,2]"], None),
    (["text=1"], None),
    (["name=a=b"], None),
    (["none=null"], None),
    (['dtype="bfloat16"'], None),
    (["num_tokens=4097"], "no case has num_tokens=4097"),
    (["num_tokens=4096.0"], "no case has num_tokens=4096.0"),
    (["num_tokens=1", "num_tokens=2"], "no case has num_tokens=1 or num_tokens=2"),
    (["num_tokens=1024", "dtype=float32"], "no case has dtype=float32"),
    (["num_tokens="], "no case has num_tokens="),
    (["num_tokens=[1024,4096]"], "no case has"),
    (["causal=1"], "no case has causal=1"),
    (["batch_size_list=1"], "no case has"),
    (["block=" + "[" * 100_000], "no case has"),
    (["num_token=1024"], "no such parameter"),
    (["Num_tokens=1024"], "no such parameter"),
    (["samples=100"], "no such parameter"),
    (["device_id=0"], "no such parameter"),
    (["device_name=NVIDIA H200"], "no such parameter"),
]


@pytest.mark.parametrize(("filters", "said"), FILTERS)
def test_filters(filters: list[str], said: str | None) -> None:
    if said is None:
        check_cases(CONFIG, filters, "config/op.json")
        return
    with pytest.raises(UsageError) as caught:
        check_cases(CONFIG, filters, "config/op.json")
    error = caught.value
    assert said in error.message
    assert (error.where, error.code) == ("config/op.json", ExitCode.USAGE)
    assert error.hint


@pytest.mark.parametrize(("filters", "said"), FILTERS)
def test_the_front_door_agrees(
    monkeypatch: pytest.MonkeyPatch, filters: list[str], said: str | None
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARK))
    from harness import sweep  # type: ignore[import-not-found]
    from harness.errors import TreeError  # type: ignore[import-not-found]

    cases = sweep.expand(CONFIG, "config/op.json")
    if said is None:
        assert sweep.select(cases, filters, "config/op.json")
    else:
        with pytest.raises(TreeError):
            sweep.select(cases, filters, "config/op.json")


@pytest.mark.parametrize(
    ("filters", "hint"),
    [
        (["num_token=1"], "did you mean num_tokens?"),
        (["zzz=1"], "it has num_tokens, hidden_size, epsilon"),
        (["num_tokens=1"], "num_tokens is 1024, 4096 there"),
        (["dtype=float32"], "dtype is bfloat16, float16 there"),
        (["block=8"], "block is [16, 16], [8, 8] there"),
        (["none=0"], "none is null there"),
    ],
)
def test_what_there_is(filters: list[str], hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_cases(CONFIG, filters, "config/op.json")
    assert (caught.value.hint or "").startswith(hint)
