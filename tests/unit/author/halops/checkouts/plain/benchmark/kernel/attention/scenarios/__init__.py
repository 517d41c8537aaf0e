from . import decode_gqa, prefill_dense

SCENARIOS = {
    "prefill_dense": prefill_dense.run_scenario,
    "decode_gqa": decode_gqa.run_scenario,
}
