#include <ATen/cuda/CUDAContext.h>
#include <torch/all.h>

#include <cfloat>

#include "sgl_kernel_ops.h"

#define DISPATCH_GATING(TYPE, ...)                                                    \
  switch (TYPE) {                                                                     \
    case at::ScalarType::Float: { using gate_t = float; __VA_ARGS__ break; }          \
    case at::ScalarType::Half: { using gate_t = at::Half; __VA_ARGS__ break; }        \
    case at::ScalarType::BFloat16: { using gate_t = at::BFloat16; __VA_ARGS__ break; } \
    default: TORCH_CHECK(false, "gating_output has the dtype ", TYPE);                \
  }

// One warp a token; each lane owns every 32nd expert.
template <typename gate_t>
__global__ void gate_kernel(const gate_t* logits, const float* bias, float* weights, int32_t* ids,
                            int experts, int k, bool renormalize, float softcap) {
  const int token = blockIdx.x, lane = threadIdx.x;
  extern __shared__ float score[];
  float top = -FLT_MAX;
  for (int e = lane; e < experts; e += 32) {
    float v = static_cast<float>(logits[token * experts + e]);
    if (softcap != 0.f) v = tanhf(v / softcap) * softcap;
    if (bias != nullptr) v += bias[e];
    score[e] = v;
    top = fmaxf(top, v);
  }
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
  float sum = 0.f;
  for (int e = lane; e < experts; e += 32) sum += (score[e] = expf(score[e] - top));
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);

  float kept = 0.f;
  for (int round = 0; round < k; ++round) {
    float best = -1.f;
    int best_id = experts;
    for (int e = lane; e < experts; e += 32)
      if (score[e] > best) { best = score[e]; best_id = e; }
    for (int step = 16; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(~0u, best, step);
      const int other_id = __shfl_xor_sync(~0u, best_id, step);
      if (other > best || (other == best && other_id < best_id)) { best = other; best_id = other_id; }
    }
    if (lane == 0) {
      weights[token * k + round] = best / sum;
      ids[token * k + round] = best_id;
    }
    if (best_id % 32 == lane) score[best_id] = -1.f;
    kept += best / sum;
    __syncwarp();
  }
  if (renormalize && lane < k)
    for (int round = lane; round < k; round += 32) weights[token * k + round] /= kept;
}

void topk_softmax(torch::Tensor& topk_weights,   // [num_tokens, topk]
                  torch::Tensor& topk_indices,   // [num_tokens, topk]
                  torch::Tensor& gating_output,  // [num_tokens, num_experts]
                  const bool renormalize, const double moe_softcapping,
                  const c10::optional<torch::Tensor>& correction_bias) {
  CHECK_INPUT(gating_output);
  TORCH_CHECK(gating_output.dim() == 2, "gating_output must be 2D [num_tokens, num_experts]");
  TORCH_CHECK(topk_weights.dim() == 2, "topk_weights must be 2D [num_tokens, topk]");
  TORCH_CHECK(topk_indices.sizes() == topk_weights.sizes());
  TORCH_CHECK(topk_weights.scalar_type() == at::kFloat && topk_indices.scalar_type() == at::kInt);
  if (correction_bias.has_value()) {
    TORCH_CHECK(correction_bias->scalar_type() == at::kFloat, "correction_bias must be float32");
    TORCH_CHECK(correction_bias->size(0) == gating_output.size(1));
  }
  const int experts = gating_output.size(1);
  const float* bias = correction_bias.has_value() ? correction_bias->data_ptr<float>() : nullptr;
  auto stream = at::cuda::getCurrentCUDAStream();
  DISPATCH_GATING(gating_output.scalar_type(), {
    gate_kernel<gate_t><<<gating_output.size(0), 32, experts * sizeof(float), stream>>>(
        gating_output.data_ptr<gate_t>(), bias, topk_weights.data_ptr<float>(),
        topk_indices.data_ptr<int32_t>(), experts, topk_weights.size(1), renormalize,
        static_cast<float>(moe_softcapping));
  });
}
