"""Comparisons and verdicts that arithmetic or Python's truth values would let pass."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest
import torch
from harness import verification
from harness.base import OpBenchmarkBase
from harness.checks import compare

NOISE = torch.rand(64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
ONES = torch.ones(64, dtype=torch.float64)


@pytest.mark.parametrize("scale", [1e200, 1.5e308, 1e-200, 5e-310, 1e-323])
def test_magnitude_hides_no_wrong_value(scale: float) -> None:
    wrong = compare(ONES * scale, NOISE * -scale, 0.999999)
    assert not wrong.passed and wrong.difference > 0.1
    assert compare(ONES * scale, ONES * scale, 1.0).passed
    assert not compare(ONES * scale, ONES * scale / 2, 0.999999).passed


@pytest.mark.parametrize(
    ("out", "ref"),
    [
        pytest.param(ONES * 1e-200, NOISE * -1e-170, id="squares-vanish"),
        pytest.param(ONES * 1e300, ONES * 1e-300, id="ratio-overflows"),
        pytest.param(ONES * 1e-300, ONES * 1e300, id="ratio-vanishes"),
        pytest.param(torch.zeros(64, dtype=torch.float64), ONES * 1e-300, id="zero-is-not-tiny"),
    ],
)
def test_far_apart_does_not_pass_and_its_figures_are_finite(
    out: torch.Tensor, ref: torch.Tensor
) -> None:
    result = compare(out, ref, 0.5)
    assert not result.passed and result.reason
    assert all(value is None or math.isfinite(value) for value in result.metrics().values())


@pytest.mark.parametrize("threshold", [math.nan, math.inf, -math.inf, 0.0, -1.0, 1.0000001])
def test_a_threshold_outside_its_range_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match=r"is not in \(0, 1\]"):
        compare(ONES, ONES, threshold)
    with pytest.raises(ValueError, match=r"is not in \(0, 1\]"):
        OpBenchmarkBase("op", {}).check_diff(ONES, ONES.clone(), threshold=threshold)


@pytest.mark.parametrize(
    ("out", "ref", "passed"),
    [
        (torch.bfloat16, torch.float64, True),
        (torch.float16, torch.float32, True),
        (torch.float8_e4m3fn, torch.bfloat16, True),
        (torch.int8, torch.int32, True),
        (torch.bool, torch.int64, True),
        (torch.complex64, torch.complex128, True),
        (torch.bool, torch.float32, False),
        (torch.float32, torch.bool, False),
        (torch.int8, torch.float32, True),  # quantised, its reference not rounded
        (torch.float16, torch.int32, True),
        (torch.complex64, torch.float32, False),
        (torch.float64, torch.complex64, False),
    ],
)
def test_which_dtypes_are_compared(out: torch.dtype, ref: torch.dtype, passed: bool) -> None:
    result = compare(torch.ones(8).to(out), torch.ones(8).to(ref), 0.999999)
    assert result.passed is passed
    assert passed or f"{out} output against a {ref} reference" in str(result.reason)


@pytest.mark.parametrize("shape", [(0,), (4, 0), (0, 3, 2)])
def test_empty_outputs_verify_nothing(shape: tuple[int, ...]) -> None:
    result = compare(torch.empty(shape), torch.empty(shape), 0.9)
    assert not result.passed and "empty" in str(result.reason)


class Answers(OpBenchmarkBase):
    """A runner whose verification says what the test wants."""

    device_type = "cpu"
    answer: Any = None

    def run_verification(self, dev_id: int) -> Any:
        return self.answer


def _verify(answer: Any) -> verification.Verdict:
    runner = Answers("op", {})
    runner.answer = answer
    return verification.verify(runner, "op", 0)


@pytest.mark.parametrize(
    ("passed", "expected"),
    [
        (True, True),
        (False, False),
        (torch.tensor(True), True),
        (torch.tensor(False), False),
        (numpy.bool_(True), True),
        (numpy.bool_(False), False),
    ],
)
def test_a_bool_of_python_torch_or_numpy_is_a_verdict(passed: Any, expected: bool) -> None:
    assert _verify((passed, 0.0)).passed is expected


@pytest.mark.parametrize(
    "passed",
    ["False", "", 1, 0, 1.0, None, [], (False,), torch.tensor([False, True]), torch.tensor(1.0)],
    ids=repr,
)
def test_what_is_no_bool_is_no_verdict(passed: Any) -> None:
    with pytest.raises(TypeError, match="for passed, which is no bool"):
        _verify((passed, 0.0))


@pytest.mark.parametrize("difference", ["0.0", True, b"0", None, [0.0]], ids=repr)
def test_what_is_no_number_is_no_difference(difference: Any) -> None:
    with pytest.raises(TypeError):
        _verify((True, difference))


@pytest.mark.parametrize("difference", [math.nan, math.inf, torch.tensor(math.nan)], ids=repr)
def test_a_pass_with_a_broken_difference_fails(difference: Any) -> None:
    assert _verify((True, difference)).passed is False
