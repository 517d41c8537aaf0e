"""Registrations in C++: every macro and spelling that operator libraries use."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.author.cpp.operators import CppOperator, CppReader
from orchestrator.author.cpp.project import Project
from orchestrator.errors import TreeError


def read(folder: Path, **files: str) -> CppReader:
    """A reader of these files; ``_`` stands for ``/`` twice, for ``.`` once at the end."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/").rpartition("_")[0] + "." + name.rpartition("_")[2])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return CppReader(Project(path for path in folder.rglob("*") if path.is_file()))


def only(reader: CppReader, name: str) -> CppOperator:
    (found,) = reader.find(name)
    return found


@pytest.mark.parametrize(
    ("block", "namespace", "assumed"),
    [
        ("TORCH_LIBRARY(myops, m)", "myops", False),
        ("TORCH_LIBRARY_FRAGMENT(sgl_kernel, m)", "sgl_kernel", False),
        ("TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m)", "_C", True),
        ("TORCH_LIBRARY_EXPAND(CONCAT(TORCH_EXTENSION_NAME, _cache_ops), m)", "_C_cache_ops", True),
        ("STABLE_TORCH_LIBRARY_FRAGMENT(_C, m)", "_C", False),
        ("STABLE_TORCH_LIBRARY(_moe_C, m)", "_moe_C", False),
        ("TORCH_LIBRARY(MY_SPACE, m)", "fromamacro", False),
        ("TORCH_LIBRARY_FRAGMENT( spaced , m )\n", "spaced", False),
    ],
)
def test_the_namespace_is_the_blocks(
    tmp_path: Path, block: str, namespace: str, assumed: bool
) -> None:
    reader = read(
        tmp_path,
        b_cpp=f"#define MY_SPACE fromamacro\n{block} {{\n"
        '  m.def("op(Tensor! out, Tensor x) -> ()");\n}\n',
    )
    found = only(reader, "op")
    assert (found.namespace, found.assumed, found.kind) == (namespace, assumed, "schema")
    assert found.sources[0].line == (4 if block.endswith("\n") else 3)
    assert [a.mutated for a in found.arguments] == [True, False]


def test_an_extension_in_a_moe_folder_is_the_moe_one(tmp_path: Path) -> None:
    block = 'TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) { m.def("op(Tensor x) -> Tensor"); }'
    assert only(read(tmp_path, moe__b_cpp=block), "op").namespace == "_moe_C"


@pytest.mark.parametrize(
    "entry",
    [
        'm.def("op(Tensor! out, Tensor x) -> ()");',
        'm.def("op(Tensor! out, "\n      "Tensor x) -> ()");',
        'm.def(R"(op(Tensor! out,\n   Tensor x) -> ())");',
        'm.def(R"DOC(op(Tensor! out, Tensor x) -> ())DOC");',
        'm.def("op(Tensor! out, Tensor x) -> ()", &op);',
        'm.def("myops::op(Tensor! out, Tensor x) -> ()", {at::Tag::pt2_compliant_tag});',
        'm.def(TORCH_SELECTIVE_SCHEMA("op(Tensor! out, Tensor x) -> ()"));',
        'm.def("op(Tensor! out, Tensor x) -> ()"); // m.def("op(int x) -> ()")',
        'm.def(/* in place: "op(int x) -> ()" */ "op(Tensor! out, Tensor x) -> ()");',
        'm . def ( "op(Tensor! out, Tensor x) -> ()" ) ;',
        '(void)0; m.def("other() -> ()").def("op(Tensor! out, Tensor x) -> ()");',
        '#ifndef USE_ROCM\nm.def("op(Tensor! out, Tensor x) -> ()");\n'
        '#else\nm.def("op() -> ()");\n#endif',
        '#ifdef USE_ROCM\nm.def("op() -> ()");\n#else\n'
        'm.def("op(Tensor! out, Tensor x) -> ()");\n#endif',
        '#if 0\nm.def("op() -> ()");\n#endif\nm.def("op(Tensor! out, Tensor x) -> ()");',
        '#ifdef USE_ROCM\nm.def("op(Tensor! out, Tensor x) -> ()");\n#endif',
        'this is < no C++ at all ((;\nm.def("op(Tensor! out, Tensor x) -> ()");',
    ],
)
def test_a_schema_is_read_however_it_is_written(tmp_path: Path, entry: str) -> None:
    found = only(read(tmp_path, b_cpp=f"TORCH_LIBRARY(myops, m) {{\n{entry}\n}}\n"), "op")
    assert [(a.name, a.type, a.mutated) for a in found.arguments] == [
        ("out", "Tensor", True),
        ("x", "Tensor", False),
    ]
    assert found.namespace == "myops" and found.returns == ()


@pytest.mark.parametrize(
    "impl",
    [
        'm.impl("op", torch::kCUDA, &ns::op_cuda);',
        'm.impl("op", c10::DispatchKey::CUDA, TORCH_FN(op_cuda));',
        'm.impl("op", torch::dispatch(c10::DispatchKey::CUDA, TORCH_FN(ns::op_cuda)));',
        'm.impl("op", &op_cuda);',
        'm.impl("op", op_cuda);',
        'm.impl("op", TORCH_BOX(&op_cuda));',
        'm.impl("op", torch::kCUDA, '
        "static_cast<void (*)(at::Tensor&, const at::Tensor&)>(&op_cuda));",
        'm.impl("op", torch::kCUDA, make_pytorch_shim(&op_cuda));',
    ],
)
def test_the_implementation_is_found_by_the_name_that_impl_gives(tmp_path: Path, impl: str) -> None:
    reader = read(
        tmp_path,
        b_cpp=f'TORCH_LIBRARY(myops, m) {{ m.def("op(Tensor! out, Tensor x) -> ()"); {impl} }}',
        k_cu="namespace ns {\nvoid op_cuda(at::Tensor& out, const at::Tensor& in) {\n"
        '  TORCH_CHECK(in.dim() == 2, "in is 2D");\n}\n}',
    )
    found = only(reader, "op")
    assert found.sources[1].path.endswith("k.cu") and found.sources[1].line == 2
    # In the operator's own names.
    assert [(c.condition, c.message, c.place.line) for c in found.constraints] == [
        ("x.dim() == 2", "in is 2D", 3)
    ]


def test_implementations_may_be_registered_in_another_block_and_file(tmp_path: Path) -> None:
    reader = read(
        tmp_path,
        b_cpp='TORCH_LIBRARY(myops, m) { m.def("op(Tensor! out, Tensor x) -> ()"); }',
        c_cpp='TORCH_LIBRARY_IMPL(myops, CUDA, m) { m.impl("op", &work); }',
        k_cu="void work(at::Tensor& out, const at::Tensor& in) { TORCH_CHECK(in.numel() > 0); }",
    )
    assert [c.condition for c in only(reader, "op").constraints] == ["x.numel() > 0"]


def test_entries_in_a_function_belong_to_the_block_that_calls_it(tmp_path: Path) -> None:
    reader = read(
        tmp_path,
        b_cpp="void add_all(torch::Library& lib) {\n"
        '  lib.def("op(Tensor x) -> Tensor");\n}\n'
        "TORCH_LIBRARY(myops, m) { add_all(m); }",
    )
    assert only(reader, "op").namespace == "myops"


def test_pybind_names_defaults_and_documentation(tmp_path: Path) -> None:
    reader = read(
        tmp_path,
        op__pybind_cpp="PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n"
        '  m.def("op", &ns::work, "multiplies", py::arg("x"), py::arg("factor") = 2.5f,\n'
        '        py::arg("bias") = py::none(), py::kw_only(), py::arg("mode") = "fast",\n'
        '        "n"_a = 1 << 2);\n}\n',
        op__work_h="at::Tensor work(at::Tensor a, double b, c10::optional<at::Tensor> c,\n"
        "                std::string d, int64_t e);",
    )
    found = only(reader, "op")
    assert found.kind == "pybind" and found.namespace == "op" and found.returns == ("Tensor",)
    assert [(a.name, a.type, a.default, a.keyword_only) for a in found.arguments] == [
        ("x", "Tensor", None, False),
        ("factor", "float", "2.5", False),
        ("bias", "Tensor?", "None", False),
        ("mode", "str", "'fast'", True),
        ("n", "int", None, True),
    ]
    # What cannot be written in Python is not passed over.
    assert any("1 << 2" in todo.what for todo in found.todos)


def test_a_lambda_is_the_function(tmp_path: Path) -> None:
    reader = read(
        tmp_path,
        b_cpp='PYBIND11_MODULE(op, m) {\n  m.def("op", [](torch::Tensor x, int64_t n) {\n'
        '    TORCH_CHECK(n > 0, "n is ", n);\n    x.mul_(n);\n  });\n}',
    )
    found = only(reader, "op")
    assert [(a.name, a.type, a.mutated) for a in found.arguments] == [
        ("x", "Tensor", True),
        ("n", "int", False),
    ]
    assert [(c.condition, c.message, c.place.line) for c in found.constraints] == [
        ("n > 0", "n is {n}", 3)
    ]


@pytest.mark.parametrize(
    ("lambda_", "returns", "open_points"),
    [
        ("[](at::Tensor x) { x.zero_(); }", (), 0),
        ("[](at::Tensor x) -> at::Tensor { return x; }", ("Tensor",), 0),
        ("[](at::Tensor x) mutable -> std::vector<at::Tensor> { return {x}; }", ("Tensor[]",), 0),
        ("[](at::Tensor x) { return x; }", ("Any",), 1),
    ],
)
def test_what_a_lambda_returns(
    tmp_path: Path, lambda_: str, returns: tuple[str, ...], open_points: int
) -> None:
    found = only(
        read(tmp_path, b_cpp=f'PYBIND11_MODULE(op, m) {{ m.def("op", {lambda_}); }}'), "op"
    )
    assert found.returns == returns and len(found.todos) == open_points


def test_a_name_and_a_function_give_the_schema_that_torch_infers(tmp_path: Path) -> None:
    reader = read(
        tmp_path,
        b_cpp='TORCH_LIBRARY(myops, m) { m.def("op", &work); m.def("nothing", &missing); }',
        k_cpp="std::tuple<at::Tensor, std::vector<at::Tensor>> work(\n"
        "    const at::Tensor& x, std::optional<at::Tensor> const& w, at::ScalarType t,\n"
        "    std::vector<int64_t> sizes, c10::SymInt n, std::string_view mode,\n"
        "    at::TensorList l) {}",
    )
    found = only(reader, "op")
    assert [(a.name, a.type) for a in found.arguments] == [
        *(("x", "Tensor"), ("w", "Tensor?"), ("t", "ScalarType"), ("sizes", "int[]")),
        *(("n", "SymInt"), ("mode", "str"), ("l", "Tensor[]")),
    ]
    assert found.returns == ("Tensor", "Tensor[]")
    assert "add them" in only(reader, "nothing").todos[0].what


def test_one_namespace_each(tmp_path: Path) -> None:
    reader = read(
        tmp_path,
        a__b_cpp='TORCH_LIBRARY(one, m) { m.def("op(Tensor a) -> Tensor"); m.impl("op", &op); }',
        a__k_cu="Tensor op(Tensor a) { TORCH_CHECK(a.dim() == 1); }",
        c__b_cpp='TORCH_LIBRARY(two, m) { m.def("op(Tensor b) -> Tensor"); m.impl("op", &op); }',
        c__k_cu="Tensor op(Tensor b) { TORCH_CHECK(b.dim() == 2); }",
    )
    found = {one.namespace: one for one in reader.find("op")}
    # Each with the function that lies by it.
    assert [c.condition for c in found["one"].constraints] == ["a.dim() == 1"]
    assert [c.condition for c in found["two"].constraints] == ["b.dim() == 2"]


def test_what_is_for_gpus_comes_before_what_is_for_cpus(tmp_path: Path) -> None:
    block = "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m)"
    reader = read(
        tmp_path,
        cpu__b_cpp=f'{block} {{ m.def("op(Tensor! a, Tensor b) -> ()");\n'
        ' m.impl("op", torch::kCPU, &op); }',
        cpu__op_cpp="void op(at::Tensor& a, at::Tensor& b) { TORCH_CHECK(b.is_cpu()); }",
        cuda__b_cpp=f'{block} {{ m.def("op(Tensor! out, Tensor x) -> ()");\n'
        ' m.impl("op", torch::kCPU, &op_cpu);\n m.impl("op", torch::kCUDA, &op); }',
        cuda__op_cu="void op_cpu(at::Tensor& a, at::Tensor& b) {}\n"
        "void op(at::Tensor& a, at::Tensor& b) { TORCH_CHECK(b.is_cuda()); }",
    )
    found = only(reader, "op")
    assert [a.name for a in found.arguments] == ["out", "x"]
    assert [c.condition for c in found.constraints] == ["x.is_cuda()"]


def test_a_device_function_of_the_name_is_not_the_operator(tmp_path: Path) -> None:
    reader = read(
        tmp_path,
        b_cpp='TORCH_LIBRARY(my, m) { m.def("op(Tensor! out, Tensor x) -> ()"); }',
        k_cu="template <typename T> __device__ T op(const T& a, const T& b) { return a; }\n"
        "template <typename T, std::enable_if_t<(sizeof(T) > 1), int> = 0>\n"
        "__global__ void op(T* out, const T* x, int n) { out[0] = x[0]; }\n"
        "void op(at::Tensor& out, at::Tensor& x) { TORCH_CHECK(x.dim() == 1);\n"
        "  op<float><<<1, 1>>>(out.data_ptr<float>(), x.data_ptr<float>(), 1); }",
    )
    found = only(reader, "op")
    assert found.sources[1].line == 4 and len(found.constraints) == 1


def test_a_schema_that_torch_refuses_is_an_error_with_its_place(tmp_path: Path) -> None:
    reader = read(tmp_path, b_cpp='TORCH_LIBRARY(x, m) {\n m.def("op(int64_t n) -> ()");\n}')
    with pytest.raises(TreeError) as refused:
        reader.find("op")
    assert f"{tmp_path}/b.cpp:2: schema of op: unknown type 'int64_t'" in str(refused.value)
