#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/all.h>

#include <cfloat>

#include "../dispatch_utils.h"
#include "moe_ops.h"

namespace vllm {
namespace moe {

constexpr int kThreads = 256;

struct Best {
  float value;
  int expert;
};

// The larger value; of equal ones the lower expert, as a stable sort would have it.
__device__ __forceinline__ Best better(const Best& a, const Best& b) {
  return (b.value > a.value || (b.value == a.value && b.expert < a.expert)) ? b : a;
}

// One block a token: softmax over all experts, then k rounds of "largest that is left".
template <typename scalar_t, typename index_t>
__global__ void topk_softmax_kernel(
    const scalar_t* __restrict__ gating,   // [num_tokens, num_experts]
    float* __restrict__ weights,           // [num_tokens, k]
    index_t* __restrict__ indices,         // [num_tokens, k]
    int* __restrict__ source_rows,         // [num_tokens, k]
    const int num_tokens, const int num_experts, const int k, const bool renormalize) {
  extern __shared__ float probability[];
  __shared__ Best of_thread[kThreads];
  const int token = blockIdx.x;
  const scalar_t* row = gating + static_cast<int64_t>(token) * num_experts;

  float largest = -FLT_MAX;
  for (int e = 0; e < num_experts; ++e)
    largest = fmaxf(largest, static_cast<float>(row[e]));
  float sum = 0.0f;
  for (int e = 0; e < num_experts; ++e)
    sum += expf(static_cast<float>(row[e]) - largest);
  for (int e = threadIdx.x; e < num_experts; e += kThreads)
    probability[e] = expf(static_cast<float>(row[e]) - largest) / sum;
  __syncthreads();

  float chosen_sum = 0.0f;
  for (int choice = 0; choice < k; ++choice) {
    Best mine{-1.0f, num_experts};
    for (int e = threadIdx.x; e < num_experts; e += kThreads)
      mine = better(mine, Best{probability[e], e});
    of_thread[threadIdx.x] = mine;
    __syncthreads();
    for (int step = kThreads / 2; step > 0; step /= 2) {
      if (threadIdx.x < step)
        of_thread[threadIdx.x] = better(of_thread[threadIdx.x], of_thread[threadIdx.x + step]);
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      const Best best = of_thread[0];
      const int at = token * k + choice;
      weights[at] = best.value;
      indices[at] = static_cast<index_t>(best.expert);
      source_rows[at] = choice * num_tokens + token;
      probability[best.expert] = -1.0f;
      chosen_sum += best.value;
    }
    __syncthreads();
  }
  if (renormalize && threadIdx.x == 0)
    for (int choice = 0; choice < k; ++choice) weights[token * k + choice] /= chosen_sum;
}

template <typename index_t>
void launch(const torch::Tensor& gating, torch::Tensor& weights, torch::Tensor& indices,
            torch::Tensor& source_rows, bool renormalize) {
  const int num_experts = gating.size(-1);
  const int num_tokens = gating.numel() / num_experts;
  const int k = weights.size(-1);
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  VLLM_DISPATCH_FLOATING_TYPES(gating.scalar_type(), "topk_softmax_kernel", [&] {
    topk_softmax_kernel<scalar_t, index_t>
        <<<num_tokens, kThreads, num_experts * sizeof(float), stream>>>(
            gating.data_ptr<scalar_t>(), weights.data_ptr<float>(), indices.data_ptr<index_t>(),
            source_rows.data_ptr<int>(), num_tokens, num_experts, k, renormalize);
  });
}

}  // namespace moe
}  // namespace vllm

void topk_softmax(torch::Tensor& topk_weights,          // [num_tokens, topk]
                  torch::Tensor& topk_indices,          // [num_tokens, topk]
                  torch::Tensor& token_expert_indices,  // [num_tokens, topk]
                  torch::Tensor& gating_output,         // [num_tokens, num_experts]
                  bool renormalize) {
  TORCH_CHECK(topk_weights.scalar_type() == torch::kFloat32, "topk_weights must be float32");
  TORCH_CHECK(token_expert_indices.scalar_type() == torch::kInt32);
  TORCH_CHECK(gating_output.is_contiguous());
  const at::cuda::OptionalCUDAGuard device_guard(device_of(gating_output));
  if (topk_indices.scalar_type() == at::ScalarType::Int) {
    vllm::moe::launch<int>(gating_output, topk_weights, topk_indices, token_expert_indices,
                           renormalize);
  } else {
    TORCH_CHECK(topk_indices.scalar_type() == at::ScalarType::Long);
    vllm::moe::launch<int64_t>(gating_output, topk_weights, topk_indices, token_expert_indices,
                               renormalize);
  }
}
