#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/all.h>

#include <cmath>

#include "dispatch_utils.h"

namespace vllm {

template <typename T>
__device__ __forceinline__ T silu(const T& x) {
  const float wide = static_cast<float>(x);
  return static_cast<T>(wide / (1.0f + expf(-wide)));
}

template <typename T>
__device__ __forceinline__ T gelu(const T& x) {
  const float wide = static_cast<float>(x);
  return static_cast<T>(0.5f * wide * (1.0f + erff(wide * 0.70710678f)));
}

// One block a token. ACT_FIRST: the activation is applied to the first half.
template <typename scalar_t, scalar_t (*ACT)(const scalar_t&), bool ACT_FIRST>
__global__ void gated_kernel(
    scalar_t* __restrict__ out,          // [..., d]
    const scalar_t* __restrict__ input,  // [..., 2, d]
    const int d) {
  const int64_t row = blockIdx.x;
  const scalar_t* first = input + row * 2 * d;
  const scalar_t* second = first + d;
  for (int64_t i = threadIdx.x; i < d; i += blockDim.x) {
    const scalar_t a = __ldg(first + i);
    const scalar_t b = __ldg(second + i);
    out[row * d + i] = ACT_FIRST ? ACT(a) * b : a * ACT(b);
  }
}

// FATReLU: what does not exceed the threshold is zero.
template <typename scalar_t>
__global__ void fatrelu_kernel(scalar_t* __restrict__ out,
                               const scalar_t* __restrict__ input, const int d,
                               const float threshold) {
  const int64_t row = blockIdx.x;
  for (int64_t i = threadIdx.x; i < d; i += blockDim.x) {
    const float gate = static_cast<float>(input[row * 2 * d + i]);
    const scalar_t up = input[row * 2 * d + d + i];
    out[row * d + i] =
        static_cast<scalar_t>(gate > threshold ? gate : 0.0f) * up;
  }
}

}  // namespace vllm

// The grid is over tokens; a block of at most 1024 threads strides over a row.
#define LAUNCH_GATED(ACT, ACT_FIRST)                                        \
  const int d = static_cast<int>(input.size(-1) / 2);                       \
  const int64_t num_tokens = input.numel() / input.size(-1);                \
  if (num_tokens == 0) return;                                              \
  dim3 grid(num_tokens);                                                    \
  dim3 block(std::min(d, 1024));                                            \
  const at::cuda::OptionalCUDAGuard device_guard(device_of(input));         \
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();             \
  VLLM_DISPATCH_FLOATING_TYPES(input.scalar_type(), "gated_kernel", [&] {   \
    vllm::gated_kernel<scalar_t, ACT<scalar_t>, ACT_FIRST>                  \
        <<<grid, block, 0, stream>>>(out.data_ptr<scalar_t>(),              \
                                     input.data_ptr<scalar_t>(), d);        \
  });

void silu_and_mul(torch::Tensor& out,    // [..., d]
                  torch::Tensor& input)  // [..., 2 * d]
{
  TORCH_CHECK(input.is_contiguous(), "input must be contiguous");
  TORCH_CHECK(input.size(-1) == 2 * out.size(-1),
              "input is twice as wide as out");
  TORCH_CHECK(input.scalar_type() == out.scalar_type());
  LAUNCH_GATED(vllm::silu, true);
}

void mul_and_silu(torch::Tensor& out,    // [..., d]
                  torch::Tensor& input)  // [..., 2 * d]
{
  // The activation is on the second half here.
  LAUNCH_GATED(vllm::silu, false);
}

void gelu_and_mul(torch::Tensor& out, torch::Tensor& input) {
  LAUNCH_GATED(vllm::gelu, true);
}

void fatrelu_and_mul(torch::Tensor& out,    // [..., d],
                     torch::Tensor& input,  // [..., 2 * d]
                     double threshold) {
  TORCH_CHECK(input.is_contiguous());
  TORCH_CHECK(input.size(-1) % 2 == 0, "the last dimension of input, ",
              input.size(-1), ", is not even");
  const int d = static_cast<int>(input.size(-1) / 2);
  const int64_t num_tokens = input.numel() / input.size(-1);
  dim3 grid(num_tokens);
  dim3 block(std::min(d, 1024));
  const at::cuda::OptionalCUDAGuard device_guard(device_of(input));
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  VLLM_DISPATCH_FLOATING_TYPES(input.scalar_type(), "fatrelu_kernel", [&] {
    vllm::fatrelu_kernel<scalar_t><<<grid, block, 0, stream>>>(
        out.data_ptr<scalar_t>(), input.data_ptr<scalar_t>(), d,
        static_cast<float>(threshold));
  });
}
