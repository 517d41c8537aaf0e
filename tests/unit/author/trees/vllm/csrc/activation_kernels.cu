#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/all.h>

#include <cmath>

#include "dispatch_utils.h"

namespace vllm {

template <typename T>
__device__ __forceinline__ T gelu_new_kernel(const T& x) {
  const float v = static_cast<float>(x);
  const float inner = 0.79788456f * (v + 0.044715f * v * v * v);
  return static_cast<T>(0.5f * v * (1.0f + tanhf(inner)));
}

template <typename T>
__device__ __forceinline__ T gelu_quick_kernel(const T& x) {
  const float v = static_cast<float>(x);
  return static_cast<T>(v / (1.0f + expf(-1.702f * v)));
}

template <typename scalar_t, scalar_t (*ACT_FN)(const scalar_t&)>
__global__ void activation_kernel(scalar_t* __restrict__ out,          // [..., d]
                                  const scalar_t* __restrict__ input,  // [..., d]
                                  const int d) {
  const int64_t row = blockIdx.x;
  for (int64_t i = threadIdx.x; i < d; i += blockDim.x) out[row * d + i] = ACT_FN(input[row * d + i]);
}

}  // namespace vllm

#define LAUNCH_ACTIVATION_KERNEL(KERNEL)                                                \
  int d = input.size(-1);                                                               \
  int64_t num_tokens = input.numel() / d;                                               \
  const at::cuda::OptionalCUDAGuard device_guard(device_of(input));                     \
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();                         \
  VLLM_DISPATCH_FLOATING_TYPES(input.scalar_type(), "activation_kernel", [&] {          \
    vllm::activation_kernel<scalar_t, KERNEL<scalar_t>>                                 \
        <<<num_tokens, std::min(d, 1024), 0, stream>>>(out.data_ptr<scalar_t>(),        \
                                                       input.data_ptr<scalar_t>(), d);  \
  });

void gelu_new(torch::Tensor& out,    // [..., d]
              torch::Tensor& input)  // [..., d]
{
  LAUNCH_ACTIVATION_KERNEL(vllm::gelu_new_kernel);
}

void gelu_quick(torch::Tensor& out,    // [..., d]
                torch::Tensor& input)  // [..., d]
{
  LAUNCH_ACTIVATION_KERNEL(vllm::gelu_quick_kernel);
}
