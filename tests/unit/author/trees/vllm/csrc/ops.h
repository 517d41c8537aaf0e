#pragma once

#include <torch/library.h>

void gelu_new(torch::Tensor& out, torch::Tensor& input);

void gelu_quick(torch::Tensor& out, torch::Tensor& input);
