#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/all.h>

#include "../dispatch_utils.h"
#include "moe_ops.h"

namespace vllm {
namespace moe {

template <typename scalar_t, int TOPK>
__global__ void moe_sum_kernel(scalar_t* __restrict__ out,          // [..., d]
                               const scalar_t* __restrict__ input,  // [..., topk, d]
                               const int d) {
  const int64_t token_idx = blockIdx.x;
  for (int64_t idx = threadIdx.x; idx < d; idx += blockDim.x) {
    float x = 0.0f;
#pragma unroll
    for (int k = 0; k < TOPK; ++k)
      x += static_cast<float>(input[token_idx * TOPK * d + k * d + idx]);
    out[token_idx * d + idx] = static_cast<scalar_t>(x);
  }
}

}  // namespace moe
}  // namespace vllm

#define LAUNCH_SUM(TOPK)                                                                 \
  VLLM_DISPATCH_FLOATING_TYPES(input.scalar_type(), "moe_sum_kernel", [&] {              \
    vllm::moe::moe_sum_kernel<scalar_t, TOPK><<<grid, block, 0, stream>>>(               \
        output.data_ptr<scalar_t>(), input.data_ptr<scalar_t>(), hidden_size);           \
  });

void moe_sum(torch::Tensor& input,   // [num_tokens, topk, hidden_size]
             torch::Tensor& output)  // [num_tokens, hidden_size]
{
  const int hidden_size = input.size(-1);
  const auto num_tokens = output.numel() / hidden_size;
  const int topk = input.size(1);

  dim3 grid(num_tokens);
  dim3 block(std::min(hidden_size, 1024));
  const at::cuda::OptionalCUDAGuard device_guard(device_of(output));
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();

  switch (topk) {
    case 2:
      LAUNCH_SUM(2);
      break;
    case 4:
      LAUNCH_SUM(4);
      break;
    default:
      at::sum_out(output, input, 1);
      break;
  }
}
