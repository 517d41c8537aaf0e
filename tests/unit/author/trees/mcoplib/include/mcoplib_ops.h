#pragma once

#include <torch/extension.h>

at::Tensor fused_bias_dropout(at::Tensor input, at::Tensor bias, at::Tensor residual,
                              float dropout_prob);

void fused_rope_fwd(at::Tensor qkv, const at::Tensor cos, const at::Tensor sin,
                    const at::Tensor indexes, bool force_bf16_cal);

void fused_rope_bwd(at::Tensor qkv, const at::Tensor cos, const at::Tensor sin,
                    const at::Tensor indexes, bool force_bf16_cal);
