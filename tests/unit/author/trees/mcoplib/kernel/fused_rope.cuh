// Rotation of the queries and keys of a packed qkv, halves paired.
#pragma once

#include <cuda_runtime.h>

namespace mcoplib {

// qkv: [num_tokens, num_kv_heads, group + 2, head_size]; of each group the last row is the value.
template <typename T>
__global__ void fused_rope_kernel(T* __restrict__ qkv, const T* __restrict__ cos,
                                  const T* __restrict__ sin, const int64_t* __restrict__ indexes,
                                  const int rows, const int per_group, const int head_size) {
  const int half = head_size / 2;
  const int64_t token = blockIdx.x;
  const int64_t position = indexes[token];
  for (int i = threadIdx.x; i < rows * half; i += blockDim.x) {
    const int row = i / half, pair = i % half;
    if (row % per_group == per_group - 1) continue;  // a value stays
    T* head = qkv + (token * rows + row) * head_size;
    const float c = static_cast<float>(cos[position * half + pair]);
    const float s = static_cast<float>(sin[position * half + pair]);
    const float x = static_cast<float>(head[pair]);
    const float y = static_cast<float>(head[half + pair]);
    head[pair] = static_cast<T>(x * c - y * s);
    head[half + pair] = static_cast<T>(y * c + x * s);
  }
}

}  // namespace mcoplib
