"""Operators found in trees of every layout, and what Python calls them by."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.author.facts import Operator
from orchestrator.author.locate import find_operators
from orchestrator.errors import MxfleetError, TreeError, UsageError

TREES = Path(__file__).parent / "trees"


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def find(tree: str, name: str, test: str | None = None, **more: object) -> list[Operator]:
    path = next((TREES / tree).rglob(f"test_{test}.py")) if test else None
    return find_operators(name, [TREES / tree], path, more.get("framework"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tree", "name", "test", "call", "imports"),
    [
        ("mcoplib", "fused_rope_fwd", "fused_rope_fwd", "op.fused_rope_fwd",
         "from mcoplib import op"),
        ("mcoplib", "silu_and_mul", "silu_and_mul", "torch.ops._C.silu_and_mul",
         "import mcoplib._C"),
        ("mcoplib", "silu_and_mul", None, "torch.ops._C.silu_and_mul", "import mcoplib._C"),
        ("mcoplib", "reshape_and_cache", None, "torch.ops._C_cache_ops.reshape_and_cache",
         "import mcoplib._C"),
        ("mcoplib", "moe_sum", None, "torch.ops._moe_C.moe_sum", "import mcoplib._moe_C"),
        ("vllm", "gelu_quick", "activation", "torch.ops._C.gelu_quick", "import vllm._C"),
        ("vllm", "gelu_quick", None, "torch.ops._C.gelu_quick", "import vllm._C"),
        ("vllm", "moe_sum", "moe_sum", "torch.ops._moe_C.moe_sum", "import vllm._moe_C"),
        ("torchlib", "segment_mean", "segment_mean", "torch.ops.blockops.segment_mean",
         "import blockops"),
        ("torchlib", "quantize_blocks", None, "torch.ops.blockops.quantize_blocks",
         "import blockops.quant"),
        ("triton", "softcap_softmax", "softcap_softmax", "softcap_softmax",
         "from rowops.softcap import softcap_softmax"),
        ("triton", "scale_", None, "scale_", "from rowops.softcap import scale_"),
    ],
)  # fmt: skip
def test_what_the_runner_calls_and_imports(
    tree: str, name: str, test: str | None, call: str, imports: str
) -> None:
    (found,) = find(tree, name, test)
    assert (found.call, found.imports) == (call, (imports,))


def test_an_operator_of_two_frameworks_is_found_in_both_the_tests_own_first() -> None:
    found = find("mcoplib", "topk_softmax", "sgl_topk_softmax")
    assert [o.framework for o in found] == ["sgl", "vllm"]
    assert [o.framework for o in find("mcoplib", "topk_softmax", "topk_softmax")] == ["vllm", "sgl"]
    (only,) = find("mcoplib", "topk_softmax", framework="vllm")
    assert only.namespace == "_moe_C"
    # Each from its own files.
    for operator in found:
        folder = "sglang" if operator.framework == "sgl" else "vllm"
        assert all(f"op/{folder}/" in place.path for place in operator.sources)


def test_a_folder_may_be_named_by_itself(tmp_path: Path) -> None:
    tree = write(
        tmp_path / "home" / "vllm" / "checkout",
        {
            "op/pybind.cpp": 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }',
            "op/f.cu": "at::Tensor f(at::Tensor x) { return x; }",
            "op/sglang/csrc/h.cu": "void h(at::Tensor& out) { out.zero_(); }",
            "op/vllm/moe/g.cu": "void g(at::Tensor& out) { out.zero_(); }",
            "include/k.h": "void k(at::Tensor& out);",
        },
    )
    for roots in ([tree], [tree / "op"], [tree / "op" / "pybind.cpp", tree / "op" / "f.cu"]):
        (found,) = find_operators("f", roots, None, None)
        # A folder far above the sources says nothing of whose they are.
        assert (found.framework, found.call) == ("mcoplib", "op.f")
    (declared,) = find_operators("g", [tree / "op" / "vllm" / "moe"], None, None)
    assert (declared.framework, declared.kind) == ("vllm", "declaration")
    assert declared.call == "torch.ops._moe_C.g" and declared.imports == ("import mcoplib._moe_C",)
    assert declared.arguments[0].mutated and "registered nowhere" in declared.todos[0].what
    (other,) = find_operators("h", [tree], None, None)
    assert (other.framework, other.call) == ("sgl", "torch.ops.sgl_kernel.h")
    (header,) = find_operators("k", [tree], None, None)
    assert (header.framework, header.call) == ("mcoplib", "op.k")


def test_the_unit_test_names_the_namespace_that_the_build_gives(tmp_path: Path) -> None:
    tree = write(
        tmp_path,
        {
            "src/b.cpp": "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) "
            '{ m.def("f(Tensor x) -> Tensor"); }',
            "test_f.py": "import torch\nimport vllm._flash_C\n"
            "def test(): torch.ops._flash_C.f(torch.ones(1))\n",
        },
    )
    (found,) = find_operators("f", [tree / "src"], tree / "test_f.py", None)
    assert (found.call, found.imports) == ("torch.ops._flash_C.f", ("import vllm._flash_C",))


def test_a_namespace_of_somebody_else_is_imported_as_the_test_does(tmp_path: Path) -> None:
    tree = write(
        tmp_path,
        {
            "b.cpp": 'TORCH_LIBRARY(mine, m) { m.def("f(Tensor x) -> Tensor"); }',
            "test_f.py": "import torch, mine\ndef test(): torch.ops.mine.f(torch.ones(1))\n",
        },
    )
    (found,) = find_operators("f", [tree], tree / "test_f.py", None)
    assert (found.framework, found.call) == ("torch", "torch.ops.mine.f")
    assert found.imports == ("import mine",)


_BINDINGS = (
    'TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) { m.def("f(Tensor! out, Tensor x) -> ()");\n'
    ' m.impl("f", torch::kCUDA, &f); }\n'
    "void f(at::Tensor& out, at::Tensor& x) { TORCH_CHECK(x.dim() == 2);\n"
    ' VLLM_DISPATCH_HALF_TYPES(x.scalar_type(), "f", [&] {}); }'
)


@pytest.mark.parametrize(
    ("wrapper", "call"),
    [
        ("def f(out, x):\n    torch.ops._C.f(out, x)", "torch.ops._C.f"),
        ("def f(out, x):\n    torch.ops._C.f.default(out, x=x)", "torch.ops._C.f"),
        ("def f(x):\n    out = torch.empty_like(x)\n    torch.ops._C.f(out, x)\n    return out",
         "ops.f"),
        ("def f(x, out):\n    torch.ops._C.f(out, x)", "ops.f"),
    ],
)  # fmt: skip
def test_a_python_wrapper_is_the_operator_where_it_takes_something_else(
    tmp_path: Path, wrapper: str, call: str
) -> None:
    tree = write(
        tmp_path,
        {
            "csrc/b.cpp": _BINDINGS,
            "vllm/__init__.py": "",
            "vllm/_custom_ops.py": f"import torch\n{wrapper}\n",
            "tests/test_f.py": "from vllm import _custom_ops as ops\n"
            "def test():\n    ops.f(1, 2)\n",
        },
    )
    (found,) = find_operators("f", [tree], tree / "tests" / "test_f.py", None)
    assert found.call == call
    # Either way it is known what the kernel requires.
    assert found.dtypes == ("bfloat16", "float16")
    assert [c.condition for c in found.constraints] == ["x.dim() == 2"]
    if call == "ops.f":
        assert found.imports == ("from vllm import _custom_ops as ops",)
        if "empty" not in wrapper:
            # What the operator's schema says of its arguments holds for the wrapper's.
            assert [(a.name, a.mutated) for a in found.arguments] == [("x", False), ("out", True)]


def test_of_several_in_a_framework_the_one_that_the_test_calls_is_meant(tmp_path: Path) -> None:
    triton = (
        "import triton\nimport triton.language as tl\n"
        "@triton.jit\ndef kernel(a, b):\n    tl.store(a, tl.load(b))\n"
        "def f(out, x):\n    kernel[(1,)](out, x)\n"
    )
    tree = write(
        tmp_path,
        {
            "csrc/b.cpp": _BINDINGS,
            "vllm/__init__.py": "",
            "vllm/triton_f.py": triton,
            "a/test_f.py": "from vllm.triton_f import f\ndef test():\n    f(1, 2)\n",
            "b/test_f.py": "import torch, vllm._C\ndef test():\n    torch.ops._C.f(1, 2)\n",
        },
    )
    both = find_operators("f", [tree], None, None)
    assert [o.kind for o in both] == ["schema", "triton"]
    (first,) = find_operators("f", [tree], tree / "a" / "test_f.py", None)
    assert (first.kind, first.call) == ("triton", "f")
    assert [a.mutated for a in first.arguments] == [True, False]
    (second,) = find_operators("f", [tree], tree / "b" / "test_f.py", None)
    assert second.call == "torch.ops._C.f"


@pytest.mark.parametrize("test", ["namesake.f(1)\n    ops.f(1, 2)", "ops.f(1, 2)"])
def test_a_namesake_is_not_what_the_test_calls(tmp_path: Path, test: str) -> None:
    tree = write(
        tmp_path,
        {
            "csrc/b.cpp": _BINDINGS,
            "vllm/__init__.py": "",
            "vllm/_custom_ops.py": "import torch\ndef f(out, x):\n    torch.ops._C.f(out, x)\n",
            "vllm/layer.py": "import torch\nfrom vllm import _custom_ops as ops\n"
            "def f(x):\n    out = torch.empty_like(x)\n    ops.f(out, x)\n    return out\n",
            "tests/test_f.py": "from vllm import _custom_ops as ops\n"
            f"import vllm.layer as namesake\nfrom vllm.layer import f\ndef test():\n    {test}\n",
        },
    )
    (found,) = find_operators("f", [tree], tree / "tests" / "test_f.py", None)
    assert found.call == "torch.ops._C.f"
    assert [a.name for a in found.arguments] == ["out", "x"]


@pytest.mark.parametrize(
    ("statement", "imported"),
    [
        ("import package.ops.rows", "package.ops.rows"),
        ("from package.ops import rows", "package.ops.rows"),
        ("from package.ops.rows import f as g", "package.ops.rows"),
        ("import ops.rows", "ops.rows"),
        ("import torch", "ops.rows"),
    ],
)
def test_a_library_operator_is_imported_as_the_test_does(
    tmp_path: Path, statement: str, imported: str
) -> None:
    text = 'import torch\n@torch.library.custom_op("mine::f", mutates_args=())\n'
    text += "def f(x: torch.Tensor) -> torch.Tensor:\n    return x * 2\n"
    test = f"import torch\n{statement}\ndef test(): torch.ops.mine.f(torch.ones(1))\n"
    tree = write(tmp_path, {"src/ops/rows.py": text, "tests/test_f.py": test})
    (found,) = find_operators("f", [tree / "src"], tree / "tests" / "test_f.py", None)
    assert found.imports == (f"import {imported}",)


def test_unit_tests_are_no_sources() -> None:
    with pytest.raises(UsageError):
        find("triton", "test_softcap_softmax")


def test_nothing_found_says_what_was_looked_for_and_what_was_meant() -> None:
    with pytest.raises(UsageError) as refused:
        find("mcoplib", "silu_and_mull")
    line = str(refused.value)
    assert "no operator called silu_and_mull" in line and "did you mean silu_and_mul?" in line
    assert "C++" in line and str(TREES / "mcoplib") in line
    with pytest.raises(UsageError) as refused:
        find("mcoplib", "topk_softmax", framework="torch")
    assert "topk_softmax is not of torch in these sources, but of" in str(refused.value)
    for name in ("", "a.b", "x y", "_C::f", "a" * 10_000 + "!"):
        with pytest.raises(UsageError):
            find_operators(name, [TREES], None, None)
    with pytest.raises(UsageError):
        find_operators("f", [TREES / "nowhere"], None, None)


def test_trees_that_fight_back(tmp_path: Path) -> None:
    tree = write(
        tmp_path,
        {
            "good.cpp": 'TORCH_LIBRARY(my, m) { m.def("f(Tensor x) -> Tensor"); }',
            "build/copy.cpp": 'TORCH_LIBRARY(built, m) { m.def("f(Tensor x) -> Tensor"); }',
            ".hidden/copy.cpp": 'TORCH_LIBRARY(hidden, m) { m.def("f(Tensor x) -> Tensor"); }',
            "broken.py": "def f(:\n",
            "open.cpp": 'TORCH_LIBRARY(open, m) { m.def("g(Tensor x) -> Tensor");\n f(((((',
            "deep.cu": "void f() " + "{" * 50_000,
            "long.cu": "f(" * 200_000,
            "quotes.h": 'R"a(' * 50_000 + "'\"" * 50_000,
            "macros.h": "#define A(x) B(x, x) B(x, x)\n#define B(x, y) A(x) A(y)\n",
            "uses.cu": '#include "macros.h"\nvoid f(at::Tensor x) { A(A(A(1))) }\n',
            "launch.cu": "void f(at::Tensor x) { " + "k<<<" * 20_000 + "}",
            "ifs.h": "#if X\n" * 20_000,
            "circle.h": '#include "circle.h"\nvoid f(at::Tensor x);',
        },
    )
    (tree / "binary.cpp").write_bytes(b"\0\1\2 f(Tensor x) -> Tensor" * 1000)
    (tree / "latin.cpp").write_bytes("// ä f\nint f = 3;".encode("latin-1"))
    (tree / "wide.cpp").write_bytes("void f(at::Tensor x);".encode("utf-16"))
    (tree / "large.cpp").write_bytes(b"f " * 3_000_000)
    (tree / "loop").symlink_to(tree)
    (tree / "self.cpp").symlink_to(tree / "self.cpp")
    (tree / "gone.cpp").symlink_to(tree / "nowhere.cpp")
    os.mkfifo(tree / "pipe.cpp")
    found = find_operators("f", [tree], None, None)
    assert [(o.namespace, o.call) for o in found] == [("my", "torch.ops.my.f")]
    (found_g,) = find_operators("g", [tree], None, None)
    assert found_g.namespace == "open"
    (tree / "good.cpp").unlink()
    # Where only a damaged file has it, that is what is told.
    only = write(tmp_path / "only", {"broken.py": "import x\ndef only_here(:\n"})
    with pytest.raises(TreeError) as refused:
        find_operators("only_here", [only], None, None)
    assert str(refused.value).startswith(f"{only}/broken.py:2: syntax error")


_NOISE = st.lists(
    st.sampled_from(
        [
            *("TORCH_LIBRARY(my, m) {", "m.def(", '"f(Tensor! x) -> ()"', ");", "}", "{", "(", ")"),
            *("void f(", "at::Tensor& x", ") {", "TORCH_CHECK(", "x.dim() == 2", "<<<1, 2>>>", ","),
            *("#define M(a, ...) a ## x #a", "\n", "#if 0\n", "#else\n", "#endif\n", "M(1, 2)"),
            *(
                "template <typename T>",
                "k(x.data_ptr<T>());",
                "[&] {",
                '"',
                "'",
                "//",
                "/*",
                "\\\n",
            ),
            *("m.impl(", "&f", "PYBIND11_MODULE(op, m)", 'py::arg("x") = {}', "switch (x.dtype())"),
            *("AT_DISPATCH_SWITCH(", "case at::kHalf:", 'R"(', ')"', "auto* p = x;", "*p = 1;"),
        ]
    ),
    max_size=40,
)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(_NOISE)
def test_any_text_is_an_operator_or_one_sentence(tmp_path: Path, pieces: list[str]) -> None:
    (tmp_path / "noise.cu").write_text(" ".join(pieces))
    try:
        found = find_operators("f", [tmp_path], None, None)
    except MxfleetError as error:
        assert "\n" not in str(error)
    else:
        assert all(operator.name == "f" for operator in found)
