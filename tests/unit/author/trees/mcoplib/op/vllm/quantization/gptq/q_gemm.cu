#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime.h>
#include <torch/all.h>

namespace vllm {
namespace gptq {

// Even nibbles to the lower half of the word, odd ones to the upper half.
__device__ __forceinline__ uint32_t interleave(uint32_t word) {
  uint32_t mixed = 0;
  for (int i = 0; i < 4; ++i) {
    mixed |= ((word >> (8 * i)) & 0xfu) << (4 * i);
    mixed |= ((word >> (8 * i + 4)) & 0xfu) << (16 + 4 * i);
  }
  return mixed;
}

__global__ void shuffle_4bit_kernel(uint32_t* __restrict__ b_q_weight, const int size_k,
                                    const int size_n) {
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= size_n) return;
  for (int k = 0; k < size_k / 8; ++k) {
    uint32_t* at = b_q_weight + static_cast<int64_t>(k) * size_n + n;
    *at = interleave(*at);
  }
}

__global__ void make_sequential_4bit_kernel(const uint32_t* __restrict__ w,
                                            uint32_t* __restrict__ w_new,
                                            const int* __restrict__ q_perm, const int size_k,
                                            const int size_n) {
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  const int word = blockIdx.y;
  if (n >= size_n || word >= size_k / 8) return;
  uint32_t out = 0;
  for (int i = 0; i < 8; ++i) {
    const int from = q_perm[word * 8 + i];
    const uint32_t nibble = (w[static_cast<int64_t>(from / 8) * size_n + n] >> (4 * (from % 8))) & 0xfu;
    out |= nibble << (4 * i);
  }
  w_new[static_cast<int64_t>(word) * size_n + n] = out;
}

void shuffle_exllama_weight(uint32_t* q_weight, int* q_perm, int height, int width, int bit) {
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  dim3 block(128);
  if (q_perm) {
    uint32_t* new_qweight = nullptr;
    const size_t bytes = static_cast<size_t>(height) / 8 * width * sizeof(uint32_t);
    cudaMalloc(&new_qweight, bytes);
    dim3 grid((width + 127) / 128, height / 8);
    make_sequential_4bit_kernel<<<grid, block, 0, stream>>>(q_weight, new_qweight, q_perm, height,
                                                            width);
    cudaMemcpyAsync(q_weight, new_qweight, bytes, cudaMemcpyDeviceToDevice, stream);
    // The copy must be over before the buffer goes.
    cudaDeviceSynchronize();
    cudaFree(new_qweight);
  }
  shuffle_4bit_kernel<<<(width + 127) / 128, block, 0, stream>>>(q_weight, height, width);
}

}  // namespace gptq
}  // namespace vllm

void gptq_shuffle(torch::Tensor q_weight, torch::Tensor q_perm, int64_t bit) {
  TORCH_CHECK(bit == 4, "only 4 bits in this build, not ", bit);
  TORCH_CHECK(q_weight.scalar_type() == at::kInt, "q_weight must be int32");
  const at::cuda::OptionalCUDAGuard device_guard(device_of(q_weight));
  vllm::gptq::shuffle_exllama_weight(
      (uint32_t*)q_weight.data_ptr(),
      q_perm.device().is_meta() || q_perm.numel() == 0 ? NULL : (int*)q_perm.data_ptr(),
      q_weight.size(0) * 32 / bit, q_weight.size(1), bit);
}
