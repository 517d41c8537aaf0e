#include <ATen/cuda/CUDAContext.h>
#include <torch/all.h>

#include "ops.h"

namespace vllm {

// Selects by radix: per round eight bits of the order-preserving key, the highest first.
__device__ __forceinline__ uint32_t ordered(float value) {
  const uint32_t bits = __float_as_uint(value);
  return (bits & 0x80000000u) ? ~bits : (bits | 0x80000000u);
}

__global__ void topk_per_row_kernel(const float* __restrict__ logits,
                                    const int* __restrict__ seq_lens,
                                    int* __restrict__ out_indices, int64_t stride0,
                                    int64_t stride1, int next_n, int top_k) {
  __shared__ int histogram[256];
  __shared__ uint32_t prefix;
  __shared__ int wanted, taken, tied;
  const int row = blockIdx.x;
  const int length = seq_lens[row / next_n] - next_n + row % next_n + 1;
  const float* from = logits + row * stride0;
  int* to = out_indices + static_cast<int64_t>(row) * top_k;

  if (length <= top_k) {
    for (int i = threadIdx.x; i < top_k; i += blockDim.x) to[i] = i < length ? i : -1;
    return;
  }
  if (threadIdx.x == 0) {
    prefix = 0;
    wanted = top_k;
    taken = tied = 0;
  }
  __syncthreads();
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < 256; i += blockDim.x) histogram[i] = 0;
    __syncthreads();
    const uint32_t mask = shift == 24 ? 0u : ~0u << (shift + 8);
    for (int i = threadIdx.x; i < length; i += blockDim.x) {
      const uint32_t key = ordered(from[i * stride1]);
      if ((key & mask) == (prefix & mask)) atomicAdd(&histogram[(key >> shift) & 255], 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int digit = 255;
      while (histogram[digit] < wanted) wanted -= histogram[digit--];
      prefix |= static_cast<uint32_t>(digit) << shift;
    }
    __syncthreads();
  }
  const int of_ties = wanted;
  for (int i = threadIdx.x; i < length; i += blockDim.x) {
    const uint32_t key = ordered(from[i * stride1]);
    if (key > prefix) {
      to[atomicAdd(&taken, 1)] = i;
    } else if (key == prefix) {
      const int tie = atomicAdd(&tied, 1);
      if (tie < of_ties) to[top_k - 1 - tie] = i;
    }
  }
}

}  // namespace vllm

void top_k_per_row_decode(const torch::Tensor& logits, int64_t next_n,
                          const torch::Tensor& seqLens, torch::Tensor& indices, int64_t numRows,
                          int64_t stride0, int64_t stride1, int64_t topK) {
  TORCH_CHECK(logits.scalar_type() == torch::kFloat32, "logits must be float32");
  TORCH_CHECK(indices.scalar_type() == torch::kInt32 && seqLens.scalar_type() == torch::kInt32);
  TORCH_CHECK(indices.size(1) == topK, "indices has room for ", indices.size(1), " of ", topK);
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  vllm::topk_per_row_kernel<<<numRows, 512, 0, stream>>>(
      logits.data_ptr<float>(), seqLens.data_ptr<int>(), indices.data_ptr<int>(), stride0,
      stride1, static_cast<int>(next_n), static_cast<int>(topK));
}
