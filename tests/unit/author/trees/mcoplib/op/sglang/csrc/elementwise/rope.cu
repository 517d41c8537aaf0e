#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/all.h>

#include "sgl_kernel_ops.h"

namespace {

// A thread turns one pair of one head; the heads of query and key follow each other in the grid.
template <typename scalar_t>
__global__ void rope_kernel(scalar_t* query, scalar_t* key, const scalar_t* cache,
                            const int64_t* positions, int64_t num_heads, int64_t num_kv_heads,
                            int64_t head_size, int64_t rot_dim, bool is_neox) {
  const int64_t token = blockIdx.x;
  const int64_t half = rot_dim / 2;
  const int64_t total = (num_heads + num_kv_heads) * half;
  const scalar_t* angles = cache + positions[token] * rot_dim;
  for (int64_t i = threadIdx.x; i < total; i += blockDim.x) {
    const int64_t head = i / half, pair = i % half;
    scalar_t* base = head < num_heads
                         ? query + (token * num_heads + head) * head_size
                         : key + (token * num_kv_heads + head - num_heads) * head_size;
    scalar_t& a = is_neox ? base[pair] : base[2 * pair];
    scalar_t& b = is_neox ? base[pair + half] : base[2 * pair + 1];
    const float cos = static_cast<float>(angles[pair]);
    const float sin = static_cast<float>(angles[half + pair]);
    const float x = static_cast<float>(a), y = static_cast<float>(b);
    a = static_cast<scalar_t>(x * cos - y * sin);
    b = static_cast<scalar_t>(y * cos + x * sin);
  }
}

}  // namespace

void rotary_embedding(at::Tensor& positions, at::Tensor& query, std::optional<at::Tensor> key,
                      int64_t head_size, at::Tensor& cos_sin_cache, bool is_neox) {
  CHECK_INPUT(query);
  CHECK_INPUT(cos_sin_cache);
  CHECK_EQ(positions.scalar_type(), at::kLong);
  TORCH_CHECK(cos_sin_cache.dtype() == query.dtype(), "cos_sin_cache and query differ in dtype");
  const int64_t num_tokens = positions.numel();
  const int64_t num_heads = query.numel() / num_tokens / head_size;
  const int64_t num_kv_heads = key.has_value() ? key->numel() / num_tokens / head_size : 0;
  const int64_t rot_dim = cos_sin_cache.size(1);
  TORCH_CHECK(rot_dim <= head_size, "rot_dim ", rot_dim, " is larger than head_size ", head_size);

  const c10::cuda::OptionalCUDAGuard guard(query.device());
  auto stream = at::cuda::getCurrentCUDAStream();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::ScalarType::Half, at::ScalarType::BFloat16, query.scalar_type(), "rope", [&] {
        rope_kernel<scalar_t><<<num_tokens, 256, 0, stream>>>(
            query.data_ptr<scalar_t>(), key.has_value() ? key->data_ptr<scalar_t>() : nullptr,
            cos_sin_cache.data_ptr<scalar_t>(), positions.data_ptr<int64_t>(), num_heads,
            num_kv_heads, head_size, rot_dim, is_neox);
      });
}
