"""The scenarios of attention by the name that a configuration gives."""

from kernel.attention.scenarios import (
    decode_gqa,
    decode_mla,
    prefill_chunk,
    prefill_dense,
    prefill_paged,
)

SCENARIOS = {
    "prefill_dense": prefill_dense.run_scenario,
    "prefill_paged": prefill_paged.run_scenario,
    "prefill_chunk": prefill_chunk.run_scenario,
    "decode_gqa": decode_gqa.run_scenario,
    "decode_mla": decode_mla.run_scenario,
}
