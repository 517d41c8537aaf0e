#pragma once

#include <curand_kernel.h>

namespace mcoplib {

// out = residual + dropout(input + bias)
template <typename T>
__global__ void bias_dropout_add_kernel(const T* __restrict__ input, const T* __restrict__ bias,
                                        const T* __restrict__ residual, T* __restrict__ out,
                                        const int64_t total, const int hidden, const float prob,
                                        const uint64_t seed) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i >= total) return;
  float x = static_cast<float>(input[i]) + static_cast<float>(bias[i % hidden]);
  if (prob > 0.f) {
    curandStatePhilox4_32_10_t state;
    curand_init(seed, i, 0, &state);
    x = curand_uniform(&state) > prob ? x / (1.f - prob) : 0.f;
  }
  out[i] = static_cast<T>(x + static_cast<float>(residual[i]));
}

}  // namespace mcoplib
