"""A dtype that the data does not have, in several spellings, and what only looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_kit import CONFIG, SKELETON, Tree
from seeded.trees import Seed, check_clean, check_seed, seed

UNUSED, SUMMARY = "dtype-unused", "dtype-summary"
_SAID = 'self.config.get("dtype", str(self.dtype))'
_MADE = "dtype=self.dtype, device=dev"

SEEDS = [
    seed(SUMMARY, "my_op", (_SAID, '"float16"')),
    seed(SUMMARY, "my_op", (_SAID, '"torch.float32"')),
    seed(SUMMARY, "my_op", (_SAID, '"fp16"')),
    seed(SUMMARY, "my_op", (_SAID, '"bf16"'), config={"dtype": ["bfloat16", "float16"]}),
]
# What is found in a config has no line of the runner.
UNUSED_MADE = ["device=dev", "dtype=torch.float16, device=dev", "dtype=None, device=dev"]


@pytest.mark.parametrize("planted", SEEDS, ids=str)
def test_found(tmp_path: Path, planted: Seed) -> None:
    check_seed(tmp_path, planted)


@pytest.mark.parametrize("made", UNUSED_MADE)
@pytest.mark.parametrize("dtype", ["bfloat16", ["float32", "bfloat16"]])
def test_a_dtype_that_no_data_has(tmp_path: Path, made: str, dtype: object) -> None:
    tree = Tree(tmp_path)
    tree.runner(SKELETON.replace(_MADE, made))
    tree.config({**CONFIG, "dtype": dtype})
    found = [one for one in tree.everything() if one.rule == UNUSED]
    assert [(one.at.line, one.severity) for one in found] == [(6, "error")]
    assert found[0].message == "the data does not depend on dtype, which is bfloat16"


CLEAN = [
    seed(SUMMARY, "my_op", (_SAID, '"bfloat16"')),
    seed(SUMMARY, "my_op", (_SAID, '"bf16"')),
    seed(SUMMARY, "my_op", (_SAID, '"w4a16"')),
]


@pytest.mark.parametrize("look_alike", CLEAN, ids=str)
def test_not_found(tmp_path: Path, look_alike: Seed) -> None:
    check_clean(tmp_path, look_alike)


@pytest.mark.parametrize(
    ("made", "dtype"),
    [
        ("device=dev", "float32"),
        ("dtype=torch.int32, device=dev", "int32"),
        ("**self._kind(self.dtype)", "bfloat16"),
        ("dtype=pick(self), device=dev", "bfloat16"),
    ],
)
def test_data_that_has_it_all_the_same(tmp_path: Path, made: str, dtype: str) -> None:
    tree = Tree(tmp_path)
    tree.runner(SKELETON.replace(_MADE, made))
    tree.config({**CONFIG, "dtype": dtype})
    assert UNUSED not in [one.rule for one in tree.everything()]


def test_a_constructor_that_refuses_others_is_enough(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    begin = "        super().__init__(name, config)\n"
    refuse = "        if self.dtype is not torch.float32:\n            raise ValueError(name)\n"
    tree.runner(SKELETON.replace(_MADE, "device=dev").replace(begin, begin + refuse))
    assert UNUSED not in [one.rule for one in tree.everything()]
