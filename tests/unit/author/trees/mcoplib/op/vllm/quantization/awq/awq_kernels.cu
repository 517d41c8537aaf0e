#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/all.h>

namespace vllm {
namespace awq {

// Column j of eight lies in nibble 4 * (j % 2) + j / 2: 0 4 1 5 2 6 3 7.
__device__ __forceinline__ int nibble_of(uint32_t word, int column) {
  const int place = 4 * (column % 2) + column / 2;
  return (word >> (4 * place)) & 0xf;
}

// A thread unpacks one word: eight columns of one row.
template <typename scalar_t>
__global__ void dequantize_weights(const uint32_t* __restrict__ weight,
                                   const scalar_t* __restrict__ scales,
                                   const uint32_t* __restrict__ zeros,
                                   scalar_t* __restrict__ out, int64_t rows, int64_t words,
                                   int64_t group_size) {
  const int64_t column = blockIdx.x * blockDim.x + threadIdx.x;
  const int64_t row = blockIdx.y * blockDim.y + threadIdx.y;
  if (column >= words || row >= rows) return;
  const int64_t group = row / group_size;
  const uint32_t packed = weight[row * words + column];
  const uint32_t zero = zeros[group * words + column];
  for (int j = 0; j < 8; ++j) {
    const int64_t at = column * 8 + j;
    const float centred = static_cast<float>(nibble_of(packed, j) - nibble_of(zero, j));
    const float scale = static_cast<float>(scales[group * words * 8 + at]);
    out[row * words * 8 + at] = static_cast<scalar_t>(centred * scale);
  }
}

}  // namespace awq
}  // namespace vllm

torch::Tensor awq_dequantize(torch::Tensor _kernel,           // [in_c, out_c / 8]
                             torch::Tensor _scaling_factors,  // [in_c / G, out_c]
                             torch::Tensor _zeros,            // [in_c / G, out_c / 8]
                             int64_t split_k_iters, int64_t thx, int64_t thy) {
  const int64_t in_c = _kernel.size(0);
  const int64_t words = _kernel.size(1);
  const int64_t G = in_c / _scaling_factors.size(0);
  TORCH_CHECK(_kernel.scalar_type() == at::kInt && _zeros.scalar_type() == at::kInt,
              "packed weights and zeros are int32");
  TORCH_CHECK(_scaling_factors.size(1) == words * 8, "scales have a column for each of out's");
  TORCH_CHECK(_scaling_factors.scalar_type() == at::ScalarType::Half ||
                  _scaling_factors.scalar_type() == at::ScalarType::BFloat16,
              "scales must be float16 or bfloat16");
  const at::cuda::OptionalCUDAGuard device_guard(device_of(_scaling_factors));
  auto options = torch::TensorOptions().dtype(_scaling_factors.dtype()).device(
      _scaling_factors.device());
  at::Tensor out = torch::empty({in_c, words * 8}, options);
  dim3 block(thx > 0 ? thx : 32, thy > 0 ? thy : 8);
  dim3 grid((words + block.x - 1) / block.x, (in_c + block.y - 1) / block.y);
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  AT_DISPATCH_REDUCED_FLOATING_TYPES(_scaling_factors.scalar_type(), "dequantize_weights", [&] {
    vllm::awq::dequantize_weights<scalar_t><<<grid, block, 0, stream>>>(
        reinterpret_cast<const uint32_t*>(_kernel.data_ptr<int>()),
        _scaling_factors.data_ptr<scalar_t>(),
        reinterpret_cast<const uint32_t*>(_zeros.data_ptr<int>()), out.data_ptr<scalar_t>(), in_c,
        words, G);
  });
  return out;
}
