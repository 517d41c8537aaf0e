"""The scenarios of attention by the name that a configuration gives."""

from kernel.attention.scenarios import prefill_dense

SCENARIOS = {
    "prefill_dense": prefill_dense.run_scenario,
}
