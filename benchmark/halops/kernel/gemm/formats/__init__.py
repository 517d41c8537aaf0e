"""Number formats of quantised GEMM operands, as plain tensor arithmetic on any device.

``fp8`` (E4M3 with float32 scales), ``mxfp8`` (E4M3 with one E8M0 per 32) and ``nvfp4`` (E2M1 packed
two a byte with one E4M3 per 16 and a float32 for the whole) quantise and dequantise; ``swizzle`` is
the order in which tensor cores of Blackwell want block scales; ``operand`` is what scenarios use.
"""
