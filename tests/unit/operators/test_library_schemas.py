"""Libraries of other ages: what the schema of the one at hand lacks is not passed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from faults import Subject, all_subjects, installed


class Older:
    """An operator with fewer arguments than today's, filled in with ``absent`` for the kernel."""

    def __init__(self, schema: str, kernel: Callable[..., Any], absent: dict[str, Any]) -> None:
        self.default = SimpleNamespace(_schema=torch._C.parse_schema(f"any::{schema}"))
        self.kernel, self.absent = kernel, absent

    def __call__(self, *args: Any) -> Any:
        names = [argument.name for argument in self.default._schema.arguments]
        return self.kernel(**dict(zip(names, args, strict=True)), **self.absent)


def _subject(name: str) -> Subject:
    return next(subject for subject in all_subjects() if str(subject) == name)


def _as(monkeypatch: pytest.MonkeyPatch, subject: Subject, older: Older) -> None:
    """``older`` answers in place of the operator that ``subject`` would install."""
    with installed(subject, subject.kernel):
        namespace, name = subject.qualified.split("::")
        monkeypatch.setattr(getattr(torch.ops, namespace), name, older)
    monkeypatch.setattr("faults.installed", lambda *_: contextlib.nullcontext())


@pytest.mark.parametrize(
    ("name", "without", "absent"),
    [
        ("vllm_topk_softmax", ", Tensor? bias", {"bias": None}),
        ("moe_align_block_size", ", Tensor? maybe_expert_map", {"maybe_expert_map": None}),
        (
            "sgl_topk_softmax",
            ", float moe_softcapping, Tensor? correction_bias",
            {"moe_softcapping": 0.0, "correction_bias": None},
        ),
        ("gptq_gemm-v1", ", bool use_v2_format", {"use_v2_format": False}),
    ],
)
def test_an_older_library_is_given_what_its_schema_has(
    monkeypatch: pytest.MonkeyPatch, name: str, without: str, absent: dict[str, Any]
) -> None:
    subject = _subject(name)
    assert without in subject.schema
    older = Older(subject.schema.replace(without, ""), subject.kernel, absent)
    _as(monkeypatch, subject, older)
    verdict = subject.verdict()
    assert verdict.passed is True, verdict.reason
    runner, _ = subject.timed()
    assert runner.verify_timed(0)[0] is True


@pytest.mark.parametrize(
    ("name", "schema", "said"),
    [
        (
            "sgl_topk_softmax",
            "topk_softmax(Tensor! topk_weights, Tensor! topk_indices, "
            "Tensor! token_expert_indices, Tensor gating_output) -> ()",
            "token_expert_indices.*add what is new",
        ),
        (
            "sgl_topk_softmax",
            "topk_softmax(Tensor! topk_weights, Tensor! topk_indices, Tensor gating_output) -> ()",
            "this library's topk_softmax takes",
        ),
        (
            "gptq_gemm-v2",
            "gptq_gemm(Tensor a, Tensor b_q_weight, Tensor b_gptq_qzeros, Tensor b_gptq_scales, "
            "Tensor b_g_idx, bool use_exllama, int bit) -> Tensor",
            "knows no v2 format",
        ),
    ],
)
def test_what_a_library_cannot_do_is_said(
    monkeypatch: pytest.MonkeyPatch, name: str, schema: str, said: str
) -> None:
    subject = _subject(name)
    _as(monkeypatch, subject, Older(schema, subject.kernel, {}))
    with pytest.raises(ValueError, match=said):
        subject.verdict()
