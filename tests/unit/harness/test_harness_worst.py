"""The worst elements of an output that failed: which, in what order, and how much they are off."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import checks, elements, plain
from harness.base import OpBenchmarkBase

ROWS, COLUMNS = 40, 65


@pytest.fixture(params=[1 << 22, 100, 7], ids=["one slice", "rows", "pieces of rows"])
def runner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> OpBenchmarkBase:
    """A runner; slices are as small as the parameter, so that what spans them shows."""
    monkeypatch.setattr(checks, "_SLICE", request.param)
    return OpBenchmarkBase("op", {})


def _ref(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return (torch.randn(ROWS, COLUMNS, generator=generator) + 4).to(dtype)


def _last(runner: OpBenchmarkBase) -> dict[str, Any]:
    (entry,) = (c.worst for c in runner._noted.comparisons[-1:])
    assert entry is not None
    assert runner._noted.comparisons[-1].compared is None  # no tensor is kept
    # A record holds it as it is.
    cleaned = plain.clean({"verification": {"worst": [entry]}})
    assert plain.REWRITTEN not in cleaned
    json.dumps(cleaned, allow_nan=False)
    return entry


def _indices(entry: dict[str, Any]) -> list[list[int]]:
    return [element["index"] for element in entry["elements"]]


CHECKS = ("close", "cosine", "exact")


def test_what_passes_has_none(runner: OpBenchmarkBase) -> None:
    for check in CHECKS:
        assert getattr(runner.verify, check)(_ref(), _ref())[0]
    assert [c.worst for c in runner._noted.comparisons] == [None] * 3


@pytest.mark.parametrize("check", CHECKS)
def test_the_largest_errors_first(runner: OpBenchmarkBase, check: str) -> None:
    ref = _ref()
    out = ref.clone()
    ref[5], ref[30] = ref[5].abs() + 1, ref[30].abs() + 1
    out[5], out[30] = ref[5], ref[30]
    out[30, 64] += 500.0
    out[5, 0] -= 400.0
    assert not getattr(runner.verify, check)(out, ref, name="out")[0]
    entry = _last(runner)
    assert (entry["output"], entry["shape"], entry["dtype"]) == ("out", [ROWS, COLUMNS], "float32")
    assert sorted(_indices(entry)) == [[5, 0], [30, 64]]
    if check != "close":  # there a row's magnitude counts
        assert _indices(entry)[0] == [30, 64]
    found = {tuple(element["index"]): element for element in entry["elements"]}
    element = found[30, 64]
    assert element["got"] == out[30, 64].item()
    assert element["expected"] == ref[30, 64].item()
    assert element["abs_error"] == pytest.approx(500.0)
    assert element["rel_error"] == pytest.approx(500.0 / ref[30, 64].item())


@pytest.mark.parametrize("check", CHECKS)
def test_at_most_ten(runner: OpBenchmarkBase, check: str) -> None:
    """A wrong scale: everything is off, the largest values the most."""
    ref = _ref()
    assert not getattr(runner.verify, check)(1.5 * ref, ref)[0]
    found = _last(runner)["elements"]
    assert len(found) == 10
    assert all(element["rel_error"] == pytest.approx(0.5, rel=1e-5) for element in found)
    if check != "close":
        largest = ref.reshape(-1).topk(10).values.tolist()
        assert [element["expected"] for element in found] == pytest.approx(largest)


def test_one_wrong_row_among_larger_ones(runner: OpBenchmarkBase) -> None:
    """By its own magnitude it is the worst, though the others' rounding is larger."""
    ref = _ref(torch.bfloat16)
    ref[17] *= 1e-3
    out = ref.clone()
    out[:, 1] = (out[:, 1].float() * (1 + 2**-8)).to(torch.bfloat16)
    out[17] = 3 * ref[17]
    assert not runner.verify.close(out, ref)[0]
    found = _last(runner)["elements"]
    assert len(found) == 10
    assert {element["index"][0] for element in found} == {17}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    ("value", "told"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")]
)
def test_what_is_not_finite_comes_first(
    runner: OpBenchmarkBase, check: str, value: float, told: str
) -> None:
    ref = _ref()
    out = ref.clone()
    out[2, 3], out[20, 1], out[39, 64] = 1e30, value, value
    assert not getattr(runner.verify, check)(out, ref)[0]
    found = _last(runner)["elements"]
    assert [element["index"] for element in found] == [[20, 1], [39, 64], [2, 3]]
    assert found[0] == {
        "index": [20, 1],
        "got": told,
        "expected": ref[20, 1].item(),
        "abs_error": None,
        "rel_error": None,
    }


def test_a_reference_that_is_broken_where_the_output_is_too(runner: OpBenchmarkBase) -> None:
    ref = _ref()
    ref[1, 1] = math.nan
    out = ref.clone()
    out[4, 4] = math.inf
    assert not runner.verify.close(out, ref)[0]
    found = _last(runner)["elements"]
    assert [(e["index"], e["got"], e["expected"]) for e in found] == [
        ([4, 4], "inf", ref[4, 4].item()),
        ([1, 1], "nan", "nan"),
    ]


def test_everything_is_nan(runner: OpBenchmarkBase) -> None:
    ref = _ref()
    assert not runner.verify.close(torch.full_like(ref, math.nan), ref)[0]
    assert _indices(_last(runner)) == [[0, column] for column in range(10)]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    "make", [lambda r: r[:-1], lambda r: r.reshape(COLUMNS, ROWS), lambda r: r[:0]]
)
def test_another_shape_is_what_is_wrong(
    runner: OpBenchmarkBase, check: str, make: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    ref = _ref()
    out = make(ref.clone())
    assert not getattr(runner.verify, check)(out, ref)[0]
    entry = _last(runner)
    assert (entry["shape"], entry["expected_shape"]) == (list(out.shape), [ROWS, COLUMNS])
    assert entry["elements"] == []
    assert "shape" in entry["reason"]


def test_bits_of_equal_numbers(runner: OpBenchmarkBase) -> None:
    ref = torch.zeros(ROWS, COLUMNS)
    out = ref.clone()
    out[3, 3] = -0.0
    assert not runner.verify.exact(out, ref)[0]
    (element,) = _last(runner)["elements"]
    assert (element["index"], element["abs_error"], element["rel_error"]) == ([3, 3], 0.0, None)
    assert math.copysign(1, element["got"]) == -1


@pytest.mark.parametrize(
    ("dtype", "got", "expected", "error"),
    [
        (torch.int64, 2**62 + 1, 2**62, 1),
        (torch.int8, -128, 127, 255),
        (torch.uint64, 2**62 + 1, 2**62, 1),
        (torch.uint8, 0, 255, 255),
        (torch.bool, True, False, 1),
        (torch.complex64, 1 + 2j, 1 - 1j, 3.0),
        (torch.float8_e4m3fn, 2.0, 1.5, 0.5),
    ],
)
def test_kinds_of_numbers(
    runner: OpBenchmarkBase, dtype: torch.dtype, got: Any, expected: Any, error: float
) -> None:
    ref = torch.full((ROWS, COLUMNS), expected, dtype=torch.complex64 if dtype.is_complex else None)
    ref = ref.to(dtype)
    out = ref.clone()
    out[39, 0] = torch.tensor(got).to(dtype)
    assert not runner.verify.exact(out, ref)[0]
    (element,) = _last(runner)["elements"]
    assert element["index"] == [39, 0]
    told = (str(got), str(expected)) if dtype.is_complex else (got, expected)
    assert (element["got"], element["expected"]) == told
    assert element["abs_error"] == error


def test_a_bool_that_was_never_written(runner: OpBenchmarkBase) -> None:
    ref = torch.zeros(4, dtype=torch.bool)
    out = torch.tensor([0, 37, 0, 0], dtype=torch.uint8).view(torch.bool)
    assert not runner.verify.exact(out, ref)[0]
    (element,) = _last(runner)["elements"]
    assert (element["index"], element["got"], element["expected"]) == ([1], "byte 37", False)


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="this torch has no float4")
def test_packed_numbers_are_told_as_bytes(runner: OpBenchmarkBase) -> None:
    ref = torch.arange(24, dtype=torch.uint8)
    out = ref.clone()
    out[20] = 3
    assert not runner.verify.exact(
        out.view(torch.float4_e2m1fn_x2), ref.view(torch.float4_e2m1fn_x2)
    )[0]
    assert _last(runner)["elements"] == [
        {
            "index": [20],
            "got": "byte 3",
            "expected": "byte 20",
            "abs_error": None,
            "rel_error": None,
        }
    ]


def test_another_dtype_is_named(runner: OpBenchmarkBase) -> None:
    ref = torch.arange(8)
    assert not runner.verify.exact(ref.to(torch.int32), ref)[0]
    entry = _last(runner)
    assert (entry["dtype"], entry["expected_dtype"]) == ("int32", "int64")
    assert entry["elements"] == []


def test_a_number_without_dimensions(runner: OpBenchmarkBase) -> None:
    assert not runner.verify.close(torch.tensor(2.0), torch.tensor(1.0))[0]
    (element,) = _last(runner)["elements"]
    assert (element["index"], element["abs_error"]) == ([], 1.0)


def test_a_view_keeps_its_own_indices(runner: OpBenchmarkBase) -> None:
    ref = _ref().T[::2]
    out = ref.clone()
    out[3, 7] = 1e6
    assert not runner.verify.close(out, ref)[0]
    assert _indices(_last(runner))[0] == [3, 7]


def test_rows_without_order_are_told_as_they_were_compared(runner: OpBenchmarkBase) -> None:
    ref = torch.tensor([[3, 1, 2], [6, 5, 4]])
    out = torch.tensor([[1, 2, 3], [4, 9, 5]])
    assert not runner.verify.unordered(out, ref)[0]
    (element,) = _last(runner)["elements"]
    assert (element["index"], element["got"], element["expected"]) == ([1, 2], 9, 6)


TOPK = [
    # values, indices, what is told: index, got, expected
    ([[9.0, 7.0]], [[0, 2]], [([0, 0], 7.0, 8.0)]),  # 8.0 was missed
    ([[9.0, 5.0]], [[0, 1]], [([0, 1], 5.0, 8.0)]),  # its value is wrong
    ([[9.0, 8.0]], [[0, 4]], []),  # no such candidate: the reason says it all
]


@pytest.mark.parametrize(("values", "indices", "told"), TOPK)
def test_topk(runner: OpBenchmarkBase, values: Any, indices: Any, told: Any) -> None:
    scores = torch.tensor([[9.0, 8.0, 7.0, 1.0]])
    passed, _ = runner.verify.topk(torch.tensor(values), torch.tensor(indices), scores)
    assert not passed
    entry = _last(runner)
    assert [(e["index"], e["got"], e["expected"]) for e in entry["elements"]] == told
    assert entry["reason"]


def test_looking_takes_no_copy_of_a_large_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is converted at once stays within a slice or a few."""
    monkeypatch.setattr(checks, "_SLICE", 1 << 10)
    seen: list[int] = []
    plain_errors = elements._errors

    def watched(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        seen.append(a.numel())
        return plain_errors(a, b)

    monkeypatch.setattr(elements, "_errors", watched)
    ref = torch.ones(64, 1000)
    assert not OpBenchmarkBase("op", {}).verify.close(2 * ref, ref)[0]
    assert max(seen) <= 1 << 10
