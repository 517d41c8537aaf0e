#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/all.h>

#include <cfloat>

#include "../dispatch_utils.h"
#include "../ops.h"

namespace vllm {

// One block a (head, sequence); the scores of the whole sequence lie in shared memory.
template <typename scalar_t>
__global__ void paged_attention_v1_kernel(
    scalar_t* __restrict__ out,            // [num_seqs, num_heads, head_size]
    const scalar_t* __restrict__ q,        // [num_seqs, num_heads, head_size]
    const scalar_t* __restrict__ k_cache,  // [num_blocks, num_kv_heads, head_size/x, block_size, x]
    const scalar_t* __restrict__ v_cache,  // [num_blocks, num_kv_heads, head_size, block_size]
    const int num_kv_heads, const float scale,
    const int* __restrict__ block_tables,  // [num_seqs, max_num_blocks_per_seq]
    const int* __restrict__ seq_lens,      // [num_seqs]
    const int max_blocks_per_seq, const float* __restrict__ alibi_slopes, const int head_size,
    const int block_size, const int x) {
  extern __shared__ float score[];
  const int head = blockIdx.x, seq = blockIdx.y;
  const int num_heads = gridDim.x;
  const int kv_head = head / (num_heads / num_kv_heads);
  const int seq_len = seq_lens[seq];
  const float slope = alibi_slopes == nullptr ? 0.f : alibi_slopes[head];
  const scalar_t* query = q + (static_cast<int64_t>(seq) * num_heads + head) * head_size;

  __shared__ float total;
  for (int t = threadIdx.x; t < seq_len; t += blockDim.x) {
    const int64_t block = block_tables[seq * max_blocks_per_seq + t / block_size];
    const scalar_t* keys = k_cache + (block * num_kv_heads + kv_head) * head_size * block_size;
    float dot = 0.f;
    for (int i = 0; i < head_size; ++i)
      dot += static_cast<float>(query[i]) *
             static_cast<float>(keys[((i / x) * block_size + t % block_size) * x + i % x]);
    score[t] = dot * scale + slope * (t - seq_len + 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    float largest = -FLT_MAX;
    for (int t = 0; t < seq_len; ++t) largest = fmaxf(largest, score[t]);
    total = 0.f;
    for (int t = 0; t < seq_len; ++t) total += (score[t] = expf(score[t] - largest));
  }
  __syncthreads();
  for (int i = threadIdx.x; i < head_size; i += blockDim.x) {
    float sum = 0.f;
    for (int t = 0; t < seq_len; ++t) {
      const int64_t block = block_tables[seq * max_blocks_per_seq + t / block_size];
      const scalar_t* values = v_cache + (block * num_kv_heads + kv_head) * head_size * block_size;
      sum += score[t] * static_cast<float>(values[i * block_size + t % block_size]);
    }
    out[(static_cast<int64_t>(seq) * num_heads + head) * head_size + i] =
        static_cast<scalar_t>(sum / total);
  }
}

}  // namespace vllm

void paged_attention_v1(
    torch::Tensor& out,          // [num_seqs, num_heads, head_size]
    torch::Tensor& query,        // [num_seqs, num_heads, head_size]
    torch::Tensor& key_cache,    // [num_blocks, num_heads, head_size/x, block_size, x]
    torch::Tensor& value_cache,  // [num_blocks, num_heads, head_size, block_size]
    int64_t num_kv_heads, double scale,
    torch::Tensor& block_tables,  // [num_seqs, max_num_blocks_per_seq]
    torch::Tensor& seq_lens,      // [num_seqs]
    int64_t block_size, int64_t max_seq_len, const std::optional<torch::Tensor>& alibi_slopes,
    const std::string& kv_cache_dtype, torch::Tensor& k_scale, torch::Tensor& v_scale) {
  const int num_seqs = query.size(0);
  const int num_heads = query.size(1);
  const int head_size = query.size(2);
  TORCH_CHECK(num_heads % num_kv_heads == 0, "num_heads must be a multiple of num_kv_heads");
  TORCH_CHECK(block_size == 8 || block_size == 16 || block_size == 32,
              "Unsupported block size: ", block_size);
  TORCH_CHECK(head_size == 64 || head_size == 80 || head_size == 96 || head_size == 112 ||
                  head_size == 120 || head_size == 128 || head_size == 192 || head_size == 256,
              "Unsupported head size: ", head_size);
  TORCH_CHECK(kv_cache_dtype == "auto", "this build has no fp8 caches: ", kv_cache_dtype);
  TORCH_CHECK(block_tables.scalar_type() == torch::kInt32 &&
              seq_lens.scalar_type() == torch::kInt32);

  // No paged_attention_v2 here: a longer sequence does not fit into shared memory.
  const int64_t shared_bytes = max_seq_len * sizeof(float);
  dim3 grid(num_heads, num_seqs);
  const at::cuda::OptionalCUDAGuard device_guard(device_of(query));
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  const float* slopes =
      alibi_slopes ? reinterpret_cast<const float*>(alibi_slopes.value().data_ptr()) : nullptr;
  VLLM_DISPATCH_FLOATING_TYPES(query.scalar_type(), "paged_attention_v1_kernel", [&] {
    vllm::paged_attention_v1_kernel<scalar_t><<<grid, 128, shared_bytes, stream>>>(
        reinterpret_cast<scalar_t*>(out.data_ptr()),
        reinterpret_cast<scalar_t*>(query.data_ptr()),
        reinterpret_cast<scalar_t*>(key_cache.data_ptr()),
        reinterpret_cast<scalar_t*>(value_cache.data_ptr()), num_kv_heads, scale,
        block_tables.data_ptr<int>(), seq_lens.data_ptr<int>(), block_tables.size(1), slopes,
        head_size, block_size, key_cache.size(4));
  });
}
