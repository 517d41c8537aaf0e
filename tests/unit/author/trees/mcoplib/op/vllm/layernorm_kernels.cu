#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/all.h>

#include "dispatch_utils.h"

namespace vllm {

// Sum over a block of up to 1024 threads; every thread gets it.
__device__ __forceinline__ float block_sum(float value) {
  __shared__ float of_warp[32];
  for (int offset = warpSize / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xffffffff, value, offset);
  const int lane = threadIdx.x % warpSize;
  const int warp = threadIdx.x / warpSize;
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  const int warps = (blockDim.x + warpSize - 1) / warpSize;
  float total = 0.0f;
  for (int i = 0; i < warps; ++i) total += of_warp[i];
  __syncthreads();
  return total;
}

template <typename scalar_t>
__global__ void rms_norm_kernel(
    scalar_t* __restrict__ out,           // [..., hidden_size]
    const scalar_t* __restrict__ input,   // [..., hidden_size]
    const scalar_t* __restrict__ weight,  // [hidden_size]
    const float epsilon, const int hidden_size) {
  const scalar_t* row = input + static_cast<int64_t>(blockIdx.x) * hidden_size;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < hidden_size; i += blockDim.x) {
    const float x = static_cast<float>(row[i]);
    squares += x * x;
  }
  const float scale = rsqrtf(block_sum(squares) / hidden_size + epsilon);
  scalar_t* to = out + static_cast<int64_t>(blockIdx.x) * hidden_size;
  for (int i = threadIdx.x; i < hidden_size; i += blockDim.x)
    to[i] = static_cast<scalar_t>(static_cast<float>(row[i]) * scale) * weight[i];
}

// The sum goes to residual, its norm to input.
template <typename scalar_t>
__global__ void fused_add_rms_norm_kernel(
    scalar_t* __restrict__ input,         // [..., hidden_size]
    scalar_t* __restrict__ residual,      // [..., hidden_size]
    const scalar_t* __restrict__ weight,  // [hidden_size]
    const float epsilon, const int hidden_size) {
  const int64_t start = static_cast<int64_t>(blockIdx.x) * hidden_size;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < hidden_size; i += blockDim.x) {
    const scalar_t z = input[start + i] + residual[start + i];
    const float x = static_cast<float>(z);
    squares += x * x;
    residual[start + i] = z;
  }
  const float scale = rsqrtf(block_sum(squares) / hidden_size + epsilon);
  for (int i = threadIdx.x; i < hidden_size; i += blockDim.x) {
    const float x = static_cast<float>(residual[start + i]);
    input[start + i] = static_cast<scalar_t>(x * scale) * weight[i];
  }
}

}  // namespace vllm

void rms_norm(torch::Tensor& out,     // [..., hidden_size]
              torch::Tensor& input,   // [..., hidden_size]
              torch::Tensor& weight,  // [hidden_size]
              double epsilon) {
  TORCH_CHECK(out.is_contiguous());
  TORCH_CHECK(input.is_contiguous());
  TORCH_CHECK(weight.is_contiguous());

  const int hidden_size = input.size(-1);
  const int64_t num_tokens = input.numel() / hidden_size;

  dim3 grid(num_tokens);
  dim3 block(std::min(hidden_size, 1024));
  const at::cuda::OptionalCUDAGuard device_guard(device_of(input));
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  VLLM_DISPATCH_FLOATING_TYPES(input.scalar_type(), "rms_norm_kernel", [&] {
    vllm::rms_norm_kernel<scalar_t><<<grid, block, 0, stream>>>(
        out.data_ptr<scalar_t>(), input.data_ptr<scalar_t>(),
        weight.data_ptr<scalar_t>(), epsilon, hidden_size);
  });
}

void fused_add_rms_norm(torch::Tensor& input,     // [..., hidden_size]
                        torch::Tensor& residual,  // [..., hidden_size]
                        torch::Tensor& weight,    // [hidden_size]
                        double epsilon) {
  TORCH_CHECK(weight.scalar_type() == input.scalar_type());
  TORCH_CHECK(input.scalar_type() == residual.scalar_type());
  TORCH_CHECK(residual.is_contiguous());
  TORCH_CHECK(weight.is_contiguous());
  TORCH_CHECK(input.sizes() == residual.sizes(),
              "input and residual are of one shape");

  const int hidden_size = input.size(-1);
  const int64_t num_tokens = input.numel() / hidden_size;

  dim3 grid(num_tokens);
  /* Few tokens do not fill the device: larger blocks hide the latency. */
  const int max_block_size = (num_tokens < 256) ? 1024 : 256;
  dim3 block(std::min(hidden_size, max_block_size));
  const at::cuda::OptionalCUDAGuard device_guard(device_of(input));
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  VLLM_DISPATCH_FLOATING_TYPES(
      input.scalar_type(), "fused_add_rms_norm_kernel", [&] {
        vllm::fused_add_rms_norm_kernel<scalar_t><<<grid, block, 0, stream>>>(
            input.data_ptr<scalar_t>(), residual.data_ptr<scalar_t>(),
            weight.data_ptr<scalar_t>(), epsilon, hidden_size);
      });
}
