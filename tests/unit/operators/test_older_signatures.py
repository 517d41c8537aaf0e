"""Operators whose schema has grown: the runners pass what the registered one takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from faults import Subject, all_subjects
from harness import verification

OLDER = {
    "swap_blocks": "swap_blocks(Tensor src, Tensor! dst, Tensor block_mapping) -> ()",
    "merge_attn_states": (
        "merge_attn_states(Tensor! output, Tensor(b!)? output_lse, Tensor prefix_output, "
        "Tensor prefix_lse, Tensor suffix_output, Tensor suffix_lse) -> ()"
    ),
}


def _older_kernel(subject: Subject) -> Any:
    if subject.op == "merge_attn_states":
        return lambda *args: subject.kernel(*args, None)

    def swap_blocks(src: torch.Tensor, dst: torch.Tensor, block_mapping: torch.Tensor) -> None:
        subject.kernel(src, dst, src[0].numel() * src.element_size(), block_mapping)

    return swap_blocks


class _Packet:
    """What torch.ops gives for an operator, with the older schema."""

    def __init__(self, subject: Subject) -> None:
        schema = torch._C.parse_schema(f"any::{OLDER[subject.op]}")
        self.default = SimpleNamespace(_schema=schema)
        self._taken = len(schema.arguments)
        self._kernel = _older_kernel(subject)

    def __call__(self, *args: Any) -> None:
        assert len(args) == self._taken
        self._kernel(*args)


@pytest.mark.parametrize("subject", [s for s in all_subjects() if s.op in OLDER], ids=str)
def test_the_older_signature_is_served_too(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = getattr(torch.ops, subject.namespace)
    monkeypatch.setattr(namespace, subject.op, _Packet(subject), raising=False)
    runner = subject.runner()
    verdict = verification.verify(runner, subject.op, 0)
    assert verdict.passed is True, verdict.reason
    launcher = runner.prepare_and_get_launcher(0, None)
    launcher(None)
    answer = runner.verify_timed(0)
    assert answer is not None and answer[0] is True
