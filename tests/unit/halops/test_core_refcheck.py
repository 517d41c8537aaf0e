"""What the reference check refuses: a wrong row, NaN, what was never written."""

from __future__ import annotations

import math

import pytest
import torch
from core import refcheck


def _reference() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(500, 4, 64, generator=generator, dtype=torch.float64)


def test_a_rounded_output_passes() -> None:
    ref = _reference()
    verdict = refcheck.check(ref.to(torch.bfloat16), ref, "bf16", poisoned=True)
    assert verdict.passed, verdict.reason
    record = verdict.as_record()
    assert record is not None
    assert record["poisoned"] is True


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("both", [False, True])
def test_what_is_not_finite_never_passes(value: float, both: bool) -> None:
    ref = _reference()
    out = ref.to(torch.bfloat16)
    out[7, 1, 3] = value
    if both:
        ref[7, 1, 3] = value
    assert refcheck.check(out, ref, "bf16", poisoned=True).passed is False


def test_one_wrong_row_of_two_thousand_fails() -> None:
    ref = _reference()
    out = ref.to(torch.bfloat16)
    out[250, 2] = -out[250, 2]
    verdict = refcheck.check(out, ref, "bf16", poisoned=True)
    assert verdict.passed is False
    assert verdict.reason is not None
    assert "250" in verdict.reason


def test_a_row_of_a_small_scale_is_held_to_its_own() -> None:
    ref = _reference()
    ref[3, 0] *= 1e-3
    out = ref.to(torch.bfloat16)
    out[3, 0] *= 1.5
    assert refcheck.check(out, ref, "bf16", poisoned=True).passed is False


def test_an_output_that_is_kept_is_poisoned_before_it_is_checked() -> None:
    out = torch.zeros(64, 8)
    calls = []

    def writes_half_the_second_time() -> torch.Tensor:
        calls.append(1)
        out[: 64 if len(calls) == 1 else 32] = 1.0
        return out

    found, poisoned = refcheck.fresh_output(writes_half_the_second_time)
    assert poisoned
    assert bool(found[32:].isnan().all())
    assert refcheck.check(found, torch.ones(64, 8), "fp32", poisoned=poisoned).passed is False


def test_an_output_elsewhere_is_not_called_poisoned() -> None:
    kept = [torch.ones(4), torch.ones(4)]
    outputs = iter(kept)
    _, poisoned = refcheck.fresh_output(lambda: next(outputs))
    assert not poisoned


def test_two_verdicts_pass_together_only() -> None:
    ref = _reference()
    good = refcheck.check(ref.clone(), ref, "fp64", poisoned=True)
    bad = refcheck.check(ref * 2, ref, "fp64", poisoned=True)
    assert refcheck.worse(good, good).passed is True
    assert refcheck.worse(good, bad).passed is False
    assert refcheck.worse(good, bad).reason == bad.reason
    assert refcheck.worse(good, refcheck.unverified("none")).passed is None
