"""The dtype of a row is the dtype of the data: what the configuration names is what is measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from emit_kit import DTYPE, close, config, made, operator, our_tree, parameter, runner, trial

from orchestrator.author.facts import Operator, Trial
from orchestrator.errors import UsageError


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return our_tree(tmp_path_factory.mktemp("ours"))


def _double(prepare: str, *parameters: Any, **more: Any) -> tuple[Operator, Trial]:
    op = operator("double_it", "out!: Tensor", "x: Tensor")
    tested = trial(
        prepare,
        "expected = x * 2",
        parameters=(parameter("b", "4", "64"), *parameters),
        arguments={"out": "out", "x": "x"},
        outputs=(close("out", "expected"),),
        device_names=("device",),
        **more,
    )
    return op, tested


DEFAULT = """
x = torch.randn(b, 32, device=device)
out = torch.empty(b, 32, device=device)
"""
HELPER = {
    "prepare": "x, out = make(b)",
    "helpers": ("def make(b):\n    return torch.randn(b, 32), torch.empty(b, 32)",),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_data_without_a_dtype_has_the_case_s(ours: Path, dtype: str) -> None:
    draft = made(ours, _double(DEFAULT), settings={"dtype": dtype})
    assert "torch.randn(self.b, 32, device=device, dtype=self.dtype)" in runner(draft)
    assert "torch.empty(self.b, 32, device=device, dtype=self.dtype)" in runner(draft)
    assert json.loads(config(draft))["dtype"] == dtype


def test_whole_numbers_stay_whole_numbers(ours: Path) -> None:
    text = runner(made(ours, _double(f"{DEFAULT}\nx[torch.randperm(b)] += torch.arange(32)")))
    assert "torch.randperm(self.b)" in text
    assert "torch.arange(32)" in text


FIXED: dict[str, Callable[[], tuple[Operator, Trial]]] = {
    "a helper of the test makes it": lambda: _double(**HELPER),  # type: ignore[arg-type]
    "the test's dtype goes nowhere": lambda: _double(
        HELPER["prepare"], DTYPE, helpers=HELPER["helpers"]
    ),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", FIXED)
def test_data_of_one_dtype_refuses_others(ours: Path, what: str) -> None:
    draft = made(ours, FIXED[what]())
    assert json.loads(config(draft))["dtype"] == "float32"
    assert "if self.dtype is not torch.float32:\n            raise ValueError(" in runner(draft)
    with pytest.raises(UsageError, match="float32 alone, not in bfloat16"):
        made(ours, FIXED[what](), settings={"dtype": "bfloat16"})
    assert json.loads(config(made(ours, FIXED[what](), settings={"dtype": "float32"})))


def test_data_of_whole_numbers_is_not_called_bfloat16(ours: Path) -> None:
    prepare = """
    x = torch.randint(0, 9, (b, 32), dtype=torch.int32)
    out = torch.empty(b, 32, dtype=torch.int32)
    """
    draft = made(ours, _double(prepare))
    assert json.loads(config(draft))["dtype"] == "int32"
    assert "if self.dtype is not torch.int32:" in runner(draft)
    with pytest.raises(UsageError, match="int32 alone"):
        made(ours, _double(prepare), settings={"dtype": ["int32", "float16"]})


@pytest.mark.parametrize(
    ("settings", "message", "hint"),
    [
        ({"dtype": "bf16"}, "no dtype of torch", "did you mean bfloat16?"),
        ({"dtype": ["float16", "flaot32"]}, "'flaot32'", "did you mean float32?"),
        ({"dtype": 16}, "no dtype of torch", "for example"),
        ({"b": "many"}, "b is 'many', and the unit test has a whole number there", "--set b=64"),
        ({"b": [16, "x"]}, "a whole number", "--set b=64"),
        ({"b": True}, "a whole number", "--set b=64"),
        ({"b": 4.5}, "a whole number", "--set b=64"),
        ({"b": []}, "nothing to measure", ""),
        ({"b": [[16, 4]]}, "a whole number", "--set b=64"),
        ({"b": {"x": 1}}, "a whole number", "--set b=64"),
        ({"b": "Infinity"}, "a whole number", "--set b=64"),
        ({"scale": float("inf")}, "scale is inf, and the unit test has a number", ""),
        ({"scale": "NaN"}, "scale is 'NaN'", ""),
        ({"bias": {"x": 1}}, "bias is {'x': 1}, and the unit test has a plain value", ""),
        ({"bias": [1, [2]]}, "bias is [2]", ""),
        ({"bias": float("nan")}, "bias is nan", ""),
        ({"dtype": "foo"}, "no dtype of torch", ""),
        ({"dtype": []}, "nothing to measure", ""),
        ({"device_name": []}, "neither a name nor a list of names", "MetaX C500"),
        ({"device_name": 3}, "neither a name nor a list of names", ""),
        ({"device_name": ""}, "neither a name nor a list of names", ""),
        *(
            ({"samples": value}, "no whole number above 0", "")
            for value in ("lots", -3, 0, True, 20.5, [100], None)
        ),
    ],
)
def test_what_is_set_has_to_fit(
    ours: Path, settings: dict[str, Any], message: str, hint: str
) -> None:
    more = (parameter("scale", "0.5"), parameter("bias", "None"))
    with pytest.raises(UsageError) as caught:
        made(ours, _double(DEFAULT, *more), settings=settings)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
