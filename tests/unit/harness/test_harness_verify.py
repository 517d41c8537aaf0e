"""What each check of ``runner.verify`` finds, what it lets pass, and what it says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import elements
from harness.base import OpBenchmarkBase

FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, *FP8)
ROWS, COLUMNS = 100, 257


def _noise(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


NOISE = _noise(ROWS, COLUMNS)


@pytest.fixture
def runner() -> OpBenchmarkBase:
    return OpBenchmarkBase("op", {})


def _said(runner: OpBenchmarkBase) -> str:
    return str(runner._noted.comparisons[-1].reason)


Fault = Callable[[torch.Tensor, torch.dtype], torch.Tensor]


def _set(where: Any, value: Any) -> Fault:
    def damage(wide: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        wide[where] = value(wide) if callable(value) else value
        return wide.to(dtype)

    return damage


def _untouched(rows: slice) -> Fault:
    def damage(wide: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        out = wide.to(dtype)
        OpBenchmarkBase("op", {}).poison(out[rows])
        return out

    return damage


def _shifted(wide: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return wide.reshape(-1).roll(1).reshape(wide.shape).to(dtype)


# Each makes a wrong output of the right one, [ROWS, COLUMNS] in float64.
FAULTS: dict[str, Fault] = {
    "scaled-by-2": lambda wide, dtype: (wide * 2).to(dtype),
    "scaled-by-1.02": lambda wide, dtype: (wide * 1.02).to(dtype),
    "zero": lambda wide, dtype: torch.zeros_like(wide, dtype=dtype),
    "negated": lambda wide, dtype: (-wide).to(dtype),
    "nan": _set((3, 5), math.nan),
    "untouched": _untouched(slice(None)),
    "one-row-untouched": _untouched(slice(-1, None)),
    "one-wrong-row": _set(ROWS - 1, lambda wide: wide[0]),
    "one-row-scaled-by-1.05": _set(7, lambda wide: wide[7] * 1.05),
    "one-row-zero": _set(7, 0.0),
    "one-wrong-element": _set((7, 100), lambda wide: wide[7, 100] + 2.0),
    "swapped-rows": _set([5, 6], lambda wide: wide[[6, 5]]),
    "shifted-by-one": _shifted,
    "shape": lambda wide, dtype: wide[:, :-1].to(dtype),
    "flat": lambda wide, dtype: wide.reshape(-1).to(dtype),
}
# Averaged over the tensor, one row of many or one element is nothing.
BLIND = {
    "exact": set(),
    "close": set(),
    "cosine": {"one-row-scaled-by-1.05", "one-wrong-element"},
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("check", BLIND)
def test_every_fault_is_found(
    runner: OpBenchmarkBase, check: str, fault: str, dtype: torch.dtype
) -> None:
    ref = NOISE.to(dtype)
    out = FAULTS[fault](NOISE.clone(), dtype)
    passed, _ = getattr(runner.verify, check)(out, ref)
    (seen,) = runner._noted.comparisons
    assert (seen.passed, seen.reason is None) == (passed, passed)
    if fault not in BLIND[check]:
        assert not passed, seen


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("check", BLIND)
def test_what_is_right_passes(runner: OpBenchmarkBase, check: str, dtype: torch.dtype) -> None:
    ref = NOISE.to(dtype)
    assert getattr(runner.verify, check)(ref.clone(), ref) == (True, pytest.approx(0, abs=1e-12))
    assert runner._noted.comparisons[0].reason is None


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rounding_of_the_dtype_passes_close(runner: OpBenchmarkBase, dtype: torch.dtype) -> None:
    """float32 arithmetic on the way, then the output's own rounding, once and twice."""
    exact = NOISE
    step = 1e-13 if dtype is torch.float64 else 2e-7
    once = (exact * (1 + step * _noise(ROWS, COLUMNS, seed=1))).to(dtype)
    twice = (exact / 3).to(dtype).to(torch.float64).mul(3).to(dtype)
    for out in (once, once if dtype in FP8 else twice):
        assert runner.verify.close(out, exact.to(dtype))[0], _said(runner)
    assert runner.verify.close(once, exact)[0] or dtype in FP8, _said(runner)


def test_one_wrong_row_of_a_hundred_thousand(runner: OpBenchmarkBase) -> None:
    ref = _noise(100_000, 16).to(torch.bfloat16)
    out = ref.clone()
    out[77_777] = ref[0]
    assert runner.verify.cosine(out, ref, 0.9999)[0]
    assert not runner.verify.close(out, ref)[0]
    assert "[77777, " in _said(runner)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [1e-3, 1e-5])
def test_rows_near_zero_are_held_to_their_own_size(
    runner: OpBenchmarkBase, dtype: torch.dtype, size: float
) -> None:
    ref = _noise(8, 64)
    ref[3] *= size
    ref[4] = 0.0
    noisy = ref.clone()
    # What a sum in float32 leaves where large terms cancel.
    noisy[4] = 3e-8 * ref[0]
    assert runner.verify.close(noisy.to(dtype), ref)[0], _said(runner)
    wrong = ref.clone()
    wrong[3] *= -1
    assert not runner.verify.close(wrong.to(dtype), ref)[0]
    assert "[3, " in _said(runner)
    wrong = ref.clone()
    wrong[4] = size
    assert not runner.verify.close(wrong.to(dtype), ref)[0]


def test_what_vanishes_beside_the_tensor_may_be_flushed(runner: OpBenchmarkBase) -> None:
    ref = _noise(8, 64).float()
    ref[4] *= 1e-9
    out = ref.clone()
    out[4] = 0.0
    assert runner.verify.close(out, ref)[0], _said(runner)
    assert runner._noted.comparisons[0].metrics()["worst_row_scale"] == pytest.approx(1.0)


@pytest.mark.parametrize("dtype", [*FP8, torch.int8, torch.uint8], ids=str)
def test_one_step_of_a_short_row_is_no_wrong_scale(
    runner: OpBenchmarkBase, dtype: torch.dtype
) -> None:
    ref = torch.tensor([[8], [16], [32]]).to(dtype)
    out = ref.clone()
    out.view(torch.uint8)[1] += 1
    assert runner.verify.close(out, ref)[0], _said(runner)
    out.view(torch.uint8)[1] += 1
    assert not runner.verify.close(out, ref)[0]


def test_a_reference_that_is_not_finite_is_told(runner: OpBenchmarkBase) -> None:
    for broken in (math.nan, math.inf):
        ref = torch.tensor([1.0, broken])
        for check in (runner.verify.close, runner.verify.cosine):
            assert not check(torch.ones(2), ref)[0]
            assert "0 of 2 output values and 1 reference values" in _said(runner)


def test_subnormal_steps_are_no_error(runner: OpBenchmarkBase) -> None:
    ref = (_noise(4, 64) * 1e-6).to(torch.float16)
    out = ref.clone()
    out.view(torch.int16)[0, 0] += 1
    assert runner.verify.close(out, ref)[0], _said(runner)
    out[0] = 1e-5
    assert not runner.verify.close(out, ref)[0]


@pytest.mark.parametrize(
    ("dtype", "steps", "passed"),
    [
        (torch.int8, 1, True),
        (torch.int8, 2, False),
        (torch.uint8, 1, True),
        (torch.uint8, 2, False),
        (torch.int16, 1, False),
        (torch.int32, 1, False),
        (torch.int64, 1, False),
        (torch.uint16, 1, False),
        (torch.uint32, 1, False),
        (torch.uint64, 1, False),
    ],
    ids=str,
)
def test_integers_are_held_to_steps(
    runner: OpBenchmarkBase, dtype: torch.dtype, steps: int, passed: bool
) -> None:
    ref = torch.arange(3, 123).reshape(4, 30)
    out = ref.clone()
    out[2, 9] += steps
    assert runner.verify.close(out.to(dtype), ref.to(dtype))[0] is passed
    assert passed or f"off by {steps} steps, allowed is" in _said(runner)
    assert passed or "[2, 9]" in _said(runner)
    assert runner.verify.close(out.to(dtype), ref.to(dtype), limit=steps)[0]
    assert not runner.verify.exact(out.to(dtype), ref.to(dtype))[0]
    assert runner.verify.close(ref.to(dtype), ref.to(dtype).clone())[0]


def test_the_worst_integer_is_the_one_with_most_steps(runner: OpBenchmarkBase) -> None:
    ref = torch.tensor([[1, 0], [100, 0]], dtype=torch.int8)
    out = torch.tensor([[2, 0], [105, 0]], dtype=torch.int8)
    passed, difference = runner.verify.close(out, ref)
    assert not passed and difference == pytest.approx(0.05)
    assert "off by 5 steps" in _said(runner) and "[1, 0] 105" in _said(runner)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint64], ids=str)
def test_integers_beyond_what_float64_tells_apart(
    runner: OpBenchmarkBase, dtype: torch.dtype
) -> None:
    ref = torch.tensor([2**53 + 1, 2**62], dtype=dtype)
    out = torch.tensor([2**53, 2**62], dtype=dtype)
    assert not runner.verify.close(out, ref)[0] and "9007199254740993" in _said(runner)
    assert not runner.verify.exact(out, ref)[0] and "9007199254740993" in _said(runner)
    assert not runner.verify.unordered(out, ref)[0]
    assert runner.verify.close(ref.clone(), ref)[0]
    assert runner.verify.close(torch.full((2,), 7, dtype=dtype), SEVENS)[0]
    if dtype is torch.int64:
        assert not runner.verify.close(out.to(torch.uint64), ref)[0]


SEVENS = torch.full((2,), 7, dtype=torch.int32)
COMPLEX = torch.complex(_noise(3, 4), _noise(3, 4, seed=1))


def _element(tensor: torch.Tensor, where: tuple[int, ...], value: complex) -> torch.Tensor:
    tensor = tensor.clone()
    tensor[where] = value
    return tensor


# out, ref, expected of (exact, close, unordered); None: not asked
ODD = {
    "nan-payload": (
        torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32),
        torch.tensor([0x7FC00000], dtype=torch.int32).view(torch.float32),
        (False, False, False),
    ),
    "same-nan": (torch.tensor([math.nan]), torch.tensor([math.nan]), (True, False, False)),
    "negative-zero": (torch.tensor([-0.0, 1]), torch.tensor([0.0, 1]), (False, True, True)),
    "same-inf": (torch.tensor([math.inf, 1]), torch.tensor([math.inf, 1]), (True, False, False)),
    "empty": (torch.empty(0, 4), torch.empty(0, 4), (False, False, False)),
    "no-columns": (torch.empty(4, 0), torch.empty(4, 0), (False, False, False)),
    "0-d": (torch.tensor(2.0), torch.tensor(2.0), (True, True, True)),
    "0-d-wrong": (torch.tensor(2.0), torch.tensor(2.1), (False, False, False)),
    "0-d-against-1-d": (torch.tensor(2.0), torch.tensor([2.0]), (False, False, False)),
    "all-zero": (torch.zeros(3, 4), torch.zeros(3, 4), (True, True, True)),
    "reference-zero": (torch.ones(3, 4), torch.zeros(3, 4), (False, False, False)),
    "huge": (torch.full((2, 3), 3e38), torch.full((2, 3), 3e38), (True, True, True)),
    "huge-opposite": (
        torch.full((2, 3), -1.7e308, dtype=torch.float64),
        torch.full((2, 3), 1.7e308, dtype=torch.float64),
        (False, False, False),
    ),
    "finer-reference": (torch.tensor([0.1]), torch.tensor([0.1]).double(), (False, True, True)),
    "coarser-reference": (torch.tensor([0.5]), torch.tensor([0.5]).half(), (False, False, False)),
    "int-against-float": (torch.tensor([3]), torch.tensor([3.0]), (False, True, False)),
    "bool-against-float": (torch.tensor([True]), torch.tensor([1.0]), (False, False, False)),
    "bool": (torch.tensor([True, False]), torch.tensor([True, False]), (True, True, True)),
    "bool-wrong": (torch.tensor([True, True]), torch.tensor([True, False]), (False, False, False)),
    "complex": (COMPLEX.clone(), COMPLEX, (True, True, False)),
    "complex-conjugate": (COMPLEX.conj(), COMPLEX.clone(), (False, False, False)),
    "complex-conjugate-view": (COMPLEX.conj(), COMPLEX.conj().resolve_conj(), (True, True, False)),
    "complex-against-real": (COMPLEX.real.clone(), COMPLEX, (False, False, False)),
    "complex-wrong": (_element(COMPLEX, (2, 1), 1j), COMPLEX, (False, False, False)),
    "strided": (_noise(8, 8)[::2, ::3], _noise(8, 8)[::2, ::3].clone(), (True, True, True)),
    "transposed": (_noise(8, 8).t(), _noise(8, 8), (False, False, False)),
    "expanded": (torch.ones(1, 4).expand(3, 4), torch.ones(3, 4), (True, True, True)),
    "gradient": (torch.ones(2, 2, requires_grad=True), torch.ones(2, 2), (True, True, True)),
    "negative-view": (COMPLEX.conj().imag, -COMPLEX.imag, (True, True, True)),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_tensors(runner: OpBenchmarkBase, case: str) -> None:
    out, ref, expected = ODD[case]
    checks = (runner.verify.exact, runner.verify.close, runner.verify.unordered)
    for check, passed in zip(checks, expected, strict=True):
        assert check(out, ref)[0] is passed, (check.__name__, _said(runner))


def test_a_wrong_complex_number_is_named_by_its_place(runner: OpBenchmarkBase) -> None:
    out = _element(COMPLEX, (2, 1), 1j)
    runner.verify.close(out, COMPLEX)
    assert "at [2, 1]" in _said(runner)
    runner.verify.exact(out, COMPLEX)
    assert "2 of 24 values differ, first at [2, 1]" in _said(runner)


def test_exact_names_the_first_difference(runner: OpBenchmarkBase) -> None:
    ref = torch.arange(24.0).reshape(2, 3, 4)
    out = ref.clone()
    out[1, 0, 2] = out[1, 2, 3] = -5.0
    assert runner.verify.exact(out, ref, name="key_cache") == (False, 1.0)
    assert _said(runner) == (
        "key_cache: 2 of 24 values differ, first at [1, 0, 2]: -5.0 where the reference has 14.0"
    )
    assert runner._noted.comparisons[-1].metrics() == {"key_cache.mismatches": 2.0}


def test_packed_numbers_are_compared_by_their_bytes(runner: OpBenchmarkBase) -> None:
    packed = torch.arange(8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    other = torch.tensor([0, 1, 2, 3, 4, 5, 6, 8], dtype=torch.uint8)
    assert runner.verify.exact(packed.clone(), packed)[0]
    assert not runner.verify.exact(packed, other.view(torch.float4_e2m1fn_x2))[0]
    assert "first at [7]: byte 7 where the reference has byte 8" in _said(runner)


@pytest.mark.parametrize("size", [1, 10, 64, 1000])
def test_slices_and_blocks_leave_nothing_out(
    runner: OpBenchmarkBase, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Rows longer than a slice, rows that share one, and the last of both."""
    monkeypatch.setattr("harness.checks._SLICE", size)
    ref = _noise(6, 33).float()
    assert runner.verify.close(ref.clone(), ref)[0] and runner.verify.exact(ref.clone(), ref)[0]
    for row, column in ((0, 0), (2, 31), (5, 32)):
        out = ref.clone()
        out[row, column] += 0.5
        out[5, 32] += 0.1
        for check in (runner.verify.close, runner.verify.exact):
            assert not check(out, ref)[0]
            assert f"[{row}, {column}]" in _said(runner), size
    assert runner.verify.topk(*_best(ref, 4), ref)[0]
    _, indices = _best(ref, 4)
    indices[5] = (indices[5] + 1) % 33
    assert not runner.verify.topk(None, indices, ref)[0]


def test_a_row_scaled_below_a_step_is_found(
    runner: OpBenchmarkBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No element is a step off, but all of them lean one way; a row in pieces as well."""
    ref = _noise(50, 512)
    ref[20:] *= 8
    out = ref.clone()
    out[30] *= 1.02
    for size in (1 << 22, 100):
        monkeypatch.setattr("harness.checks._SLICE", size)
        passed, _ = runner.verify.close(out.to(FP8[0]), ref.to(FP8[0]), limit=0.2)
        assert not passed and "row [30] is 1.0" in _said(runner), _said(runner)
        scale = runner._noted.comparisons[-1].metrics()["worst_row_scale"]
        assert scale == pytest.approx(1.02, abs=0.01)


@pytest.mark.parametrize("limit", [-0.1, 1.0, 2.0, math.nan, math.inf])
def test_a_limit_that_anything_meets_is_refused(runner: OpBenchmarkBase, limit: float) -> None:
    with pytest.raises(ValueError, match="limit"):
        runner.verify.close(torch.ones(3), torch.ones(3), limit=limit)


def test_the_limits_of_narrow_dtypes_are_below_two_percent_where_they_can_be() -> None:
    assert all(elements.usual_limit(dtype) < 0.02 for dtype in FLOATS if dtype not in FP8)


# --- top-k and multisets


def _best(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = scores.topk(k, dim=-1)
    return values.clone(), indices.clone()


SCORES = _noise(20, 64).float()


def _with(indices: torch.Tensor, where: tuple[int, int], value: int) -> torch.Tensor:
    indices = indices.clone()
    indices[where] = value
    return indices


# values, indices -> values, indices; words in the reason, None: right
TOPK: dict[str, tuple[Callable[[Any, Any], tuple[Any, Any]], str | None]] = {
    "right": (lambda v, i: (v, i), None),
    "other-order": (lambda v, i: (v.flip(-1), i.flip(-1)), None),
    "int32": (lambda v, i: (v, i.to(torch.int32)), None),
    "values-rounded": (lambda v, i: (v.to(torch.bfloat16), i), None),
    "order-of-values-alone": (lambda v, i: (v.flip(-1), i), "not the scores at their indices"),
    "values-scaled": (lambda v, i: (v * 1.02, i), "not the scores at their indices"),
    "values-nan": (lambda v, i: (v * math.nan, i), "not finite"),
    "one-too-low": (lambda v, i: (v, _with(i, (3, 7), int(SCORES[3].argmin()))), "the 8 best"),
    "twice": (lambda v, i: (v, _with(i, (3, 7), int(i[3, 6]))), "1 rows name an index twice"),
    "beyond": (lambda v, i: (v, _with(i, (3, 7), 64)), "outside [0, 64), first 64 at row 3"),
    "negative": (lambda v, i: (v, _with(i, (0, 0), -1)), "outside [0, 64), first -1 at row 0"),
    "other-row": (lambda v, i: (v, i.roll(1, 0)), "the 8 best"),
    "smallest": (lambda v, i: SCORES.topk(8, largest=False), "the 8 best"),
    "float-indices": (lambda v, i: (v, i.float()), "no integer"),
    "fewer-values": (lambda v, i: (v[:, :-1], i), "where the indices have"),
    "fewer-rows": (lambda v, i: (v[1:], i[1:]), "do not fit"),
    "none": (lambda v, i: (v[:, :0], i[:, :0]), "empty"),
    "more-than-there-are": (
        lambda v, i: (torch.ones(20, 65), torch.arange(65).expand(20, 65)),
        "65 indices a row, but 64 scores",
    ),
}


@pytest.mark.parametrize("case", TOPK)
def test_topk(runner: OpBenchmarkBase, case: str) -> None:
    change, words = TOPK[case]
    values, indices = change(*_best(SCORES, 8))
    passed, _ = runner.verify.topk(values, indices, SCORES)
    assert passed is (words is None), _said(runner)
    assert words is None or words in _said(runner)


def test_topk_takes_any_of_tied_candidates_but_no_lower_one(runner: OpBenchmarkBase) -> None:
    scores = torch.tensor([[1.0, 5.0, 3.0, 3.0, 3.0, 2.0]])
    for chosen, passed in (([1, 2, 3], 1), ([4, 1, 2], 1), ([1, 3, 5], 0), ([2, 3, 4], 0)):
        assert runner.verify.topk(None, torch.tensor([chosen]), scores)[0] is bool(passed)
    assert runner.verify.topk(None, torch.tensor([[0, 5]]), scores, largest=False)[0]
    assert not runner.verify.topk(None, torch.tensor([[0, 1]]), scores, largest=False)[0]


def test_topk_without_values_is_exact_unless_a_limit_is_named(runner: OpBenchmarkBase) -> None:
    scores = torch.tensor([1.0, 1.0 - 1e-6, 0.5])
    assert not runner.verify.topk(None, torch.tensor([1]), scores)[0]
    assert runner.verify.topk(None, torch.tensor([1]), scores, limit=1e-5)[0]
    assert runner.verify.topk(scores[1:2].clone(), torch.tensor([1]), scores)[0]


def test_poisoned_indices_and_values_fail(runner: OpBenchmarkBase) -> None:
    for dtype in (torch.int32, torch.int64):
        values, indices = _best(SCORES, 8)
        indices = indices.to(dtype)
        runner.poison(indices)
        assert not runner.verify.topk(values, indices, SCORES)[0]
    values, indices = _best(SCORES, 8)
    runner.poison(values)
    assert not runner.verify.topk(values, indices, SCORES)[0]


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int8, torch.int32, torch.uint8], ids=str)
def test_rows_as_multisets(runner: OpBenchmarkBase, dtype: torch.dtype) -> None:
    ref = (_noise(6, 40) * 20).clamp(0, 100).to(dtype)
    shuffled = ref.view(torch.uint8).reshape(6, 40, -1)[:, torch.randperm(40)]
    out = shuffled.reshape(6, -1).view(dtype)
    assert runner.verify.unordered(out, ref)[0], _said(runner)
    wide = out.to(torch.float64)
    wide[2, 3] = wide[2].max() * 1.25 + 2
    assert not runner.verify.unordered(wide.to(dtype), ref)[0]
    assert not runner.verify.unordered(out.flip(0), ref)[0]
    # One value twice where another should be: as a set they are equal.
    rows = torch.tensor([[1, 1, 2], [1, 2, 2]]).to(dtype)
    assert not runner.verify.unordered(rows[:1].clone(), rows[1:])[0]


def test_multisets_keep_the_rules_of_their_dtype(runner: OpBenchmarkBase) -> None:
    whole = torch.arange(6).reshape(2, 3)
    assert not runner.verify.unordered(whole.to(torch.int32), whole)[0]
    assert "torch.int32 output where the reference has torch.int64" in _said(runner)
    ref = _noise(2, 8).to(torch.bfloat16)
    out = ref.flip(-1).clone()
    out.view(torch.int16)[1, 3] += 1
    assert runner.verify.unordered(out, ref)[0], _said(runner)


def test_no_rows_have_no_best(runner: OpBenchmarkBase) -> None:
    nothing = torch.empty(0, 8)
    assert not runner.verify.topk(None, nothing.long(), nothing)[0] and "empty" in _said(runner)


# --- the verdict


def test_the_verdict_is_the_worst_of_all(runner: OpBenchmarkBase) -> None:
    with pytest.raises(ValueError, match="before anything was compared"):
        runner.verify.verdict()
    good = torch.ones(4)
    runner.verify.exact(good.clone(), good)
    assert runner.verify.verdict() == (True, 0.0)
    runner.verify.close(good * (1 + 2e-6), good)
    passed, difference = runner.verify.verdict()
    assert passed and difference == pytest.approx(2e-6, rel=0.1)
    runner.check_diff(good * 2, good)
    runner.verify.exact(good.clone(), good)
    assert runner.verify.verdict()[0] is False
    runner.verify.close(good[1:].clone(), good)
    assert runner.verify.verdict() == (False, pytest.approx(math.nan, nan_ok=True))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="compares across devices: needs a GPU")
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int8, torch.int64, torch.uint32], ids=str)
def test_output_and_reference_on_different_devices(
    runner: OpBenchmarkBase, dtype: torch.dtype
) -> None:
    ref = (_noise(9, 33).abs() * 9).to(dtype)
    for out in (ref.cuda(), ref.clone()):
        other = ref if out.is_cuda else ref.cuda()
        for check in (runner.verify.exact, runner.verify.close, runner.verify.unordered):
            assert check(out, other)[0], _said(runner)
            assert check(out, other.clone().view(torch.uint8).flip(0).view(dtype))[0] is False
        runner.poison(out)
        assert not runner.verify.exact(out, other)[0]
    values, indices = _best(SCORES.cuda(), 8)
    assert runner.verify.topk(values, indices, SCORES)[0]


@pytest.mark.parametrize("with_values", [True, False])
def test_topk_tells_integers_apart_that_float64_does_not(
    runner: OpBenchmarkBase, with_values: bool
) -> None:
    scores = torch.tensor([[2**60, 2**60 + 1, 5], [7, 2**62 - 1, 2**62]])
    best = torch.tensor([[1], [2]])
    for indices, right in ((best, True), (best - 1, False)):
        values = scores.gather(1, indices) if with_values else None
        assert runner.verify.topk(values, indices, scores)[0] is right
    if with_values:
        assert not runner.verify.topk(scores.gather(1, best - 1), best, scores)[0]
