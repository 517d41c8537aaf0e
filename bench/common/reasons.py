"""Why an operator that moves data stays below the memory's bandwidth, as far as it is known.

The bytes of a row are those that the operator has to move once; a kernel may move more. What says
"not profiled" follows from how the kernel is written or from its sisters, not from counters.
"""

REASONS = {
    "awq_dequantize": "several instructions a 4-bit weight to unpack it; not profiled",
    "awq_gemm": "unpacks the weight for every tile of rows; not profiled",
    "concat_and_cache_mla": "a thread block a token, two bytes a thread and access; not profiled",
    "cp_gather_cache": "few thread blocks a sequence; not profiled",
    "dynamic_per_token_scaled_fp8_quant": "each token is read twice, counted once; not profiled",
    "dynamic_scaled_fp8_quant": "two kernels, the first ends in one atomic maximum; not profiled",
    "gelu_fast": "a tanh in float32 for each value; gelu_quick without it is faster; not profiled",
    "gelu_new": "a tanh in float32 for each value; gelu_quick without it is faster; not profiled",
    "gptq_gemm": "unpacks the weight for every group of rows, adds parts by atomics; not profiled",
    "gptq_shuffle": "a thread a column, one word after the other; not profiled",
    "grouped_topk": "selection within a warp, little data a token; not profiled",
    "moe_align_block_size": "counting and prefix sums, little data; not profiled",
    "paged_attention_v1": "the 8 query heads of a key head each read it, it is counted once",
    "paged_attention_v2": "the 8 query heads of a key head each read it, it is counted once",
    "reshape_and_cache": "its layout scatters a key in pieces of 16 bytes, a value in two bytes",
    "reshape_and_cache_flash": "rows of 2 KiB to random slots; not profiled",
    "rms_norm_static_fp8_quant": "rms_norm itself reaches more: the fp8 stores; not profiled",
    "swap_blocks": "256 copies a call; those between host and device are bound by the bus",
    "top_k_per_row_decode": "several passes of selection over a row, one counted; not profiled",
    "vllm_rotary_embedding": "two-byte accesses; not profiled",
    "vllm_topk_softmax": "selection within a warp, little data a token; not profiled",
}
