#pragma once

#define MCOPLIB_CHECK_DEVICE(x) TORCH_CHECK((x).is_cuda(), #x " is not on the GPU")
#define MCOPLIB_CHECK_CONTIG(x) TORCH_CHECK((x).is_contiguous(), #x " is not contiguous")

#define DISPATCH_HALF_TYPES(TYPE, NAME, ...)                                       \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE(at::ScalarType::Half, __VA_ARGS__) \
                                     AT_DISPATCH_CASE(at::ScalarType::BFloat16, __VA_ARGS__))
