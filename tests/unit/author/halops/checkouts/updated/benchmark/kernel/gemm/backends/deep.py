SUPPORTED = ["bf16", "w8a8-mxfp8"]


def adapt_deep_gemm(operands, mode):
    assert mode in SUPPORTED, "deep_gemm has no " + mode
    return operands


BACKENDS = {"deep_gemm": adapt_deep_gemm}
