from kernel.gemm import scenarios
