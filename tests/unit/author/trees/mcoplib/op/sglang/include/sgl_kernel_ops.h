#pragma once

#include <Python.h>
#include <torch/all.h>
#include <torch/library.h>

#include <optional>

#define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) \
  CHECK_CUDA(x);       \
  CHECK_CONTIGUOUS(x)
#define CHECK_EQ(a, b) TORCH_CHECK((a) == (b), #a " must be " #b)

#define REGISTER_EXTENSION(NAME)                                                      \
  PyMODINIT_FUNC PyInit_##NAME() {                                                    \
    static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, #NAME, nullptr, 0, {}}; \
    return PyModule_Create(&module);                                                  \
  }

/*
 * From csrc/elementwise
 */
void rotary_embedding(at::Tensor& positions, at::Tensor& query, std::optional<at::Tensor> key,
                      int64_t head_size, at::Tensor& cos_sin_cache, bool is_neox);

/*
 * From csrc/moe
 */
void topk_softmax(torch::Tensor& topk_weights, torch::Tensor& topk_indices,
                  torch::Tensor& gating_output, bool renormalize, double moe_softcapping,
                  const c10::optional<torch::Tensor>& correction_bias);
