"""Front door of the operator benchmarks: measure one operator, or list all of them.

Holds the whitelist and hands over to ``harness.cli``. This file alone must parse on old Pythons
(3.6), so that they get a sentence instead of a syntax error.
"""

import sys
from pathlib import Path

# Alphabetical. mxfleet and other tools read and extend this literal.
SUPPORTED_OPERATORS = [
    "awq_dequantize",
    "awq_gemm",
    "concat_and_cache_mla",
    "copy_blocks",
    "cp_gather_cache",
    "cutlass_scaled_mm",
    "dynamic_per_token_scaled_fp8_quant",
    "dynamic_scaled_fp8_quant",
    "dynamic_scaled_int8_quant",
    "fatrelu_and_mul",
    "fused_add_rms_norm",
    "fused_add_rms_norm_static_fp8_quant",
    "fused_bias_dropout",
    "fused_moe_gate_deepseek",
    "fused_rope_fwd",
    "gelu_and_mul",
    "gelu_fast",
    "gelu_new",
    "gelu_quick",
    "gelu_tanh_and_mul",
    "gptq_gemm",
    "gptq_shuffle",
    "grouped_topk",
    "merge_attn_states",
    "moe_align_block_size",
    "moe_sum",
    "mul_and_silu",
    "paged_attention_v1",
    "paged_attention_v2",
    "reshape_and_cache",
    "reshape_and_cache_flash",
    "rms_norm",
    "rms_norm_static_fp8_quant",
    "rotary_embedding",
    "sgl_rotary_embedding",
    "sgl_topk_softmax",
    "silu_and_mul",
    "static_scaled_fp8_quant",
    "static_scaled_int8_quant",
    "swap_blocks",
    "swigluoai_and_mul",
    "top_k_per_row_decode",
    "torch_matmul",
    "torch_rms_norm",
    "torch_sdpa",
    "torch_silu_and_mul",
    "torch_softmax",
    "vllm_rotary_embedding",
    "vllm_topk_softmax",
]


def too_old():
    """Say what to do when this Python cannot run the harness; returns whether it is so."""
    if sys.version_info >= (3, 10):  # noqa: UP036 - this file runs before that is known
        return False
    sys.stderr.write(
        "error: {} is Python {}.{}, the benchmarks need 3.10 or later; "
        "set the target's python to a newer one\n".format(sys.executable, *sys.version_info[:2])
    )
    return True


def main():
    """Measure or list, or serve both to others; returns the exit code."""
    if too_old():
        return 3
    root = str(Path(__file__).resolve().parent)
    if sys.argv[1:2] == ["--serve"] and len(sys.argv) == 3:
        from harness.warm import serve

        serve(root, int(sys.argv[2]), SUPPORTED_OPERATORS)
        return 0
    from harness.cli import main as run

    return run(sys.argv[1:], SUPPORTED_OPERATORS, root)


if __name__ == "__main__":
    sys.exit(main())
