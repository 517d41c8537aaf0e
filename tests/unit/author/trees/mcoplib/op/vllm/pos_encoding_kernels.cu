#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/all.h>

#include "dispatch_utils.h"

namespace vllm {

template <typename scalar_t, bool IS_NEOX>
inline __device__ void rotate_pair(scalar_t* __restrict__ head,
                                   const scalar_t* __restrict__ cos_ptr,
                                   const scalar_t* __restrict__ sin_ptr,
                                   const int pair, const int embed_dim) {
  // Neox: element i goes with i + embed_dim; GPT-J: neighbours.
  const int x_index = IS_NEOX ? pair : 2 * pair;
  const int y_index = IS_NEOX ? embed_dim + pair : 2 * pair + 1;
  const scalar_t cos = __ldg(cos_ptr + pair);
  const scalar_t sin = __ldg(sin_ptr + pair);
  const scalar_t x = head[x_index];
  const scalar_t y = head[y_index];
  head[x_index] = x * cos - y * sin;
  head[y_index] = y * cos + x * sin;
}

template <typename scalar_t, bool IS_NEOX>
__global__ void rotary_embedding_kernel(
    const int64_t* __restrict__ positions,  // [batch_size, seq_len] or [num_tokens]
    scalar_t* __restrict__ query,           // [num_tokens, num_heads, head_size]
    scalar_t* __restrict__ key,             // nullptr or [num_tokens, num_kv_heads, head_size]
    const scalar_t* __restrict__ cos_sin_cache,  // [max_position, 2, rot_dim / 2]
    const int rot_dim, const int64_t query_stride, const int64_t key_stride,
    const int num_heads, const int num_kv_heads, const int head_size) {
  const int token = blockIdx.x;
  const int embed_dim = rot_dim / 2;
  const scalar_t* row = cos_sin_cache + positions[token] * rot_dim;
  for (int i = threadIdx.x; i < num_heads * embed_dim; i += blockDim.x)
    rotate_pair<scalar_t, IS_NEOX>(
        query + token * query_stride + (i / embed_dim) * head_size, row,
        row + embed_dim, i % embed_dim, embed_dim);
  if (key == nullptr) return;
  for (int i = threadIdx.x; i < num_kv_heads * embed_dim; i += blockDim.x)
    rotate_pair<scalar_t, IS_NEOX>(
        key + token * key_stride + (i / embed_dim) * head_size, row,
        row + embed_dim, i % embed_dim, embed_dim);
}

}  // namespace vllm

void rotary_embedding(
    torch::Tensor& positions,  // [batch_size, seq_len] or [num_tokens]
    torch::Tensor& query,      // [..., num_heads * head_size] or [..., num_heads, head_size]
    std::optional<torch::Tensor> key,  // null or like query with num_kv_heads
    int64_t head_size,
    torch::Tensor& cos_sin_cache,  // [max_position, rot_dim]
    bool is_neox) {
  const int64_t num_tokens = positions.numel();
  const int positions_ndim = positions.dim();
  TORCH_CHECK(positions_ndim == 1 || positions_ndim == 2,
              "positions must have shape [num_tokens] or [batch_size, seq_len]");
  TORCH_CHECK(positions.scalar_type() == at::ScalarType::Long);
  TORCH_CHECK(query.size(0) == positions.size(0) &&
                  (!key.has_value() || key->size(0) == positions.size(0)),
              "query, key and positions must have the same number of tokens");
  TORCH_CHECK(cos_sin_cache.scalar_type() == query.scalar_type(),
              "cos_sin_cache must have the dtype of query");

  const int64_t query_hidden = query.numel() / num_tokens;
  const int64_t key_hidden = key.has_value() ? key->numel() / num_tokens : 0;
  TORCH_CHECK(query_hidden % head_size == 0);
  TORCH_CHECK(key_hidden % head_size == 0);
  const int num_heads = query_hidden / head_size;
  const int num_kv_heads = key.has_value() ? key_hidden / head_size : num_heads;
  TORCH_CHECK(num_heads % num_kv_heads == 0);

  const int rot_dim = cos_sin_cache.size(1);
  const int seq_dim = positions_ndim - 1;
  const int64_t query_stride = query.stride(seq_dim);
  const int64_t key_stride = key.has_value() ? key->stride(seq_dim) : 0;

  dim3 grid(num_tokens);
  dim3 block(std::min<int64_t>(num_heads * rot_dim / 2, 512));
  const at::cuda::OptionalCUDAGuard device_guard(device_of(query));
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  VLLM_DISPATCH_FLOATING_TYPES(query.scalar_type(), "rotary_embedding", [&] {
    auto* key_ptr = key.has_value() ? key->data_ptr<scalar_t>() : nullptr;
    if (is_neox) {
      vllm::rotary_embedding_kernel<scalar_t, true><<<grid, block, 0, stream>>>(
          positions.data_ptr<int64_t>(), query.data_ptr<scalar_t>(), key_ptr,
          cos_sin_cache.data_ptr<scalar_t>(), rot_dim, query_stride, key_stride,
          num_heads, num_kv_heads, head_size);
    } else {
      vllm::rotary_embedding_kernel<scalar_t, false><<<grid, block, 0, stream>>>(
          positions.data_ptr<int64_t>(), query.data_ptr<scalar_t>(), key_ptr,
          cos_sin_cache.data_ptr<scalar_t>(), rot_dim, query_stride, key_stride,
          num_heads, num_kv_heads, head_size);
    }
  });
}
