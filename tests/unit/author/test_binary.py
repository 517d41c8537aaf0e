"""Schemas in built libraries."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.author import binary
from orchestrator.errors import TreeError

_SOURCE = r"""
const char* schemas[] = {
  "silu_and_mul(Tensor! result, Tensor input) -> ()",
  "other::norm.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
  "topk(Tensor x,\n     int k=3) -> (Tensor values, Tensor indices)",
  "f(x) -> (y) is a message", "expected (Tensor) -> Tensor", ") -> ", "a(int x) -> ", "()",
  "silu_and_mul(Tensor! result, Tensor input) -> ()" "\0",
};
extern "C" const char* pick(int i) { return schemas[i]; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("library")
    (folder / "lib.cpp").write_text(_SOURCE)
    made = folder / "_moe_C.abi3.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-o", made, folder / "lib.cpp"], check=True)
    return made


def test_a_built_library_gives_its_schemas(library: Path) -> None:
    found = binary.schemas(library)
    assert {space: [s.name for s in some] for space, some in found.items()} == {
        "_moe_C": ["silu_and_mul", "topk"],
        "other": ["norm"],
    }
    first = found["_moe_C"][0]
    assert [(a.name, a.mutated) for a in first.arguments] == [("result", True), ("input", False)]


def test_the_namespace_is_that_of_the_package(library: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sgl_kernel"
    folder.mkdir()
    shutil.copy(library, folder / "common_ops.abi3.so")
    assert set(binary.schemas(folder / "common_ops.abi3.so")) == {"sgl_kernel", "other"}


def test_torchs_own_library_has_its_operators() -> None:
    torch = pytest.importorskip("torch")
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not path.exists():
        pytest.skip("torch is built otherwise")
    read = {(s.name, s.overload): s for some in binary.schemas(path).values() for s in some}
    # Those of the kernels' own table, whatever they are called here.
    registered = [
        each for each in torch._C._jit_get_all_schemas() if each.name.startswith("aten::")
    ]
    native = [s for s in registered if s.arguments and "Tensor" in str(s.arguments[0].type)]
    seen = [s for s in native if (s.name.removeprefix("aten::"), s.overload_name) in read]
    assert len(seen) > 0.9 * len(native)
    differing = []
    for theirs in seen:
        ours = read[theirs.name.removeprefix("aten::"), theirs.overload_name]
        if [a.name for a in ours.arguments] != [a.name for a in theirs.arguments]:
            differing.append(str(theirs))
    # Some strings are those of fallbacks, which name their arguments otherwise.
    assert len(differing) < 0.02 * len(seen), differing


@settings(deadline=None)
@given(st.binary(max_size=400), st.lists(st.sampled_from([b") -> ", b"\0", b"f(", b"Tensor x"])))
def test_any_bytes_end_without_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, pieces: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("noise") / "lib.so"
    path.write_bytes(b"\x7fELF" + noise.join(pieces) + noise)
    for some in binary.schemas(path).values():
        assert all(each.name for each in some)


def test_a_schema_beside_an_endless_string_is_found(tmp_path: Path) -> None:
    path = tmp_path / "_C.so"
    junk = b"x" * 3_000_000
    schema = b"\0ok(Tensor x) -> Tensor\0"
    path.write_bytes(b"\x7fELF" + junk + schema + junk + b") -> " + junk)
    assert [s.name for s in binary.schemas(path)["_C"]] == ["ok"]


@pytest.mark.parametrize("content", [b"", b"\x7f", b"#!/bin/sh\n", b"def f(): pass\n"])
def test_what_is_no_library_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(content)
    with pytest.raises(TreeError) as refused:
        binary.schemas(path)
    assert str(refused.value).startswith(f"{path}: no shared object")
    with pytest.raises(TreeError):
        binary.schemas(tmp_path / "missing.so")
    with pytest.raises(TreeError):
        binary.schemas(tmp_path)
