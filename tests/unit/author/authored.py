"""The operators of the source trees: how a benchmark of each is asked for, and how to shrink it.

Needs no torch: tests of the command line, the speed table and ``authored_judge.py`` share it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TREES = HERE / "trees"
STAND_INS = HERE / "stand_ins"
REPOSITORY = HERE.parents[2]


@dataclass(frozen=True)
class Authored:
    """One operator to generate a benchmark for.

    ``name``: of configuration, runner and whitelist entry. ``operator``: as ``gen op`` is asked
    for it. ``tree``: the folder of ``trees`` that has it. ``unit_test``: its path in there.
    ``kind``: what sort of operator it stands for. ``framework``: whose it is. ``tiny``: parameters
    of the unit test, small enough for kernels in plain Python. ``most_todos``: how much may stay
    undetermined. ``flags``: further ones for ``gen op``.
    """

    name: str
    operator: str
    tree: str
    unit_test: str
    kind: str
    framework: str
    tiny: dict[str, Any] = field(default_factory=dict)
    most_todos: int = 2
    flags: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    @property
    def source(self) -> Path:
        """The folder with the sources."""
        return TREES / self.tree

    @property
    def test(self) -> Path:
        """The unit test."""
        return self.source / self.unit_test

    def arguments(self) -> list[str]:
        """What follows ``mxfleet`` on the command line."""
        words = ["gen", "op", self.operator, "--source", str(self.source)]
        return [*words, "--unit-test", str(self.test), *self.flags]

    def files(self) -> list[str]:
        """What ``gen op`` writes or changes, relative to benchmark/."""
        runner = f"runners/mcoplib_mxbenchmark_{self.name}_runners.py"
        return [f"config/{self.name}.json", runner, "mcoplib_mxbenchmark_ops.py"]


def _mcoplib(operator: str, kind: str, framework: str = "vllm", **others: Any) -> Authored:
    test = others.pop("unit_test", f"test_{operator}.py")
    name = others.pop("name", operator)
    return Authored(name, operator, "mcoplib", f"unit_test/{test}", kind, framework, **others)


AUTHORED = [
    _mcoplib(
        "silu_and_mul",
        "activation, output first",
        tiny={"num_tokens": 17, "d": 96},
        most_todos=0,
    ),
    _mcoplib(
        "fatrelu_and_mul",
        "activation with a number",
        tiny={"num_tokens": 17, "d": 96},
        most_todos=0,
    ),
    _mcoplib("rms_norm", "norm", tiny={"num_tokens": 17, "hidden_size": 96}, most_todos=0),
    _mcoplib(
        "fused_add_rms_norm",
        "norm with residual, both in place",
        tiny={"num_tokens": 17, "hidden_size": 96},
        most_todos=0,
    ),
    _mcoplib(
        "rotary_embedding",
        "rotary, optional key",
        name="vllm_rotary_embedding",
        flags=("--framework", "vllm"),
        tiny={
            "batch_size": 2,
            "seq_len": 5,
            "num_heads": 4,
            "num_kv_heads": 2,
            "head_size": 16,
            "rotary_dim": 8,
            "max_position": 64,
        },
    ),
    _mcoplib(
        "rotary_embedding",
        "rotary of another framework",
        "sgl",
        name="sgl_rotary_embedding",
        unit_test="test_sgl_rotary_embedding.py",
        flags=("--framework", "sgl"),
        tiny={
            "num_tokens": 9,
            "num_q_heads": 4,
            "num_kv_heads": 2,
            "head_size": 16,
            "rotary_dim": 16,
            "max_position": 32,
        },
    ),
    _mcoplib(
        "paged_attention_v1",
        "paged attention",
        tiny={
            "num_seqs": 3,
            "num_heads": 4,
            "num_query_heads": 4,
            "num_kv_heads": 2,
            "head_size": 16,
            "block_size": 8,
            "use_alibi": False,
            "MAX_SEQ_LEN": 37,
            "max_seq_len": 37,
            "NUM_BLOCKS": 12,
            "num_blocks": 12,
        },
    ),
    _mcoplib(
        "reshape_and_cache",
        "cache scatter, bit-exact",
        tiny={
            "num_tokens": 12,
            "num_heads": 2,
            "head_size": 16,
            "block_size": 4,
            "num_blocks": 6,
        },
    ),
    _mcoplib(
        "topk_softmax",
        "top-k, three outputs",
        name="vllm_topk_softmax",
        flags=("--framework", "vllm"),
        tiny={"num_tokens": 9, "num_experts": 16, "topk": 3},
    ),
    _mcoplib(
        "topk_softmax",
        "top-k of another framework",
        "sgl",
        name="sgl_topk_softmax",
        unit_test="test_sgl_topk_softmax.py",
        flags=("--framework", "sgl"),
        tiny={"num_tokens": 9, "num_experts": 16, "topk": 3},
    ),
    _mcoplib(
        "top_k_per_row_decode",
        "top-k of rows, eight positional",
        tiny={"batch_size": 3, "next_n": 2, "context_len": 96, "top_k": 16},
    ),
    _mcoplib(
        "moe_align_block_size",
        "MoE alignment",
        tiny={"m": 9, "topk": 2, "num_experts": 16, "block_size": 4},
    ),
    _mcoplib(
        "awq_dequantize",
        "AWQ, returns a tensor",
        tiny={"qweight_rows": 64, "qweight_cols": 6, "group_size": 16},
    ),
    _mcoplib(
        "gptq_shuffle",
        "GPTQ, bit-exact, allocates",
        tiny={"in_features": 64, "out_features": 12, "act_order": True},
    ),
    _mcoplib(
        "static_scaled_fp8_quant",
        "FP8, one scale",
        unit_test="test_fp8_quant.py",
        tiny={"num_tokens": 20, "hidden_size": 96},
    ),
    _mcoplib(
        "dynamic_per_token_scaled_fp8_quant",
        "FP8, a scale a token, optional bound",
        unit_test="test_fp8_quant.py",
        tiny={"num_tokens": 20, "hidden_size": 96, "scale_ub": False},
    ),
    _mcoplib(
        "fused_rope_fwd",
        "pybind, in place",
        "mcoplib",
        tiny={
            "num_tokens": 7,
            "num_heads": 6,
            "num_kv_heads": 2,
            "head_size": 16,
            "max_position": 32,
        },
    ),
    _mcoplib(
        "fused_bias_dropout",
        "pybind, returns a tensor",
        "mcoplib",
        tiny={"batch": 2, "seq_len": 9, "hidden_size": 64},
    ),
    Authored(
        "softcap_softmax",
        "softcap_softmax",
        "triton",
        "unit_test/test_softcap_softmax.py",
        "Triton function",
        "torch",
        tiny={"n_rows": 9, "n_cols": 50},
    ),
    Authored(
        "segment_mean",
        "segment_mean",
        "torchlib",
        "unit_test/test_segment_mean.py",
        "torch.library.custom_op",
        "torch",
        tiny={"num_rows": 40, "hidden": 24, "num_segments": 6},
    ),
    Authored(
        "quantize_blocks",
        "quantize_blocks",
        "torchlib",
        "unit_test/test_quantize_blocks.py",
        "torch.library.Library",
        "torch",
        tiny={"rows": 6, "columns": 64, "block_size": 16},
    ),
    Authored(
        "gelu_quick",
        "gelu_quick",
        "vllm",
        "tests/kernels/core/test_activation.py",
        "activation, through a Python wrapper",
        "vllm",
        tiny={"num_tokens": 17, "d": 96},
        most_todos=0,
    ),
    Authored(
        "moe_sum",
        "moe_sum",
        "vllm",
        "tests/kernels/moe/test_moe_sum.py",
        "MoE sum, output last",
        "vllm",
        tiny={"m": 7, "topk": 3, "k": 48},
    ),
]
