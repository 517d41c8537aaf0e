#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Float8_e4m3fn.h>
#include <torch/all.h>

#include "../../dispatch_utils.h"

namespace vllm {

constexpr float kFp8Max = 448.0f;

template <typename fp8_type>
__device__ __forceinline__ fp8_type to_fp8(float x) {
  return static_cast<fp8_type>(fmaxf(-kFp8Max, fminf(x, kFp8Max)));
}

template <typename scalar_t, typename fp8_type>
__global__ void scaled_fp8_quant_kernel(fp8_type* __restrict__ out,
                                        const scalar_t* __restrict__ input,
                                        const float* __restrict__ scale, int64_t num_elems) {
  // The quotient is a product with the inverse.
  const float inverted = 1.0f / (*scale);
  const int64_t step = static_cast<int64_t>(blockDim.x) * gridDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < num_elems; i += step)
    out[i] = to_fp8<fp8_type>(static_cast<float>(input[i]) * inverted);
}

template <typename scalar_t, typename fp8_type>
__global__ void dynamic_per_token_scaled_fp8_quant_kernel(
    fp8_type* __restrict__ out, float* __restrict__ scale, const scalar_t* __restrict__ input,
    const float* __restrict__ scale_ub, const int hidden_size) {
  const float min_scaling_factor = 1.0f / (kFp8Max * 512.f);
  __shared__ float of_warp[32];
  const int64_t offset = static_cast<int64_t>(blockIdx.x) * hidden_size;
  float largest = 0.f;
  for (int i = threadIdx.x; i < hidden_size; i += blockDim.x)
    largest = fmaxf(largest, fabsf(static_cast<float>(input[offset + i])));
  for (int step = 16; step > 0; step /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = largest;
  __syncthreads();
  for (int warp = 0; warp < (blockDim.x + 31) / 32; ++warp) largest = fmaxf(largest, of_warp[warp]);
  if (scale_ub) largest = fminf(largest, *scale_ub);
  const float token_scale = fmaxf(largest / kFp8Max, min_scaling_factor);
  if (threadIdx.x == 0) scale[blockIdx.x] = token_scale;
  for (int i = threadIdx.x; i < hidden_size; i += blockDim.x)
    out[offset + i] = to_fp8<fp8_type>(static_cast<float>(input[offset + i]) / token_scale);
}

}  // namespace vllm

void static_scaled_fp8_quant(torch::Tensor& out,          // [..., d]
                             torch::Tensor const& input,  // [..., d]
                             torch::Tensor const& scale)  // [1]
{
  TORCH_CHECK(out.scalar_type() == at::ScalarType::Float8_e4m3fn);
  TORCH_CHECK(input.is_contiguous(), "input must be contiguous");
  TORCH_CHECK(scale.numel() == 1, "one scale for the whole tensor");
  const int64_t num_elems = input.numel();
  const int64_t num_tokens = num_elems / input.size(-1);
  const at::cuda::OptionalCUDAGuard device_guard(device_of(input));
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  VLLM_DISPATCH_FLOATING_TYPES(input.scalar_type(), "scaled_fp8_quant_kernel", [&] {
    vllm::scaled_fp8_quant_kernel<scalar_t, c10::Float8_e4m3fn><<<num_tokens, 256, 0, stream>>>(
        out.data_ptr<c10::Float8_e4m3fn>(), input.data_ptr<scalar_t>(), scale.data_ptr<float>(),
        num_elems);
  });
}

void dynamic_per_token_scaled_fp8_quant(torch::Tensor& out,          // [..., d]
                                        torch::Tensor const& input,  // [..., d]
                                        torch::Tensor& scales,       // [num_tokens, 1]
                                        std::optional<at::Tensor> const& scale_ub) {
  TORCH_CHECK(input.is_contiguous());
  TORCH_CHECK(out.is_contiguous());
  const int hidden_size = input.size(-1);
  const int64_t num_tokens = input.numel() / hidden_size;
  const at::cuda::OptionalCUDAGuard device_guard(device_of(input));
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  VLLM_DISPATCH_FLOATING_TYPES(input.scalar_type(), "dynamic_per_token_scaled_fp8_quant_kernel", [&] {
    vllm::dynamic_per_token_scaled_fp8_quant_kernel<scalar_t, c10::Float8_e4m3fn>
        <<<num_tokens, std::min(hidden_size, 1024), 0, stream>>>(
            out.data_ptr<c10::Float8_e4m3fn>(), scales.data_ptr<float>(),
            input.data_ptr<scalar_t>(),
            scale_ub.has_value() ? scale_ub->data_ptr<float>() : nullptr, hidden_size);
  });
}
