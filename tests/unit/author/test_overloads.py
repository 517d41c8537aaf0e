"""Of several signatures that one which the unit test calls; else it is left open, never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_locate import write

from orchestrator.author.facts import Operator
from orchestrator.author.locate import Sources, find_operators

SCHEMAS = """TORCH_LIBRARY(_C, ops) {
  ops.def("my_scale.a(Tensor! out, Tensor x, float scale) -> ()");
  ops.def("my_scale.b(Tensor! out, Tensor x, Tensor scale) -> ()");
  ops.def("my_scale.c(Tensor! out, Tensor x, Tensor scale, Tensor bias) -> ()");
}
"""
PYBIND = """void my_scale(at::Tensor out, at::Tensor x, double scale) { out.copy_(x); }
void my_scale(at::Tensor out, at::Tensor x, at::Tensor scale) { out.copy_(x); }
void my_scale(at::Tensor out, at::Tensor x, at::Tensor scale, const at::Tensor& bias)
{ out.copy_(x); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("my_scale", py::overload_cast<at::Tensor, at::Tensor, double>(&my_scale));
  m.def("my_scale", py::overload_cast<at::Tensor, at::Tensor, at::Tensor>(&my_scale));
  m.def("my_scale", static_cast<void (*)(at::Tensor, at::Tensor, at::Tensor, const at::Tensor&)>(
      &my_scale));
}
"""
EITHER = """TORCH_LIBRARY(_C, ops) {
#ifdef SOMETHING
  ops.def("my_scale(Tensor x, Tensor! out) -> ()");
#else
  ops.def("my_scale(Tensor! out, Tensor x) -> ()");
#endif
}
"""


def found(folder: Path, source: str, call: str | None, setup: str = "") -> Operator:
    write(folder, {"op/vllm/b.cpp": source})
    test = folder / "test_my_scale.py"
    test.write_text(
        "import torch\nimport mcoplib._C\nfrom mcoplib import op\n\ndef test_it():\n"
        "    x = torch.randn(4, 8)\n    out = torch.empty_like(x)\n"
        f"    {setup or 'pass'}\n    {call or 'pass'}\n"
    )
    (one,) = find_operators("my_scale", [folder / "op"], test, None)
    return one


@pytest.mark.parametrize("source", [SCHEMAS, PYBIND])
@pytest.mark.parametrize(
    ("given", "setup", "kinds"),
    [
        ("out, x, 0.5", "", ["float"]),
        ("out, x, s", "s = 2.0", ["float"]),
        ("out, x, s", "s = torch.rand(8)", ["Tensor"]),
        ("out, x, scale=torch.rand(8)", "", ["Tensor"]),
        ("out, x, s, b", "s = b = torch.rand(8)", ["Tensor", "Tensor"]),
        ("out, x, torch.ones(8), x", "", ["Tensor", "Tensor"]),
    ],
)
def test_count_and_kinds_of_the_tests_arguments_choose(
    tmp_path: Path, source: str, given: str, setup: str, kinds: list[str]
) -> None:
    space = "torch.ops._C" if source == SCHEMAS else "op"
    one = found(tmp_path, source, f"{space}.my_scale({given})", setup)
    assert [argument.type for argument in one.arguments[2:]] == kinds
    assert not [todo for todo in one.todos if "which signature" in todo.what]


def test_an_overload_that_the_test_names_is_it(tmp_path: Path) -> None:
    one = found(tmp_path, SCHEMAS, "torch.ops._C.my_scale.b(out, x, s())")
    assert [argument.type for argument in one.arguments[2:]] == ["Tensor"]
    assert not one.todos


@pytest.mark.parametrize(
    ("source", "call"),
    [
        (SCHEMAS, None),
        (SCHEMAS, "torch.ops._C.my_scale(out, x, unknown())"),
        (SCHEMAS, "torch.ops._C.my_scale(out)"),
        (EITHER, None),
        (EITHER, "torch.ops._C.my_scale(torch.empty(4), torch.ones(4))"),
    ],
)
def test_what_no_call_decides_is_left_open(tmp_path: Path, source: str, call: str | None) -> None:
    (todo,) = found(tmp_path, source, call).todos
    assert "which signature of my_scale is called" in todo.what
    assert "b.cpp:3" in todo.what


@pytest.mark.parametrize("call", ["out, x", "x, out", "x=x, out=out"])
def test_of_two_builds_that_one_whose_names_the_test_has(tmp_path: Path, call: str) -> None:
    source = EITHER.replace("Tensor x, Tensor! out", "Tensor x, Tensor! out, int k=1")
    one = found(tmp_path, source, f"torch.ops._C.my_scale({call})")
    assert not one.todos or call.startswith("x=x")
    if call in ("out, x", "x, out"):
        assert [argument.name for argument in one.arguments[:2]] == call.split(", ")


@pytest.mark.parametrize(
    "source",
    [
        "#ifdef NEW\nvoid my_scale(at::Tensor x, at::Tensor out) { out.copy_(x); }\n#else\n"
        "void my_scale(at::Tensor out, at::Tensor x) { out.copy_(x); }\n#endif\n",
        "void my_scale(at::Tensor out, at::Tensor x) { out.copy_(x); }\n",
    ],
)
def test_functions_that_differ_by_build_are_told(tmp_path: Path, source: str) -> None:
    module = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("my_scale", &my_scale); }\n'
    for text in (source + module, source):
        one = found(tmp_path, text, "op.my_scale(out, x)")
        assert [argument.name for argument in one.arguments] == ["out", "x"]
        assert not [todo for todo in one.todos if "which signature" in todo.what]
        one = found(tmp_path, text, "op.my_scale(torch.empty(4), torch.ones(4))")
        told = [todo for todo in one.todos if "which signature" in todo.what]
        assert bool(told) == source.startswith("#")


def test_a_function_of_another_file_alone_is_not_the_operators(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "op/vllm/a.cu": "static void my_scale(at::Tensor x, at::Tensor out) { out.copy_(x); }",
            "op/vllm/z.cu": "void my_scale(at::Tensor out, at::Tensor x) { out.copy_(x); }",
        },
    )
    module = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("my_scale", &my_scale); }\n'
    for text in (module, "\n"):
        one = found(tmp_path, text, None)
        assert [argument.name for argument in one.arguments] == ["out", "x"]


@pytest.mark.parametrize("source", [SCHEMAS, PYBIND, EITHER])
def test_all_are_known_to_those_that_judge_calls(tmp_path: Path, source: str) -> None:
    write(tmp_path, {"op/vllm/b.cpp": source})
    known = Sources([tmp_path]).find("my_scale")
    assert len(known) == (2 if source == EITHER else 3)
    assert not [todo for one in known for todo in one.todos]


@pytest.mark.parametrize("given", ["out, x, b", "out, x"])
def test_a_local_function_before_the_operators_is_not_it(tmp_path: Path, given: str) -> None:
    source = (
        "static void my_scale(at::Tensor& y) { y.add_(1); }\n"
        "void my_scale(at::Tensor& out, const at::Tensor& x) { out.copy_(x); }\n"
        "void my_scale(at::Tensor& out, const at::Tensor& x, const at::Tensor& b)\n"
        "{ out.copy_(x + b); }\n"
    )
    module = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("my_scale", &my_scale); }\n'
    for text in (source, source + module):
        one = found(tmp_path, text, f"op.my_scale({given})", "b = torch.ones(8)")
        assert [argument.name for argument in one.arguments] == given.split(", ")
        assert not [todo for todo in one.todos if "which signature" in todo.what]


LIBRARY = """import torch
lib = torch.library.Library("rowops", "DEF")
lib.define("my_scale.a(Tensor! out, Tensor x, float scale) -> ()")
lib.define("my_scale.b(Tensor! out, Tensor x, Tensor scale) -> ()")
torch.library.define("rowops::my_scale.c", "(Tensor! out) -> ()")
def first(out, x, scale): out.copy_(x * scale)
def third(out): out.zero_()
lib.impl("my_scale.a", first)
lib.impl("my_scale.c", third)
"""


@pytest.mark.parametrize(
    ("given", "kinds"),
    [("out, x, 0.5", ["float"]), ("out, x, torch.ones(8)", ["Tensor"]), ("out", [])],
)
def test_overloads_that_python_registers(tmp_path: Path, given: str, kinds: list[str]) -> None:
    folder = write(tmp_path / "rowops", {"ops.py": LIBRARY})
    test = tmp_path / "test_it.py"
    test.write_text(
        "import torch\nimport rowops.ops\ndef test_it():\n    x = out = torch.rand(8)\n"
        f"    torch.ops.rowops.my_scale({given})\n"
    )
    (one,) = find_operators("my_scale", [folder], test, None)
    assert [argument.type for argument in one.arguments[2:]] == kinds
    assert one.call == "torch.ops.rowops.my_scale"
    assert len(Sources([folder]).find("my_scale")) == 3
