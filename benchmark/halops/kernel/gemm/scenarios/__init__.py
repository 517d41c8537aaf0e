"""The scenarios of GEMM by the name that a configuration gives."""

from kernel.gemm.scenarios import dense, group_masked, grouped_contiguous

SCENARIOS = {
    "dense": dense.run_scenario,
    "grouped_contiguous": grouped_contiguous.run_scenario,
    "group_masked": group_masked.run_scenario,
}
