"""What C++ requires: checks, dtypes let through, and what happens at each call."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.author.cpp.operators import CppOperator, CppReader
from orchestrator.author.cpp.project import Project


def look(folder: Path, body: str, extra: str = "") -> CppOperator:
    """An operator ``f(out, x, n)`` with this body, registered under other argument names."""
    (folder / "b.cpp").write_text(
        'TORCH_LIBRARY(my, m) { m.def("f(Tensor! result, Tensor input, int n) -> ()");\n'
        '  m.impl("f", torch::kCUDA, &f); }'
    )
    (folder / "f.cu").write_text(
        f"{extra}\nvoid f(at::Tensor& out, at::Tensor& x, int64_t n) {{\n{body}\n}}\n"
    )
    (found,) = CppReader(Project(folder.iterdir())).find("f")
    return found


@pytest.mark.parametrize(
    ("body", "condition", "message"),
    [
        ('TORCH_CHECK(x.dim() == 2, "x is ", x.dim(), "D");', "input.dim() == 2",
         "x is {x.dim()}D"),
        ("TORCH_CHECK_EQ(x.size(0), n);", "input.size(0) == n", ""),
        ('TORCH_CHECK_GE(n, 1) << "few";', "n >= 1", ""),
        ('STD_TORCH_CHECK(n % 8 == 0, "n");', "n % 8 == 0", "n"),
        ("AT_ASSERT(x.is_cuda());", "input.is_cuda()", ""),
        ('AT_ASSERTM(x.is_cuda(), "on the GPU");', "input.is_cuda()", "on the GPU"),
        ('TORCH_INTERNAL_ASSERT(n > 0, "n");', "n > 0", "n"),
        ('TORCH_CHECK_VALUE(n > 0, "n");', "n > 0", "n"),
        ('if (n > 128) { TORCH_CHECK(false, "n is at most 128"); }', "!(n > 128)",
         "n is at most 128"),
        ("CHECK_INPUT(x);", "CHECK_INPUT(input)", ""),
        ("OWN_CHECK(x);", "input.is_contiguous()", "x must be contiguous"),
        ('OWN_NESTED(x, 3);', "input.dim() == 3", "x has the wrong rank"),
        ("helper(x, n);", "input.size(0) > n", "in a helper"),
        ('TORCH_CHECK(x.dim() == 2,\n  "一", "二");', "input.dim() == 2", "一二"),
    ],
)  # fmt: skip
def test_a_check_is_read_in_the_operators_names(
    tmp_path: Path, body: str, condition: str, message: str
) -> None:
    extra = (
        '#define OWN_CHECK(t) TORCH_CHECK(t.is_contiguous(), #t " must be contiguous")\n'
        "#define RANK(t, r, ...) TORCH_CHECK((t).dim() == r, ##__VA_ARGS__)\n"
        '#define OWN_NESTED(t, r) RANK(t, r, #t " has the wrong rank")\n'
        "static void helper(const at::Tensor& t, int64_t least) {\n"
        '  TORCH_CHECK(t.size(0) > least, "in a helper");\n}\n'
    )
    found = look(tmp_path, f"int first = 0;\n{body}", extra)
    assert [(c.condition, c.message) for c in found.constraints] == [(condition, message)]
    assert found.constraints[0].place.line == (5 if body.startswith("helper") else 10)


@pytest.mark.parametrize(
    ("body", "dtypes"),
    [
        ('AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "f", [&] {});', "float32 float64"),
        ('AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "f", [&] {});',
         "float16 float32 float64"),
        ("AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::ScalarType::BFloat16, x.scalar_type(), "
         '"f", [&] {});', "bfloat16 float16 float32 float64"),
        ('AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "f", [&] {});',
         "bfloat16 float32 float64"),
        ('AT_DISPATCH_REDUCED_FLOATING_TYPES(x.scalar_type(), "f", [&] {});', "bfloat16 float16"),
        ('AT_DISPATCH_INTEGRAL_TYPES(x.scalar_type(), "f", [&] {});',
         "int16 int32 int64 int8 uint8"),
        ('AT_DISPATCH_INDEX_TYPES(x.scalar_type(), "f", [&] {});', "int32 int64"),
        ('VLLM_DISPATCH_FLOATING_TYPES(x.scalar_type(), "f", [&] {});',
         "bfloat16 float16 float32"),
        ("DISPATCH_PYTORCH_DTYPE_TO_CTYPE_FLOAT_FP16(x.scalar_type(), c_type, [&] { "
         "return true; });",
         "bfloat16 float16 float32"),
        ('AT_DISPATCH_SWITCH(x.scalar_type(), "f", AT_DISPATCH_CASE(at::kHalf, [&] {}) '
         "AT_DISPATCH_CASE(at::kFloat, [&] {}));", "float16 float32"),
        ('auto dtype = x.dtype();\nVLLM_DISPATCH_HALF_TYPES(dtype, "f", [&] {});',
         "bfloat16 float16"),
        ('OWN_DISPATCH(x.scalar_type(), "f", [&] {});', "bfloat16 float32"),
        ('OUTER_DISPATCH(x.scalar_type(), [&] {});', "bfloat16 float32 uint8"),
        ("LAUNCH(out, x);", "bfloat16 float16"),
        # The operator's dtype is that of what it reads, not of what it quantises to.
        ('VLLM_DISPATCH_HALF_TYPES(x.scalar_type(), "f", [&] { '
         'VLLM_DISPATCH_FP8_TYPES(out.scalar_type(), "g", [&] {}); });', "bfloat16 float16"),
        ("TORCH_CHECK(x.scalar_type() == torch::kFloat32);", "float32"),
        ('TORCH_CHECK(x.dtype() == at::kHalf || x.dtype() == at::kBFloat16, "half");',
         "bfloat16 float16"),
        ("TORCH_CHECK(n > 0 && (x.dtype() == at::kHalf || x.dtype() == at::kFloat));",
         "float16 float32"),
        ("if (x.dtype() == at::kHalf) { one(); } else if (x.dtype() == at::kFloat) { two(); }",
         "float16 float32"),
        ("switch (x.scalar_type()) { case at::ScalarType::Half: one(); break;\n"
         "  case at::ScalarType::Float8_e4m3fn: two(); break; default: TORCH_CHECK(false); }",
         "float16 float8_e4m3fn"),
        ("TORCH_CHECK(x.dtype() == out.dtype());", ""),
        ("kernel<<<1, 2>>>(out.data_ptr<float>(), x.data_ptr<at::Half>());", "float16"),
        # Nothing is known of x, and a pointer to the output tells nothing of it.
        ("kernel<<<1, 2>>>(out.data_ptr<float>(), x.data_ptr());", ""),
        ("helper(x);", "bfloat16 float16"),
    ],
)  # fmt: skip
def test_dtypes(tmp_path: Path, body: str, dtypes: str) -> None:
    extra = (
        "#define OWN_CASES(...) \\\n  AT_DISPATCH_CASE(at::ScalarType::Float, __VA_ARGS__) \\\n"
        "  AT_DISPATCH_CASE(at::ScalarType::BFloat16, __VA_ARGS__)\n"
        "#define OWN_DISPATCH(TYPE, NAME, ...) \\\n"
        "  AT_DISPATCH_SWITCH(TYPE, NAME, OWN_CASES(__VA_ARGS__))\n"
        "#define OUTER_DISPATCH(TYPE, ...) \\\n  switch (TYPE) { OWN_CASES(__VA_ARGS__) \\\n"
        "    case at::kByte: { using T = uint8_t; } }\n"
        '#define LAUNCH(a, b) VLLM_DISPATCH_HALF_TYPES(b.scalar_type(), "f", [&] { a.zero_(); })\n'
        "static void helper(at::Tensor t) {\n"
        '  VLLM_DISPATCH_HALF_TYPES(t.scalar_type(), "", [&] {}); }\n'
    )
    assert " ".join(look(tmp_path, body, extra).dtypes) == dtypes


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("void* p; cudaMalloc(&p, 8);\nwork();\ncudaFree(p);", [3, 5]),
        ("cudaDeviceSynchronize();", [3]),
        ("mcDeviceSynchronize();", [3]),
        ("auto s = at::cuda::getCurrentCUDAStream();\ns.synchronize();", [4]),
        ("int64_t k = x[0].item<int64_t>();", [3]),
        ("float k = x.max().item().toFloat();", [3]),
        ("auto host = x.cpu();", [3]),
        ("// cudaDeviceSynchronize();", []),
        ('TORCH_CHECK(true, "cudaMalloc(");', []),
        ("helper(x);", [1]),
    ],
)
def test_what_allocates_or_waits(tmp_path: Path, body: str, lines: list[int]) -> None:
    extra = "static void helper(at::Tensor& t) { cudaStreamSynchronize(0); }"
    assert [place.line for place in look(tmp_path, body, extra).allocates] == lines
