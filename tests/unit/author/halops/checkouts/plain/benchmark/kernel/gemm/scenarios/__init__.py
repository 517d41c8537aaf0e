from kernel.gemm.scenarios import dense, grouped

SCENARIOS = {"dense": dense.run_scenario, "group_masked": grouped.run_scenario}
