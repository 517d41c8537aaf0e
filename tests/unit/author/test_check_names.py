"""Config, runner, whitelist entry and class: one of each, under one name."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_kit import CONFIG, SKELETON, Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_the_description_s_own_example_is_clean(tree: Tree) -> None:
    assert [str(one) for one in tree.everything()] == []


def test_a_runner_under_a_near_name(tree: Tree) -> None:
    tree.runner_path().rename(tree.runner_path("my_opp"))
    found = {one.rule: one for one in tree.check()}
    assert set(found) == {"missing-config", "missing-runner"}
    assert found["missing-runner"].at.path.endswith("config/my_op.json")
    assert 'did you mean "my_opp"?' in found["missing-runner"].fix
    assert 'did you mean "my_op"?' in found["missing-config"].fix


def test_a_config_in_another_case(tree: Tree) -> None:
    tree.config_path().rename(tree.config_path("My_op"))
    found = {one.rule: one for one in tree.check()}
    assert 'did you mean "My_op"?' in found["missing-config"].fix


def test_a_config_alone_has_no_guess(tree: Tree) -> None:
    tree.config(CONFIG, "something_else")
    assert tree.only("missing-runner").fix.startswith("write ")


@pytest.mark.parametrize(
    "name",
    ["mcoplib_mxbenchmark_my_op_runner.py", "my_op_runners.py", "mcoplib_mxbenchmark_my_op.py"],
)
def test_a_runner_file_that_the_harness_never_finds(tree: Tree, name: str) -> None:
    tree.runner_path().rename(tree.folder / "runners" / name)
    found = {one.rule: one for one in tree.check()}
    assert found["runner-name"].at.path.endswith(name)
    assert "mcoplib_mxbenchmark_my_op_runners.py" in found["runner-name"].fix


@pytest.mark.parametrize(
    "name", ["__init__.py", "common.py", "attention_reference.py", "notes.txt"]
)
def test_other_files_beside_runners_are_nobody_s_fault(tree: Tree, name: str) -> None:
    (tree.folder / "runners" / name).write_text("class Shared:\n    pass\n")
    assert tree.check() == []


def test_a_module_without_a_runner_class(tree: Tree) -> None:
    tree.runner("import torch\n\nclass My_op_runner:\n    pass\n")
    assert "no-runner-class" in tree.rules()


@pytest.mark.parametrize(
    "head",
    [
        "import mcoplib_mxbenchmark_op_wrapper as w\nclass A(w.OpBenchmarkBase):\n",
        "from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase as Base\nclass A(Base):\n",
        "from mcoplib_mxbenchmark_shared import TopkBase\nclass A(TopkBase):\n",
        "from helpers import TopkBase\nclass A(TopkBase):\n",
        "from helpers import *\nclass A(TopkBase):\n",
        "from x import make\nA = make()\nclass B(make()):\n",
        "def make():\n    class A:\n        pass\n    return A\nclass B(make()):\n",
    ],
)
def test_a_class_that_may_derive(tree: Tree, head: str) -> None:
    tree.runner(f"{head}    pass\n")
    assert "no-runner-class" not in tree.rules()


def test_several_classes_of_which_one_runs(tree: Tree) -> None:
    tree.runner(SKELETON + "\n\nclass Second(My_op_runner):\n    pass\n")
    finding = tree.only("several-runner-classes")
    assert finding.severity == "warning"
    assert finding.message.startswith("Second never runs: My_op_runner in line ")
    assert finding.at.line == SKELETON.count("\n") + 3


def test_a_plain_helper_class_is_no_second_runner(tree: Tree) -> None:
    tree.swap(
        "class My_op_runner(OpBenchmarkBase)",
        "class Mixin:\n    pass\n\n\nclass My_op_runner(Mixin, OpBenchmarkBase)",
    )
    assert tree.check() == []
