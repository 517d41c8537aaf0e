#include <pybind11/pybind11.h>
#include <torch/extension.h>

#include "../include/mcoplib_ops.h"

namespace py = pybind11;

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "operators of our own";
  m.def("fused_bias_dropout", &fused_bias_dropout, "residual + dropout(input + bias)",
        py::arg("input"), py::arg("bias"), py::arg("residual"), py::arg("dropout_prob") = 0.0f);
  m.def("fused_rope_fwd", &fused_rope_fwd, "rotate queries and keys of a packed qkv in place");
  m.def("fused_rope_bwd", &fused_rope_bwd, "its gradient");
}
