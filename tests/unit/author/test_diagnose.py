"""What is said of a generated benchmark that fails: the output, the argument, the step."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from emit_kit import activation, made, our_tree, runner

from orchestrator.author.diagnose import explain
from orchestrator.author.facts import Constraint, Draft, Place
from orchestrator.events import Row

RUNNER = "runners/mcoplib_mxbenchmark_silu_and_mul_runners.py"


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Draft:
    op, tested = activation()
    checked = Constraint("input.dim() == 2", "input must have two dimensions", Place("it.cu", 9))
    op = dataclasses.replace(op, constraints=(checked,))
    return made(our_tree(tmp_path_factory.mktemp("tree")), (op, tested))


def line_of(draft: Draft, text: str) -> int:
    return runner(draft).split(text)[0].count("\n") + 1


def row(status: str = "FAILED", **more: Any) -> Row:
    return Row("silu_and_mul", "here", status, **more)


def output(**more: Any) -> dict[str, Any]:
    elements = [
        {"index": [3, 1], "got": 2.0, "expected": 1.0, "abs_error": 1.0, "rel_error": 1.0},
        {"index": [0, 7], "got": "nan", "expected": 1.0, "abs_error": None, "rel_error": None},
    ]
    plain = {"shape": [4, 8], "dtype": "bfloat16"}
    expected = {f"expected_{key}": value for key, value in plain.items()}
    told = {"output": "result", "reason": "it differs", "elements": elements}
    return {**told, **plain, **expected, **more}


def test_the_first_element_and_the_reference_are_named(draft: Draft) -> None:
    (said,) = explain(row(worst=(output(),)), [draft])
    compared = line_of(draft, 'name="result"')
    reference = line_of(draft, "def _ref_silu_and_mul")
    assert said == (
        f"{RUNNER}:{compared}: result (4 8) bfloat16 differs from _ref_silu_and_mul "
        f"({RUNNER}:{reference}), first seen at [0 7]: nan where 1.0 is expected"
    )


def test_another_shape_is_what_is_wrong(draft: Draft) -> None:
    (said,) = explain(row(worst=(output(expected_shape=[4, 9]),)), [draft])
    assert "result is (4 8) bfloat16 where the reference has (4 9) bfloat16" in said
    assert "_prepare" in said


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [(5, 0, "the operator leaves 5 values of result"), (0, 9, "makes 9 values")],
)
def test_whose_nan_it_is_and_where_it_begins(
    draft: Draft, theirs: int, ours: int, expected: str
) -> None:
    reason = f"{theirs} of 32 output values and {ours} reference values are not finite"
    said = explain(row(worst=(output(reason=reason),)), [draft])
    assert len(said) == 2 and expected in said[1] and "from [0 7] on" in said[1]


def test_an_argument_of_the_schema_is_named_with_its_place(draft: Draft) -> None:
    message = "_C::silu_and_mul() is missing value for argument 'input'. Declaration: ..."
    (said,) = explain(row("ERROR", message=message), [draft])
    assert said == (
        "it concerns input, which torch.ops._C.silu_and_mul takes as Tensor (op/vllm/it.cu:40)"
    )


def test_a_check_of_the_operators_is_recognised(draft: Draft) -> None:
    message = "RuntimeError: input must have two dimensions, not 3"
    (said,) = explain(row("ERROR", message=message), [draft])
    assert said == "the operator checks input.dim() == 2 at it.cu:9"


def test_the_operators_call_is_shown_as_it_was_made(draft: Draft) -> None:
    line = line_of(draft, "torch.ops._C.silu_and_mul(out, x)")
    printed = [f'  File "/store/{RUNNER}", line {line}, in run_verification']
    (said,) = explain(row("ERROR", message="RuntimeError: no"), [draft], printed)
    assert said == f"{RUNNER}:{line}: raised by the operator, called with result=out, input=x"


def test_what_the_runner_itself_raised_is_shown(draft: Draft) -> None:
    line = line_of(draft, "x = torch.randn(")
    printed = [f'File "/a/{RUNNER}", line 1', f'File "/a/{RUNNER}", line {line}, in _prepare']
    (said,) = explain(row("ERROR"), [draft], printed)
    assert f"{RUNNER}:{line}: raised in _prepare, not in the operator: x = torch.randn" in said


def test_the_same_is_said_once_and_nothing_of_others(draft: Draft) -> None:
    assert len(explain(row(worst=(output(), output())), [draft])) == 1
    assert explain(row("PASSED"), [draft]) == []
    assert explain(dataclasses.replace(row(), op="other"), [draft]) == []
    printed = [f'File "/a/{RUNNER}", line 99999']
    assert explain(row("ERROR"), [draft], printed) == []


def test_the_tree_is_not_needed(draft: Draft) -> None:
    assert not Path(RUNNER).exists()
