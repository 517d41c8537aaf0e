from .mtp import run_mtp

SCENARIOS = {"mtp": run_mtp}
