"""Trials of unit tests in many hands, put together again, run on the CPU with right and wrong
kernels.

What was cut out of a test is right when a right kernel agrees with it and every wrong one does not.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from trial_kit import CASES, Case, choices, run, source_of

from orchestrator.author.facts import Trial

# Outputs that a test itself never compares: the order in which slots of an expert come.
UNSEEN = {("sgl_align", "sorted_ids")}


@pytest.fixture(scope="module")
def trials() -> dict[str, Trial]:
    return {str(case): case.trial() for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_right_kernel_agrees_with_the_reference(case: Case, trials: dict[str, Trial]) -> None:
    trial = trials[str(case)]
    assert not trial.todos
    assert trial.outputs
    ran = 0
    for values in itertools.islice(choices(trial), 4):
        found = run(trial, case.operator, case.kernel, values)
        assert found and all(agrees for agrees, _ in found), (values, found)
        ran += 1
    assert ran


def _written(case: Case) -> list[str]:
    found = [a.name for a in case.operator.arguments if a.mutated]
    found += [f"return {i}" for i in range(len(case.operator.returns))]
    return [name for name in found if (case.source, name) not in UNSEEN]


WRONG = [(case, name) for case in CASES for name in _written(case)]


@pytest.mark.parametrize(("case", "name"), WRONG, ids=lambda v: str(v))
def test_a_wrong_kernel_is_caught(case: Case, name: str, trials: dict[str, Trial]) -> None:
    trial = trials[str(case)]
    caught = False
    for values in itertools.islice(choices(trial), 4):
        found = run(trial, case.operator, _wrong(case.kernel, name), values)
        caught = caught or not all(agrees for agrees, _ in found)
    assert caught


def _wrong(kernel: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``kernel`` with one of its outputs a little off, the first row only."""

    def wrong(**arguments: Any) -> Any:
        result = kernel(**arguments)
        if name.startswith("return "):
            several = list(result) if isinstance(result, tuple) else [result]
            index = int(name.removeprefix("return "))
            several[index] = several[index].clone()
            _damage(several[index])
            return tuple(several) if isinstance(result, tuple) else several[0]
        if arguments[name] is not None:
            _damage(arguments[name])
        return result

    return wrong


def _damage(tensor: torch.Tensor) -> None:
    row = tensor[0] if tensor.dim() > 1 else tensor
    changed = row.float() * -1.5 + 0.25 if tensor.dtype.is_floating_point else row + 1
    row.copy_(changed.to(tensor.dtype))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_trial_is_whole(case: Case, trials: dict[str, Trial]) -> None:
    """Everything that the parts read is defined by them: nothing is left to chance."""
    trial = trials[str(case)]
    text = source_of(trial, case.operator)
    code = "\n".join([*trial.prepare, *trial.reference, *trial.after])
    assert not re.search(r"['\"]cuda|\.cuda\(", code)
    assert not any("vllm" in line or "mcoplib" in line for line in trial.imports)
    compiled = compile(text, "<trial>", "exec")
    assert compiled.co_names  # it defines something
    assert set(trial.arguments) <= {a.name for a in case.operator.arguments}
