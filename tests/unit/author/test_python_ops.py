"""Operators in Python: functions, Triton wrappers, torch.library."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from orchestrator.author import python_ops
from orchestrator.author.python_ops import PythonOperator
from orchestrator.errors import TreeError


def look(source: str, name: str = "f", written_by=None) -> PythonOperator:
    (found,) = python_ops.find(Path("ops.py"), dedent(source), name, written_by)
    return found


def arguments(found: PythonOperator) -> list[tuple[str, str, str | None]]:
    return [(a.name, a.type, a.default) for a in found.arguments]


def mutated(found: PythonOperator) -> str:
    return " ".join(a.name for a in found.arguments if a.mutated)


def test_types_and_defaults_are_those_of_schemas() -> None:
    found = look(
        """
        def f(a: torch.Tensor, b: Optional[torch.Tensor], c: "Tensor | None" = None, d: int = -1,
              e: float = 1e-6, g: list[int] = [1, 2], h: torch.dtype = torch.float16, i=None, j=3,
              *, k: str = "x", l: bool, m: tuple[torch.Tensor, ...], n: int | float = 1,
              o: Union[int, None] = None) -> tuple[torch.Tensor, int]: ...
        """
    )
    assert arguments(found) == [
        *(("a", "Tensor", None), ("b", "Tensor?", None), ("c", "Tensor?", "None")),
        *(("d", "int", "-1"), ("e", "float", "1e-06"), ("g", "int[]", "[1, 2]")),
        *(("h", "ScalarType", "torch.float16"), ("i", "Any?", "None"), ("j", "Any", "3")),
        *(("k", "str", "'x'"), ("l", "bool", None), ("m", "Tensor[]", None)),
        *(("n", "Scalar", "1"), ("o", "int?", "None")),
    ]
    assert [a.name for a in found.arguments if a.keyword_only] == ["k", "l", "m", "n", "o"]
    assert found.returns == ("Tensor", "int")
    assert found.kind == "python"


@pytest.mark.parametrize(
    ("body", "returns"),
    [
        ("return x", ("Any",)),
        ("return x, y", ("Any", "Any")),
        ("return", ()),
        ("x.add_(1)", ()),
        ("def inner():\n        return 3\n    inner()", ()),
    ],
)
def test_what_is_returned_without_an_annotation(body: str, returns: tuple[str, ...]) -> None:
    assert look(f"def f(x, y):\n    {body}\n").returns == returns


@pytest.mark.parametrize(
    ("body", "written"),
    [
        ("x.copy_(y)", "x"),
        ("x[0] = y", "x"),
        ("x += y", "x"),
        ("x = x + y", ""),
        ("torch.add(y, 1, out=x)", "x"),
        ("torch.split(y, 2, out=(x, z))", "x z"),
        ("v = x.view(-1); v[1:].zero_()", "x"),
        ("v, w = x.unbind(0), y; v.zero_()", "x"),
        ("v = x + 1; v.zero_()", ""),
        ("v = x.clone(); v.zero_()", ""),
        ("if x is None:\n        x = torch.empty(1)\n        x.zero_()\n    y.zero_()", "y"),
        ("if x is None:\n        x = torch.empty(1)\n    x.zero_()", "x"),
        ("helper(y, x)", "x"),
        ("helper(a=y, b=x)", "x"),
        ("torch.ops._C.silu(x, y)", "x"),
        ("return x.requires_grad_()", ""),
        ("return torch.nn.functional.relu_(y)", ""),
        ("kernel[(1,)](x, y, z, BLOCK=16)", "x"),
        ("kernel[grid](out_ptr=z, in_ptr=x, other=y, BLOCK=16)", "z"),
        ("deep_kernel[(1,)](x, y)", "x"),
        ("kernel[lambda meta: (1,)](x.view(-1), y, z, BLOCK=16)", "x"),
        ("block_kernel[(1,)](x, y)", "y"),
    ],
)
def test_what_is_written(body: str, written: str) -> None:
    source = (
        "import torch, triton\nimport triton.language as tl\n"
        "@triton.jit\ndef kernel(out_ptr, in_ptr, other, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    ptrs = out_ptr + at\n    x = tl.load(in_ptr + at) + tl.load(other + at)\n"
        "    tl.store(ptrs, x)\n"
        "@triton.jit\ndef put(where, what):\n    tl.atomic_add(where, what)\n"
        "@triton.autotune(configs=[], key=[])\n@triton.jit\ndef deep_kernel(a, b):\n"
        "    put(a + 1, tl.load(b))\n"
        "@triton.jit\ndef block_kernel(a, b):\n"
        "    block = tl.make_block_ptr(base=b, shape=(8,), strides=(1,), offsets=(0,))\n"
        "    block = tl.advance(block, (8,))\n    tl.store(block, tl.load(a))\n"
        "def helper(a, b):\n    b.mul_(a)\n"
        f"def f(x, y, z):\n    {body}\n"
    )
    found = look(source, written_by=lambda space, name: frozenset([0]))
    assert mutated(found) == written
    assert ("kernel" in body) == (found.kind == "triton")
    assert all("mutated" in a.inferred for a in found.arguments)


def test_a_kernel_itself_is_no_operator() -> None:
    source = "import triton\n@triton.jit\ndef f(a, b):\n    pass\n"
    assert python_ops.find(Path("ops.py"), source, "f", None) == []


@pytest.mark.parametrize(
    "source",
    [
        """
        @torch.library.custom_op("my::f", mutates_args=("out",))
        def anything(out: Tensor, x: Tensor, n: int = 3) -> None: ...
        """,
        """
        from torch.library import custom_op
        @custom_op("my::f", mutates_args={"out"}, device_types="cuda")
        def f(out: Tensor, x: Tensor, n: int = 3) -> None: ...
        """,
        """
        @torch.library.triton_op("my::f", mutates_args=["out"])
        def f(out: Tensor, x: Tensor, n: int = 3) -> None: ...
        """,
        """
        @torch.library.custom_op("my::f", mutates_args=("out",),
                                 schema="(Tensor(a!) out, Tensor x, int n=3) -> ()")
        def f(out, x, n): ...
        """,
        """
        lib = torch.library.Library("my", "DEF")
        lib.define("f(Tensor(a!) out, Tensor x, int n=3) -> ()")
        def work(out, x, n): ...
        lib.impl("f", work, "CUDA")
        """,
        """
        lib = Library("my", "FRAGMENT")
        lib.define("f(Tensor(a!) out, Tensor x, int n=3) -> ()", tags=())
        @torch.library.impl(lib, "f", "CUDA")
        def work(out, x, n): ...
        """,
        """
        torch.library.define("my::f", "(Tensor(a!) out, Tensor x, int n=3) -> ()")
        @torch.library.impl("my::f", "CUDA")
        def work(out, x, n): ...
        """,
        """
        my = Library("my", "FRAGMENT")
        def work(out: Tensor, x: Tensor, n: int = 3) -> None: ...
        direct_register_custom_op(op_name="f", op_func=work, mutates_args=["out"], target_lib=my)
        """,
        """
        def work(out: Tensor, x: Tensor, n: int = 3) -> None: ...
        f = torch.library.custom_op("my::f", work, mutates_args=("out",))
        """,
    ],
)
def test_operators_of_torch_library(source: str) -> None:
    found = look(source)
    assert (found.name, found.kind, found.namespace, found.returns) == ("f", "library", "my", ())
    assert arguments(found) == [
        *(("out", "Tensor", None), ("x", "Tensor", None), ("n", "int", "3")),
    ]
    assert mutated(found) == "out"
    assert not any(a.inferred for a in found.arguments)
    assert found.todos == ()


def test_unknown_mutation_is_concluded_from_the_code() -> None:
    found = look(
        """
        @custom_op("my::f", mutates_args="unknown")
        def f(out: Tensor, x: Tensor) -> None:
            out.copy_(x)
        """
    )
    assert mutated(found) == "out" and "mutated" in found.arguments[0].inferred


def test_constraints_and_waits() -> None:
    found = look(
        """
        def f(x, n):
            assert x.dim() == 2, "two dimensions"
            if n % 8:
                raise ValueError(f"{n} is no multiple of 8")
            if x.shape[0] < n:
                raise ValueError("few")
            if not x.is_cuda:
                raise ValueError
            torch._check(n > 0, lambda: "positive")
            torch.cuda.synchronize()
            return x.max().item()
        """
    )
    assert [(c.condition, c.message) for c in found.constraints] == [
        ("x.dim() == 2", "two dimensions"),
        ("not n % 8", "{n} is no multiple of 8"),
        ("x.shape[0] >= n", "few"),
        ("x.is_cuda", ""),
        ("n > 0", "positive"),
    ]
    assert [place.line for place in found.allocates] == [11, 12]


def test_variable_arguments_are_left_open() -> None:
    assert "*args" in look("def f(x, *args): ...").todos[0].what


def test_what_is_no_python_is_one_sentence() -> None:
    for source in ("def f(:", "f = " + "(" * 5000, "def f(): pass\0"):
        with pytest.raises(TreeError):
            python_ops.find(Path("ops.py"), source, "f", None)
    # What Python parses and what it can go through afterwards differ.
    sums = [" + ".join(["x"] * length) for length in (800, 990, 3000)]
    for line in [f"assert {one}" for one in sums] + [f"tl.store({one}, 1)" for one in sums]:
        decorated = f"import triton\n@triton.jit\ndef k(x):\n    {line}\ndef f(x):\n    "
        try:
            look(f"{decorated}k[(1,)](x)\n    {line}")
        except TreeError as refused:
            assert "recursion" in str(refused) or "nested too deeply" in str(refused)
    with pytest.raises(TreeError) as refused:
        look('torch.library.define("my::f", "(int64_t x) -> ()")')
    assert "ops.py:1: schema of f: unknown type 'int64_t'" in str(refused.value)
