"""Poison, shared memory, limits that need a reason, and what of all that the record says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import storage, thresholds, verification
from harness.base import OpBenchmarkBase
from harness.engines.state import CaseState

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
    torch.float4_e2m1fn_x2,
    torch.complex64,
    torch.complex128,
    torch.bool,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
]
# Every value of a byte, eight times, as numbers of any dtype.
BYTES = torch.arange(2048).remainder(256).to(torch.uint8)


def _as(dtype: torch.dtype, data: torch.Tensor = BYTES) -> torch.Tensor:
    if dtype is torch.bool:
        return data > 127
    return data.clone().view(dtype)


@pytest.fixture
def runner() -> OpBenchmarkBase:
    return OpBenchmarkBase("op", {})


# --- poison


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_output_that_nobody_wrote_equals_no_reference(
    runner: OpBenchmarkBase, dtype: torch.dtype
) -> None:
    """Also where the reference is one value throughout, whichever."""
    out = _as(dtype)
    runner.poison(out)
    assert runner._noted.poisoned and not runner.verify.exact(out, _as(dtype))[0]
    for value in range(256):
        ref = _as(dtype, torch.full_like(BYTES, value))
        if dtype.itemsize > 1 and not (dtype.is_floating_point or dtype.is_complex):
            ref = torch.full((out.numel(),), value, dtype=dtype)
            assert not runner.verify.exact(out, ref)[0]
        elif dtype in (torch.int8, torch.uint8, torch.float4_e2m1fn_x2):
            # No byte is odd; a pattern has some of each.
            assert (out.view(torch.uint8) == value).float().mean() < 0.02
        elif dtype.is_floating_point:
            assert not runner.verify.close(out, ref, limit=0.5)[0]
            assert not runner.check_diff(out, ref, 0.5)[0]
        elif dtype is torch.bool:
            assert not runner.check_diff(out, ref, 0.5)[0]
            assert not runner.verify.close(out, ref)[0]


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("right", [True, False])
def test_bools_that_memory_held_before_are_no_answer(
    runner: OpBenchmarkBase, left: bool, right: bool
) -> None:
    out, ref = torch.full((9,), left), torch.full((9,), right)
    runner.poison(out)
    for check in (runner.verify.exact, runner.verify.close, runner.verify.unordered):
        assert not check(out, ref)[0]
    assert not runner.check_diff(out, ref, 0.5)[0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_poison_stays_within_a_view(runner: OpBenchmarkBase, dtype: torch.dtype) -> None:
    whole = _as(dtype).reshape(16, -1)
    before = whole.clone()
    runner.poison(whole[2:14:3, 4:])
    kept = torch.ones_like(whole.view(torch.uint8), dtype=torch.bool)
    kept[2:14:3, 4 * dtype.itemsize :] = False
    changed = whole.view(torch.uint8) != before.view(torch.uint8)
    assert not changed[kept].any() and changed[~kept].any()


def test_poison_is_claimed_only_where_it_was_given(runner: OpBenchmarkBase) -> None:
    runner.poison()
    assert not runner._noted.poisoned
    runner.poison(torch.ones(2, requires_grad=True), torch.tensor(3), torch.empty(0))
    assert runner._noted.poisoned


def test_poison_repeats_and_leaves_the_random_numbers_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, two = torch.zeros(64, dtype=torch.int8), torch.zeros(64, dtype=torch.int8)
    storage.poison(one)
    storage.poison(two)
    assert torch.equal(one, two) and torch.equal(torch.rand(3), expected)


# --- shared memory

GRID = torch.arange(96.0).reshape(8, 12)
ROW = torch.arange(24.0)


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        pytest.param(GRID, GRID, True, id="itself"),
        pytest.param(GRID, GRID.detach(), True, id="detached"),
        pytest.param(GRID, GRID.view(-1), True, id="view"),
        pytest.param(GRID, GRID.t(), True, id="transposed"),
        pytest.param(GRID, GRID.view(torch.int32), True, id="other-dtype"),
        pytest.param(GRID.view(torch.int16)[:, 1::2], GRID, True, id="upper-halves"),
        pytest.param(GRID.view(torch.int16)[:, 1::2], GRID.view(torch.int16)[:, ::2], False),
        pytest.param(GRID[0].expand(8, 12), GRID[0], True, id="expanded"),
        pytest.param(GRID[0].expand(8, 12), GRID[1:], False, id="expanded-apart"),
        pytest.param(GRID[:5], GRID[4:], True, id="one-row-in-common"),
        pytest.param(GRID[:4], GRID[4:], False, id="halves"),
        pytest.param(GRID[:, :6], GRID[:, 6:], False, id="halves-of-rows"),
        pytest.param(GRID[:, :7], GRID[:, 6:], True, id="one-column-in-common"),
        pytest.param(GRID[::2], GRID[1::2], False, id="every-other-row"),
        pytest.param(GRID[:, ::2], GRID[:, 1::2], False, id="every-other-column"),
        pytest.param(GRID[:, 1::2], GRID[3:, ::3], True, id="strides-that-meet"),
        pytest.param(ROW.unfold(0, 8, 4), ROW[20:], True, id="windows"),
        pytest.param(GRID[7, 11], GRID, True, id="last-element"),
        pytest.param(GRID[7, 11], GRID[:7], False, id="element-apart"),
        pytest.param(GRID, GRID.clone(), False, id="clone"),
        pytest.param(GRID[:0], GRID, False, id="empty"),
        pytest.param(GRID, torch.from_numpy(GRID.numpy()), True, id="through-numpy"),
        pytest.param(torch.view_as_complex(GRID.view(8, 6, 2)).real, GRID[:, 1:2], False),
    ],
)
def test_what_shares_memory(one: torch.Tensor, other: torch.Tensor, shared: bool) -> None:
    assert storage.overlaps(one, other) is shared and storage.overlaps(other, one) is shared


Check = Callable[[OpBenchmarkBase, torch.Tensor], Any]


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(lambda runner, x: runner.check_diff(x, x), id="check_diff"),
        pytest.param(lambda runner, x: runner.verify.cosine(x, x, name="x"), id="cosine"),
        pytest.param(lambda runner, x: runner.verify.exact(x, x.view(-1), name="x"), id="exact"),
        pytest.param(lambda runner, x: runner.verify.close(x, x.t(), name="x"), id="close"),
        pytest.param(lambda runner, x: runner.verify.unordered(x, x), id="unordered"),
        pytest.param(
            lambda runner, x: runner.verify.topk(x[:, :1], torch.zeros(8, 1).long(), x), id="topk"
        ),
    ],
)
def test_comparing_a_tensor_with_itself_is_an_error(runner: OpBenchmarkBase, check: Check) -> None:
    with pytest.raises(ValueError, match=r"^(x|the output) shares memory"):
        check(runner, GRID.clone())
    assert not runner._noted.comparisons


# --- limits and reasons


@pytest.mark.parametrize(
    ("op", "quantised"),
    [
        *[(op, True) for op in ("awq_gemm", "gptq_shuffle", "rms_norm_static_fp8_quant")],
        *[(op, True) for op in ("cutlass_scaled_mm", "w8a8_gemm", "gemm_w4", "AWQ_gemm")],
        *[(op, True) for op in ("dynamic_scaled_int8_quant", "moe_wna16_gemm")],
        *[(op, False) for op in ("rms_norm", "swap_blocks", "paged_attention_v1", "gelu_new")],
        *[(op, False) for op in ("moe_sum", "top_k_per_row_decode", "raw48_copy")],
    ],
)
def test_quantised_operators_are_known_by_name(op: str, quantised: bool) -> None:
    assert thresholds.quantised_name(op) is quantised


WIDE, NARROW = torch.float32, torch.int8


@pytest.mark.parametrize(
    ("op", "declared", "dtype", "threshold", "outside"),
    [
        ("rms_norm", None, WIDE, 0.999999, False),
        ("rms_norm", None, WIDE, 1.0, False),
        ("rms_norm", None, WIDE, 0.9999989, True),
        ("rms_norm", None, NARROW, 0.99, False),
        ("rms_norm", None, torch.bool, 0.99, True),
        ("rms_norm", True, WIDE, 0.99, False),
        ("awq_gemm", None, WIDE, 0.99, False),
        ("awq_gemm", None, WIDE, 0.98, True),
        ("awq_gemm", False, NARROW, 0.99, True),
    ],
)
def test_which_thresholds_are_outside_the_rules(
    op: str, declared: bool | None, dtype: torch.dtype, threshold: float, outside: bool
) -> None:
    runner = OpBenchmarkBase(op, {})
    runner.quantised = declared
    out = torch.ones(4).to(dtype)
    runner.check_diff(out, out.clone(), threshold)
    limit = runner._noted.comparisons[0].limit
    assert limit is not None and limit.entry() == {
        "check": "cosine",
        "threshold": threshold,
        "reason": None,
        "outside_rules": outside,
    }


@pytest.mark.parametrize(
    ("limit", "dtype", "outside"),
    [
        (None, torch.float16, None),
        (1e-3, torch.float16, False),
        (0.01, torch.float16, True),
        (0.01, torch.bfloat16, False),
        (1, torch.int8, False),
        (2, torch.int8, True),
        (1, torch.int32, True),
    ],
)
@pytest.mark.parametrize("check", ["close", "unordered", "topk"])
def test_limits_beyond_the_usual_are_outside_the_rules(
    runner: OpBenchmarkBase, check: str, limit: float | None, dtype: torch.dtype, outside: Any
) -> None:
    out = torch.ones(2, 3).to(dtype)
    if check == "topk":
        runner.verify.topk(out, torch.arange(3).expand(2, 3), out.clone(), limit=limit)
    else:
        getattr(runner.verify, check)(out, out.clone(), limit=limit)
    (seen,) = runner._noted.comparisons
    assert seen.passed and (seen.limit and seen.limit.outside_rules) is outside


class Answers(OpBenchmarkBase):
    """A runner whose verification is a function of the test."""

    device_type = "cpu"
    work: Callable[[OpBenchmarkBase], Any]

    def run_verification(self, dev_id: int) -> Any:
        return self.work()


X = torch.linspace(1, 2, 64)


def _half(runner: OpBenchmarkBase) -> Any:
    runner.check_diff(-X, X)
    return True, 0.0


def _reasoned(runner: OpBenchmarkBase) -> Any:
    runner.verify.cosine(X.clone(), X, 0.9, reason="rounds twice")
    runner.verify.close(X.clone(), X, limit=0.1)
    runner.verify.close(X.clone(), X, limit=0.1)
    return runner.verify.verdict()


# work, threshold_reason, entries of the record, words warned
RULES: dict[str, tuple[Callable[[OpBenchmarkBase], Any], str | None, dict[str, Any], str]] = {
    "usual": (
        lambda runner: runner.check_diff(X.clone(), X),
        "not needed",
        {
            "passed": True,
            "own_check": False,
            "overruled": [],
            "thresholds": [("cosine", 0.999999, None, False)],
        },
        "",
    ),
    "loose-without-a-reason": (
        lambda runner: runner.check_diff(X.clone(), X, 0.99),
        None,
        {"passed": True, "thresholds": [("cosine", 0.99, None, True)]},
        "op: cosine 0.99 is looser than the rules allow",
    ),
    "loose-with-the-runner's-reason": (
        lambda runner: runner.check_diff(X.clone(), X, 0.99),
        "fast exp",
        {"passed": True, "thresholds": [("cosine", 0.99, "fast exp", True)]},
        "",
    ),
    "each-limit-once": (
        _reasoned,
        "fast exp",
        {
            "thresholds": [
                ("cosine", 0.9, "rounds twice", True),
                ("close", 0.1, "fast exp", True),
            ]
        },
        "",
    ),
    "loose-and-wrong": (
        lambda runner: runner.check_diff(-X, X, 0.99),
        None,
        {"passed": False, "overruled": [], "thresholds": [("cosine", 0.99, None, True)]},
        "looser than the rules",
    ),
    "overruled": (
        _half,
        None,
        {
            "passed": True,
            "overruled": ["1 - cosine is 2.00e+00, allowed is 1.00e-06"],
            "metrics": {"one_minus_cosine": 2.0, "norm_ratio": 1.0, "max_abs_error": 4.0},
        },
        "passes what the check refused: 1 - cosine is 2.00e+00",
    ),
    "own-check": (
        lambda runner: (True, 0.25),
        None,
        {"passed": True, "own_check": True, "thresholds": [], "metrics": {"difference": 0.25}},
        "",
    ),
}


@pytest.mark.parametrize("case", RULES)
def test_what_the_record_says_of_a_verification(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    work, reason, expected, warned = RULES[case]
    runner = Answers("op", {})
    runner.work = lambda: work(runner)
    runner.threshold_reason = reason
    verdict = verification.verify(runner, "op", 0)
    record = verification.as_record(verdict)["verification"]
    record["thresholds"] = [tuple(entry.values()) for entry in record["thresholds"]]
    assert {key: record[key] for key in expected} == {
        key: pytest.approx(value) if key == "metrics" else value for key, value in expected.items()
    }
    said = capsys.readouterr().err
    assert warned in said and bool(warned) is bool(said)


def test_a_tensor_that_shares_memory_makes_the_case_an_error_not_a_failure() -> None:
    runner = Answers("op", {})
    runner.work = lambda: runner.check_diff(X, X)
    with pytest.raises(ValueError, match="shares memory"):
        verification.verify(runner, "op", 0)


def test_the_worst_figure_of_each_tensor_is_kept() -> None:
    runner = Answers("op", {})

    def work() -> Any:
        for factor in (1.0, 0.5, 1.2):
            runner.verify.cosine(X * factor, X, name="out")
        runner.verify.close(X * (1 + 1e-6), X, name="scale")
        runner.verify.close(X * 0.999, X, name="scale", limit=0.1)
        return runner.verify.verdict()

    runner.work = work
    metrics = verification.verify(runner, "op", 0).metrics
    assert metrics["out.norm_ratio"] == pytest.approx(0.5)
    assert metrics["scale.worst_row_scale"] == pytest.approx(0.999, abs=1e-5)
    assert metrics["scale.worst_row_error"] == pytest.approx(1e-3, abs=1e-5)


# --- bytes


class State(CaseState):
    """Only what is declared."""


@pytest.mark.parametrize(
    ("read", "written", "expected"),
    [
        ((), (), (None, None)),
        ((torch.empty(3, 5),), (), (60, None)),
        ((torch.empty(3, 5), torch.empty(7, dtype=torch.int8), 100), (8,), (167, 8)),
        ((torch.empty(8, 8)[::2, :3],), (torch.empty(4, dtype=torch.bfloat16),), (48, 8)),
        ((torch.empty(1, 8).expand(100, 8),), (torch.tensor(1.0),), (32, 4)),
        ((torch.empty(0, 8),), (torch.empty(2, 2, dtype=torch.complex64),), (0, 32)),
    ],
)
def test_moves_counts_bytes_of_tensors(
    runner: OpBenchmarkBase, read: Any, written: Any, expected: tuple[Any, Any]
) -> None:
    state = State(0)
    runner.moves(state, read=read, written=written)
    assert (state.bytes_read, state.bytes_written) == expected
    runner.moves(state, read=read, written=iter(written))
    assert state.bytes_read == (None if expected[0] is None else 2 * expected[0])
    assert state.bytes_written == (None if expected[1] is None else 2 * expected[1])


def test_moves_takes_no_lone_tensor(runner: OpBenchmarkBase) -> None:
    with pytest.raises(TypeError, match="read=\\(x,\\)"):
        runner.moves(State(0), read=torch.ones(3))


def test_timed_buffers_are_offered_by_no_runner_that_does_not_say_so(
    runner: OpBenchmarkBase,
) -> None:
    assert runner.verify_timed(0) is None
