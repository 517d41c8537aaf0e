#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <torch/extension.h>

#include "../include/check.h"
#include "../include/mcoplib_ops.h"
#include "../kernel/bias_dropout.cuh"

at::Tensor fused_bias_dropout(at::Tensor input, at::Tensor bias, at::Tensor residual,
                              float dropout_prob) {
  MCOPLIB_CHECK_DEVICE(input);
  MCOPLIB_CHECK_CONTIG(input);
  MCOPLIB_CHECK_CONTIG(residual);
  TORCH_CHECK(input.sizes() == residual.sizes(), "input and residual differ in shape");
  TORCH_CHECK(bias.size(-1) == input.size(-1), "bias is as wide as input");
  TORCH_CHECK(dropout_prob >= 0.f && dropout_prob < 1.f);

  at::Tensor out = at::empty_like(input);
  const int64_t total = input.numel();
  uint64_t seed = 0;
  if (dropout_prob > 0.f) {
    auto generator = at::cuda::detail::getDefaultCUDAGenerator();
    seed = generator.current_seed();
  }
  cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  DISPATCH_HALF_TYPES(input.scalar_type(), "fused_bias_dropout", [&] {
    mcoplib::bias_dropout_add_kernel<scalar_t><<<(total + 255) / 256, 256, 0, stream>>>(
        input.data_ptr<scalar_t>(), bias.data_ptr<scalar_t>(), residual.data_ptr<scalar_t>(),
        out.data_ptr<scalar_t>(), total, input.size(-1), dropout_prob, seed);
  });
  return out;
}
