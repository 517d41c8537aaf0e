"""Schemas for the rules on calls, out of sources and out of a built library's bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from authored import REPOSITORY, TREES
from check_kit import SKELETON, Tree

from orchestrator.author.check import check_tree
from orchestrator.author.check.known import known_operators
from orchestrator.errors import TreeError, UsageError


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "benchmark")


def library(folder: Path, *schemas: str, name: str = "_C.abi3.so") -> Path:
    """A shared object as far as its strings go."""
    path = folder / name
    path.write_bytes(b"\x7fELF\x02\x01" + b"\0".join(s.encode() for s in ("", *schemas, "")))
    return path


def test_nothing_to_look_in() -> None:
    assert known_operators([], []) is None


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        known_operators([tmp_path / "x"], [])
    with pytest.raises(UsageError, match="no such file"):
        known_operators([], [tmp_path / "x.so"])
    text = tmp_path / "x.so"
    text.write_text("no library")
    with pytest.raises(TreeError):
        known_operators([], [text])


@pytest.mark.parametrize("as_source", [False, True])
def test_a_library_tells_what_is_missing(tree: Tree, tmp_path: Path, as_source: bool) -> None:
    built = library(tmp_path, "my_op(Tensor x, Tensor y, Tensor! out, int topK) -> ()")
    known = known_operators([built], []) if as_source else known_operators([], [built])
    found = tree.check(known=known)
    assert {one.message for one in found} == {"my_op: missing value for argument 'topK'"}
    assert "_C.abi3.so" in found[0].fix


def test_a_library_does_not_tell_which_of_its_namespaces(tree: Tree, tmp_path: Path) -> None:
    tree.runner(SKELETON.replace("torch.ops._C.my_op", "torch.ops._C_cache_ops.my_op"))
    known = known_operators([], [library(tmp_path, "my_op(Tensor x, Tensor y, Tensor! o) -> ()")])
    assert tree.check(known=known) == []
    known = known_operators([], [library(tmp_path, "my_op(Tensor x, Tensor y) -> ()")])
    assert tree.rules(known=known) == ["too-many-arguments"] * 2


def test_a_library_goes_before_the_source_of_the_same_operator(tree: Tree, tmp_path: Path) -> None:
    source = tmp_path / "op" / "vllm" / "torch_bindings.cpp"
    source.parent.mkdir(parents=True)
    source.write_text(
        "#include <torch/library.h>\nTORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {\n"
        '  ops.def("my_op(Tensor x, Tensor y, Tensor! out, int k) -> ()");\n}\n'
    )
    assert tree.rules(known=known_operators([tmp_path / "op"], [])) == ["missing-argument"] * 2
    built = library(tmp_path, "my_op(Tensor x, Tensor y, Tensor! out) -> ()")
    assert tree.rules(known=known_operators([tmp_path / "op"], [built])) == []


def test_shipped_runners_against_sources_in_small() -> None:
    known = known_operators([TREES / "mcoplib"], [])
    found = check_tree(REPOSITORY / "benchmark", known=known)
    # These sources have the operator of a later vLLM, without what is block-sparse.
    assert {(one.rule, one.operator) for one in found} == {
        ("too-many-arguments", "paged_attention_v1")
    }


def test_sources_that_are_no_code(tree: Tree, tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    odd.mkdir()
    (odd / "my_op.cu").write_bytes(b"\xff\xfe my_op( \x00" + b"{" * 100_000)
    (odd / "my_op.py").write_bytes(b"def my_op(" + b"(" * 5000)
    (odd / "loop").symlink_to(odd)
    assert tree.check(known=known_operators([odd], [])) == []
