from kernel.gemm.backends import deep, plain

REGISTRY = {}
for module in (plain, deep):
    REGISTRY.update(module.BACKENDS)
