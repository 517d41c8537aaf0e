from . import dense

SCENARIOS = {name: getattr(dense, "run_" + name) for name in ("dense", "dense_bias")}
