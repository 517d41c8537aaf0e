from core.registry import op
from kernel.gemm.scenarios import SCENARIOS as _ALL


@op("gemm")
class Gemm:
    SCENARIOS = _ALL
