#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/all.h>

#include "../dispatch_utils.h"
#include "moe_ops.h"

#define CEILDIV(x, y) (((x) + (y) - 1) / (y))

namespace vllm {
namespace moe {

// One block: counts, then prefix sums of whole blocks, then everybody finds a slot.
template <typename scalar_t>
__global__ void moe_align_block_size_kernel(
    const scalar_t* __restrict__ topk_ids, int32_t* __restrict__ sorted_token_ids,
    int32_t* __restrict__ expert_ids, int32_t* __restrict__ total_tokens_post_pad,
    const int num_experts, const int block_size, const size_t numel, const int max_ids) {
  extern __shared__ int32_t shared_mem[];
  int32_t* start = shared_mem;                    // [num_experts + 1]
  int32_t* next = shared_mem + num_experts + 1;   // [num_experts]
  for (int e = threadIdx.x; e < num_experts; e += blockDim.x) next[e] = 0;
  for (int i = threadIdx.x; i < max_ids; i += blockDim.x)
    sorted_token_ids[i] = static_cast<int32_t>(numel);
  __syncthreads();
  for (size_t i = threadIdx.x; i < numel; i += blockDim.x) atomicAdd(&next[topk_ids[i]], 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    start[0] = 0;
    for (int e = 0; e < num_experts; ++e)
      start[e + 1] = start[e] + CEILDIV(next[e], block_size) * block_size;
    *total_tokens_post_pad = start[num_experts];
  }
  __syncthreads();
  for (int e = threadIdx.x; e < num_experts; e += blockDim.x) {
    for (int at = start[e]; at < start[e + 1]; at += block_size) expert_ids[at / block_size] = e;
    next[e] = start[e];
  }
  __syncthreads();
  for (size_t i = threadIdx.x; i < numel; i += blockDim.x) {
    const int32_t at = atomicAdd(&next[topk_ids[i]], 1);
    sorted_token_ids[at] = static_cast<int32_t>(i);
  }
}

template <typename scalar_t>
__global__ void moe_sum_kernel(scalar_t* __restrict__ out, const scalar_t* __restrict__ input,
                               const int topk, const int d) {
  for (int i = threadIdx.x; i < d; i += blockDim.x) {
    scalar_t sum = 0;
    for (int k = 0; k < topk; ++k) sum += input[(blockIdx.x * topk + k) * d + i];
    out[blockIdx.x * d + i] = sum;
  }
}

}  // namespace moe
}  // namespace vllm

// Fills sorted_token_ids, experts_ids and num_tokens_post_pad; what lies behind the padded
// length is left alone in experts_ids.
void moe_align_block_size(torch::Tensor topk_ids, int64_t num_experts, int64_t block_size,
                          torch::Tensor sorted_token_ids, torch::Tensor experts_ids,
                          torch::Tensor num_tokens_post_pad) {
  TORCH_CHECK(num_experts <= 1024, "at most 1024 experts");
  TORCH_CHECK(sorted_token_ids.scalar_type() == torch::kInt32);
  const at::cuda::OptionalCUDAGuard device_guard(device_of(topk_ids));
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  const size_t shared_bytes = (2 * num_experts + 1) * sizeof(int32_t);
  VLLM_DISPATCH_INTEGRAL_TYPES(topk_ids.scalar_type(), "moe_align_block_size_kernel", [&] {
    vllm::moe::moe_align_block_size_kernel<scalar_t><<<1, 1024, shared_bytes, stream>>>(
        topk_ids.data_ptr<scalar_t>(), sorted_token_ids.data_ptr<int32_t>(),
        experts_ids.data_ptr<int32_t>(), num_tokens_post_pad.data_ptr<int32_t>(), num_experts,
        block_size, topk_ids.numel(), sorted_token_ids.numel());
  });
}

void moe_sum(torch::Tensor& input,   // [num_tokens, topk, hidden_size]
             torch::Tensor& output)  // [num_tokens, hidden_size]
{
  const int hidden_size = input.size(-1);
  const int topk = input.size(1);
  const at::cuda::OptionalCUDAGuard device_guard(device_of(output));
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  VLLM_DISPATCH_FLOATING_TYPES(input.scalar_type(), "moe_sum_kernel", [&] {
    vllm::moe::moe_sum_kernel<scalar_t><<<output.numel() / hidden_size, 256, 0, stream>>>(
        output.data_ptr<scalar_t>(), input.data_ptr<scalar_t>(), topk, hidden_size);
  });
}
