"""What a C++ function writes to, where no schema says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.author.cpp.operators import CppReader
from orchestrator.author.cpp.project import Project

_KERNELS = """
template <typename T>
__global__ void __launch_bounds__(256) write_kernel(T* __restrict__ a, const T* __restrict__ b,
                                                    T* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] = b[i] + c[i];
}
template <typename T> __device__ __forceinline__ void put(T* where, T what) { *where = what; }
template <typename T> __global__ void deep_kernel(T* a, T* b) { put(a + threadIdx.x, b[0]); }
template <typename T> __global__ void atomic_kernel(int* a, T* b) { atomicAdd(&a[b[0]], 1); }
template <typename T> __global__ void vector_kernel(T* a, T* b) {
  auto* wide = reinterpret_cast<float4*>(a + 4);
  const float4 v = reinterpret_cast<const float4*>(b)[0];
  wide[threadIdx.x] = v;
}
template <typename T> __global__ void reference_kernel(T* a, T* b) {
  T& slot = a[1];
  T value = b[1];
  value += 1;
  slot = value;
}
template <typename T> __global__ void counted_kernel(T* a, T* b) { a[0]++; T* p = b; p = nullptr; }
template <typename T> __global__ void read_kernel(T* a, T* b) { float x = a[0]; x = b[0]; }
template <typename T> __global__ void overloaded(T* a, const T* b, int n) { overloaded(a, b); }
template <typename T> __global__ void overloaded(T* a, const T* b) { a[0] = b[0]; }
template <typename T, typename F> __device__ void each(const T* in, T* out, F&& op) {
  for (int i = 0; i < 8; ++i) op(out[i], in[i]);
}
template <typename T> __global__ void functor_kernel(T* a, const T* b) {
  each(b, a, [=](T& to, const T& from) { to = from; });
}
template <typename T> __global__ void lambda_kernel(T* a, T* b) {
  auto copy = [&](const T* from, T* to) { to[0] = from[0]; };
  copy(b, a);
}
template <typename T> __device__ T* place(T* base, int i) { return base + i; }
template <typename T> __global__ void place_kernel(T* a, const T* b) {
  auto* where = place(a, 3);
  *where = b[0];
}
template <int N> __global__ std::enable_if_t<(N > 0) && kYes<N>::value> enabled_kernel(
    float* a, float* b) {
  a[0] = b[0];
}
__global__ void pair_kernel(float* a, float* b, bool first) {
  float* which = first ? a : b;
  which[0] = 1.f;
}
"""


def mutated(folder: Path, parameters: str, body: str, extra: str = "") -> list[str]:
    """Names of the arguments that a function with this body is found to write to."""
    (folder / "b.cpp").write_text('PYBIND11_MODULE(op, m) { m.def("f", &f); }')
    (folder / "kernels.cuh").write_text(_KERNELS)
    (folder / "f.cu").write_text(
        f'#include "kernels.cuh"\n{extra}\nvoid f({parameters}) {{\n{body}\n}}\n'
    )
    (found,) = CppReader(Project(folder.iterdir())).find("f")
    assert all("mutated" in a.inferred for a in found.arguments if "Tensor" in a.type)
    return [a.name for a in found.arguments if a.mutated]


_THREE = "torch::Tensor& a, const at::Tensor& b, at::Tensor c"


@pytest.mark.parametrize(
    ("body", "written"),
    [
        # launches
        ("write_kernel<float><<<1, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), "
         "c.data_ptr<float>(), 3);", "a"),
        ("write_kernel<float><<<1, 256, 0, stream>>>((float*)a.data_ptr(), (float*)b.data_ptr(), "
         "reinterpret_cast<float*>(c.data_ptr()), 3);", "a"),
        ("deep_kernel<<<1, 2>>>(c.data_ptr<float>(), b.data_ptr<float>());", "c"),
        ("atomic_kernel<<<1, 2>>>(a.data_ptr<int>(), b.data_ptr<int>());", "a"),
        ("vector_kernel<<<1, 2>>>(a.data_ptr<float>(), c.data_ptr<float>());", "a"),
        ("reference_kernel<<<1, 2>>>(a.data_ptr<float>(), c.data_ptr<float>());", "a"),
        ("counted_kernel<<<1, 2>>>(a.data_ptr<float>(), c.data_ptr<float>());", "a"),
        ("pair_kernel<<<1, 2>>>(a.data_ptr<float>(), c.data_ptr<float>(), true);", "ac"),
        ("auto kernel = &write_kernel<float>;\n"
         "kernel<<<1, 2>>>(c.data_ptr<float>(), b.data_ptr<float>(), "
         "a.data_ptr<float>(), 3);", "c"),
        ("float* p = a.data_ptr<float>(); const auto* q = c.data_ptr<float>();\n"
         "write_kernel<<<1, 2>>>(p + 8, q, q, 3);", "a"),
        ("auto run = [&](auto stream) { write_kernel<<<1, 2, 0, stream>>>(a.data_ptr<float>(), "
         "b.data_ptr<float>(), c.data_ptr<float>(), 1); }; run(0);", "a"),
        ('AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "f", [&] {\n  '
         "write_kernel<scalar_t><<<1, 2>>>("
         "a.data_ptr<scalar_t>(), b.data_ptr<scalar_t>(), c.data_ptr<scalar_t>(), 1); });", "a"),
        ("LAUNCH(write_kernel, a, 3);", "a"),
        ("SWITCH(a.scalar_type(), { write_kernel<T><<<1, 2>>>(a.data_ptr<T>(), b.data_ptr<T>(), "
         "c.data_ptr<T>(), 1); });", "a"),
        ("overloaded<<<1, 2>>>(a.data_ptr<float>(), b.data_ptr<float>(), 1);", "a"),
        ("functor_kernel<<<1, 2>>>(c.data_ptr<float>(), b.data_ptr<float>());", "c"),
        ("lambda_kernel<<<1, 2>>>(c.data_ptr<float>(), b.data_ptr<float>());", "c"),
        ("place_kernel<<<1, 2>>>(a.data_ptr<float>(), b.data_ptr<float>());", "a"),
        ("enabled_kernel<8><<<1, 2>>>(a.data_ptr<float>(), c.data_ptr<float>());", "a"),
        ("bool even = reinterpret_cast<uintptr_t>(a.data_ptr()) % 16 == 0; c.zero_();", "c"),
        ("run_static(a.data_ptr()); c.zero_();", "c"),
        ("Params params{a.data_ptr(), 3}; run(params);", "a"),
        # methods and functions of torch
        ("a.copy_(b);", "a"),
        ("c.index_put_({0}, b); a.sum();", "c"),
        ("c.zero_();", "c"),
        ("at::sum_out(a, b);", "a"),
        ("a[0] = 1;", "a"),
        ("a.select(0, 1).fill_(3);", "a"),
        ("auto view = a.view({-1, 8}); view.add_(1);", "a"),
        ("auto fresh = at::empty_like(a); fresh.copy_(b);", ""),
        ("float* p = c.mutable_data_ptr<float>(); p[0] = 1;", "c"),
        ("const float* p = a.const_data_ptr<float>(); float x = p[0];", ""),
        ("cudaMemcpyAsync(a.data_ptr(), b.data_ptr(), 8, cudaMemcpyDeviceToDevice, s);", "a"),
        ("helper(a, c);", "c"),
        ("a = c.add(1);", ""),
        # out of sight: what is not const is taken to be written, when nothing else is
        ("cublasThing(handle, a.data_ptr(), b.data_ptr());", "a"),
        ("cublasThing(handle, a.data_ptr()); c.zero_();", "c"),
        ("int64_t p = reinterpret_cast<int64_t>(a.data_ptr()); launch(p);", "a"),
        ("read_kernel<<<1, 2>>>(a.data_ptr<float>(), c.data_ptr<float>());", ""),
    ],
)  # fmt: skip
def test_what_is_written(tmp_path: Path, body: str, written: str) -> None:
    extra = (
        "#define LAUNCH(KERNEL, OUT, ...) \\\n  KERNEL<float><<<1, 2>>>(OUT.data_ptr<float>(), \\\n"
        "      b.data_ptr<float>(), c.data_ptr<float>(), ##__VA_ARGS__)\n"
        "#define SWITCH(TYPE, ...) \\\n  switch (TYPE) { \\\n"
        "    case at::ScalarType::Half: { using T = at::Half; __VA_ARGS__ break; } \\\n"
        "    default: TORCH_CHECK(false); }\n"
        "static void helper(const at::Tensor& x, at::Tensor& y) { y.add_(x); }\n"
    )
    assert "".join(mutated(tmp_path, _THREE, body, extra)) == written


def test_optional_tensors_and_lists_are_followed(tmp_path: Path) -> None:
    parameters = (
        "std::optional<at::Tensor> a, const c10::optional<at::Tensor>& b, "
        "std::vector<at::Tensor>& c"
    )
    body = """
  float* p = a.has_value() ? a->data_ptr<float>() : nullptr;
  float* q = b ? b.value().data_ptr<float>() : nullptr;
  write_kernel<<<1, 2>>>(p, q, q, 3);
  for (auto& one : c) one.zero_();
  c[0].zero_();"""
    assert mutated(tmp_path, parameters, body) == ["a", "c"]


def test_a_range_for_names_the_elements(tmp_path: Path) -> None:
    body = "for (auto& one : a) { one.zero_(); }\nfor (const auto& one : b) { one.sum(); }"
    parameters = "std::vector<at::Tensor> a, std::vector<at::Tensor> b"
    assert mutated(tmp_path, parameters, body) == ["a"]


def test_pointers_in_a_struct_are_out_of_sight(tmp_path: Path) -> None:
    body = "Params params; params.out = a.data_ptr(); params.in = b.data_ptr(); run(params);"
    assert mutated(tmp_path, "at::Tensor& a, const at::Tensor& b", body) == ["a"]


def test_functions_that_call_each_other_end(tmp_path: Path) -> None:
    extra = (
        "void ping(at::Tensor& x, int n);\n"
        "void pong(at::Tensor& x, int n) { if (n) ping(x, n - 1); else x.zero_(); }\n"
        "void ping(at::Tensor& x, int n) { pong(x, n); }\n"
    )
    assert mutated(tmp_path, "at::Tensor& a, at::Tensor& b", "ping(a, 3); b.sum();", extra) == ["a"]


def test_a_schema_without_marks_is_completed_by_the_code(tmp_path: Path) -> None:
    (tmp_path / "b.cpp").write_text(
        'TORCH_LIBRARY(x, m) { m.def("f(Tensor out, Tensor x) -> ()"); m.impl("f", &f);\n'
        ' m.def("g(Tensor out, Tensor x) -> Tensor"); m.impl("g", &f); }'
    )
    (tmp_path / "f.cu").write_text("void f(at::Tensor& o, at::Tensor& x) { o.copy_(x); }")
    reader = CppReader(Project(tmp_path.iterdir()))
    out, x = reader.find("f")[0].arguments
    assert (out.mutated, out.inferred, x.mutated) == (True, ("mutated",), False)
    # A schema that returns something is believed.
    assert not any(a.mutated for a in reader.find("g")[0].arguments)


def test_nothing_written_and_nothing_returned_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "b.cpp").write_text('PYBIND11_MODULE(op, m) { m.def("f", &f); }')
    (tmp_path / "f.h").write_text("void f(at::Tensor a);")
    (found,) = CppReader(Project(tmp_path.iterdir())).find("f")
    assert not any(a.mutated for a in found.arguments)
