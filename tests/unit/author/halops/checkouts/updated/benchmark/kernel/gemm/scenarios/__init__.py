from kernel.gemm.scenarios.contiguous import run_scenario as _contiguous

_TABLE = [("grouped_contiguous", _contiguous)]
SCENARIOS = {name: run for name, run in _TABLE}
