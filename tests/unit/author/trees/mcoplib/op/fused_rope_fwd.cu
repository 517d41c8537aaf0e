#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

#include "../include/check.h"
#include "../include/mcoplib_ops.h"
#include "../kernel/fused_rope.cuh"

void fused_rope_fwd(at::Tensor qkv, const at::Tensor cos, const at::Tensor sin,
                    const at::Tensor indexes, bool force_bf16_cal) {
  MCOPLIB_CHECK_DEVICE(qkv);
  MCOPLIB_CHECK_CONTIG(qkv);
  MCOPLIB_CHECK_CONTIG(cos);
  MCOPLIB_CHECK_CONTIG(sin);
  TORCH_CHECK(qkv.dim() == 4, "qkv is [num_tokens, num_kv_heads, group + 2, head_size]");
  TORCH_CHECK(cos.dtype() == qkv.dtype() && sin.dtype() == qkv.dtype(),
              "cos, sin and qkv must have the same dtype");
  TORCH_CHECK(indexes.dtype() == torch::kInt64);
  TORCH_CHECK(!force_bf16_cal || qkv.dtype() == torch::kBFloat16);

  const int num_tokens = qkv.size(0);
  const int per_group = qkv.size(2);
  const int head_size = qkv.size(3);
  const at::cuda::OptionalCUDAGuard device_guard(device_of(qkv));
  cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  DISPATCH_HALF_TYPES(qkv.scalar_type(), "fused_rope_fwd", [&] {
    mcoplib::fused_rope_kernel<scalar_t><<<num_tokens, 256, 0, stream>>>(
        qkv.data_ptr<scalar_t>(), cos.data_ptr<scalar_t>(), sin.data_ptr<scalar_t>(),
        indexes.data_ptr<int64_t>(), qkv.size(1) * per_group, per_group, head_size);
  });
}

void fused_rope_bwd(at::Tensor qkv, const at::Tensor cos, const at::Tensor sin,
                    const at::Tensor indexes, bool force_bf16_cal) {
  // The gradient is the rotation by the opposite angle.
  fused_rope_fwd(qkv, cos, sin.neg(), indexes, force_bf16_cal);
}
