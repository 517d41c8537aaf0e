#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/all.h>

#include "dispatch_utils.h"
#include "cache.h"

namespace vllm {

// One block a token; its place in the caches is slot / block_size, slot % block_size.
template <typename scalar_t>
__global__ void reshape_and_cache_kernel(
    const scalar_t* __restrict__ key,    // [num_tokens, num_heads, head_size]
    const scalar_t* __restrict__ value,  // [num_tokens, num_heads, head_size]
    scalar_t* __restrict__ key_cache,    // [num_blocks, num_heads, head_size/x, block_size, x]
    scalar_t* __restrict__ value_cache,  // [num_blocks, num_heads, head_size, block_size]
    const int64_t* __restrict__ slot_mapping,  // [num_tokens]
    const int key_stride, const int value_stride, const int num_heads,
    const int head_size, const int block_size, const int x) {
  const int64_t token = blockIdx.x;
  const int64_t slot = slot_mapping[token];
  if (slot < 0) return;  // a padding token
  const int64_t block = slot / block_size;
  const int64_t offset = slot % block_size;
  for (int i = threadIdx.x; i < num_heads * head_size; i += blockDim.x) {
    const int head = i / head_size;
    const int element = i % head_size;
    const int64_t to_key =
        (((block * num_heads + head) * (head_size / x) + element / x) * block_size + offset) * x +
        element % x;
    const int64_t to_value =
        ((block * num_heads + head) * head_size + element) * block_size + offset;
    key_cache[to_key] = key[token * key_stride + i];
    value_cache[to_value] = value[token * value_stride + i];
  }
}

template <typename scalar_t>
__global__ void copy_blocks_kernel(int64_t* key_cache_ptrs, int64_t* value_cache_ptrs,
                                   const int64_t* __restrict__ block_mapping,
                                   const int numel_per_block) {
  scalar_t* key_cache = reinterpret_cast<scalar_t*>(key_cache_ptrs[blockIdx.x]);
  scalar_t* value_cache = reinterpret_cast<scalar_t*>(value_cache_ptrs[blockIdx.x]);
  const int64_t from = block_mapping[2 * blockIdx.y] * numel_per_block;
  const int64_t to = block_mapping[2 * blockIdx.y + 1] * numel_per_block;
  for (int i = threadIdx.x; i < numel_per_block; i += blockDim.x) {
    key_cache[to + i] = key_cache[from + i];
    value_cache[to + i] = value_cache[from + i];
  }
}

}  // namespace vllm

void reshape_and_cache(
    torch::Tensor& key,           // [num_tokens, num_heads, head_size]
    torch::Tensor& value,         // [num_tokens, num_heads, head_size]
    torch::Tensor& key_cache,     // [num_blocks, num_heads, head_size/x, block_size, x]
    torch::Tensor& value_cache,   // [num_blocks, num_heads, head_size, block_size]
    torch::Tensor& slot_mapping,  // [num_tokens]
    const std::string& kv_cache_dtype, torch::Tensor& k_scale, torch::Tensor& v_scale) {
  const int num_tokens = slot_mapping.size(0);
  const int num_heads = key.size(1);
  const int head_size = key.size(2);
  const int block_size = key_cache.size(3);
  const int x = key_cache.size(4);
  TORCH_CHECK(kv_cache_dtype == "auto", "this build has no fp8 caches: ", kv_cache_dtype);
  TORCH_CHECK(head_size % x == 0);
  TORCH_CHECK(slot_mapping.scalar_type() == torch::kInt64, "slot_mapping must be int64");

  const int key_stride = key.stride(0);
  const int value_stride = value.stride(0);
  dim3 grid(num_tokens);
  dim3 block(std::min(num_heads * head_size, 512));
  const at::cuda::OptionalCUDAGuard device_guard(device_of(key));
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  VLLM_DISPATCH_FLOATING_TYPES(key.scalar_type(), "reshape_and_cache_kernel", [&] {
    vllm::reshape_and_cache_kernel<scalar_t><<<grid, block, 0, stream>>>(
        key.data_ptr<scalar_t>(), value.data_ptr<scalar_t>(), key_cache.data_ptr<scalar_t>(),
        value_cache.data_ptr<scalar_t>(), slot_mapping.data_ptr<int64_t>(), key_stride,
        value_stride, num_heads, head_size, block_size, x);
  });
}

void copy_blocks(std::vector<torch::Tensor> const& key_caches,
                 std::vector<torch::Tensor> const& value_caches,
                 const torch::Tensor& block_mapping) {
  const int num_layers = key_caches.size();
  TORCH_CHECK(num_layers == static_cast<int>(value_caches.size()));
  if (num_layers == 0) return;
  torch::Device cache_device = key_caches[0].device();
  TORCH_CHECK(cache_device.is_cuda());
  std::vector<int64_t> pointers(2 * num_layers);
  for (int layer = 0; layer < num_layers; ++layer) {
    pointers[layer] = reinterpret_cast<int64_t>(key_caches[layer].data_ptr());
    pointers[num_layers + layer] = reinterpret_cast<int64_t>(value_caches[layer].data_ptr());
  }
  torch::Tensor on_device = torch::tensor(pointers, torch::kInt64).to(cache_device);
  int64_t* first = on_device.data_ptr<int64_t>();
  const int numel_per_block = key_caches[0][0].numel();
  dim3 grid(num_layers, block_mapping.size(0));
  dim3 block(std::min(1024, numel_per_block));
  const at::cuda::OptionalCUDAGuard device_guard(cache_device);
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  VLLM_DISPATCH_FLOATING_TYPES(key_caches[0].scalar_type(), "copy_blocks_kernel", [&] {
    vllm::copy_blocks_kernel<scalar_t><<<grid, block, 0, stream>>>(
        first, first + num_layers, block_mapping.data_ptr<int64_t>(), numel_per_block);
  });
}
