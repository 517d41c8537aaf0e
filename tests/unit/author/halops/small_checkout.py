"""A small checkout of the spec's shape, as its reader would tell of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.author.halops.facts import (
    BackendFact,
    Checkout,
    DtypeSpelling,
    Field,
    GpuSpecs,
    Neighbour,
    NeighbourStyle,
    Op,
    Place,
    Refusal,
    Scenario,
)

HERE = Place("kernel/x.py", 1)
HEADS = ("num_q_heads", "num_kv_heads", "head_dim")
PLAIN: Mapping[str, Any] = {
    "refcheck": True,
    "refcheck_reference": "golden",
    "cold_l2_cache": True,
    "use_cuda_graph": True,
}
GEOMETRY = {"num_q_heads": 64, "num_kv_heads": 8, "head_dim": 128}


def _fields(required: tuple[str, ...], sweeps: tuple[str, ...], **more: Any) -> dict[str, Field]:
    found = {name: Field(name, True, HERE, sweep=name in sweeps) for name in required}
    for name, default in more.items():
        found[name] = Field(name, False, HERE, default, repr(default), sweep=name in sweeps)
    found["backends"] = Field("backends", True, HERE, sweep=True, names_backends=True)
    reference = found.get("refcheck_reference")
    if reference is not None:
        found["refcheck_reference"] = Field(
            "refcheck_reference", False, HERE, "golden", "'golden'", names_backends=True
        )
    found["gpu_type"] = Field("gpu_type", False, HERE, None, "None")
    return found


def _attention(
    name: str, lengths: tuple[str, ...], backends: tuple[str, ...], **more: Any
) -> Scenario:
    sweeps = (*lengths, "mtp_steps_list")
    dims = ("kv_lora_rank", "head_dim") if name == "decode_mla" else HEADS
    if name == "decode_mla":
        dims = ("num_q_heads", *dims)
    fields = _fields((*lengths, *dims, "dtype"), sweeps, **more, **PLAIN)
    fields["batch_size"] = Field("batch_size", False, HERE, 1, "1")
    fields["batch_sizes"] = Field(
        "batch_sizes", False, HERE, sweep=True, expands_to="batch_size", entry=True
    )
    no_fp8 = Refusal("dtype", "fp8", Place("kernel/x.py", 77), "no fp8")
    able = ("halops", "golden", "fi", "fi_trtllm", "fi(trtllm-gen)")
    found = {
        one: BackendFact(one, HERE, f"adapt_{one}", HERE, {} if one in able else {"fp8": no_fp8})
        for one in backends
    }
    aliases = {"fp8": HERE, "e4m3": HERE} if name == "decode_gqa" else {}
    return Scenario(
        name,
        "attention",
        HERE,
        "run_scenario",
        fields,
        found,
        dtypes={"dtype": DtypeSpelling("dtype", HERE, aliases)},
        halops_moved=HERE,
    )


def _gemm(name: str, columns: tuple[str, ...]) -> Scenario:
    fields = _fields((), (), **PLAIN, sm_count=0)
    modes = ("bf16", "w8a8-fp8", "w8a8-mxfp8", "w4a4-nvfp4")
    fields["shapes"] = Field("shapes", True, HERE, sweep=True, columns=columns)
    fields["mode"] = Field("mode", True, HERE, choices=modes)
    fields["batch_sizes"] = Field(
        "batch_sizes", False, HERE, sweep=True, expands_to="batch_size", entry=True
    )
    backends = {one: BackendFact(one, HERE) for one in ("halops", "golden", "cublas", "deep_gemm")}
    return Scenario(
        name,
        "gemm",
        HERE,
        "run_scenario",
        fields,
        backends,
        first_is_base=Place("kernel/grouped.py", 9) if len(columns) == 4 else None,
    )


def _neighbour(op: str, name: str, **values: Any) -> Neighbour:
    return Neighbour(Path(f"configs/{op}/{name}.yaml"), f"configs/{op}/{name}.yaml", values, False)


FULL = ("halops", "golden", "fa2", "fa4", "fa4_paged", "fi", "fi_trtllm", "fi(trtllm-gen)", "cudnn")


def checkout() -> Checkout:
    """Attention with four scenarios, GEMM with three; neighbours without marks."""
    attention = [
        _attention(
            "prefill_dense", ("s_q_list",), ("halops", "golden", "fa2", "sdpa_flash", "sdpa_math")
        ),
        _attention("prefill_paged", ("s_q_list",), FULL, page_size=64),
        _attention("prefill_chunk", ("prefix_len_list", "chunk_len_list"), FULL),
        _attention("decode_gqa", ("s_kv_list",), FULL, mtp_steps_list=[0], cache_quant_type=None),
        _attention("decode_mla", ("s_kv_list",), ("halops", "golden", "fi")),
    ]
    gemm = [
        _gemm("dense", ("M", "N", "K")),
        _gemm("grouped_contiguous", ("num_experts", "max_m", "N", "K")),
        _gemm("group_masked", ("num_experts", "max_m", "N", "K")),
    ]
    first = {"scenario": "decode_gqa", "batch_sizes": [1, 16], "s_kv_list": [4096], **GEOMETRY}
    order = (*first, "dtype", "backends", *PLAIN)
    near_attention = (
        _neighbour(
            "attention",
            "decode_gqa_bf16",
            **first,
            dtype="bfloat16",
            backends=["halops", "fa2"],
            **PLAIN,
        ),
    )
    near_gemm = (
        _neighbour(
            "gemm",
            "dense_bf16",
            scenario="dense",
            mode="bf16",
            shapes=[[4096, 4096, 4096]],
            backends=["halops", "cublas"],
            refcheck=True,
            sm_count=132,
        ),
    )
    style = NeighbourStyle(order=order)
    return Checkout(
        Path(),
        {
            "attention": Op(
                "attention",
                HERE,
                Path("configs/attention"),
                {one.name: one for one in attention},
                near_attention,
                style,
            ),
            "gemm": Op(
                "gemm",
                HERE,
                Path("configs/gemm"),
                {one.name: one for one in gemm},
                near_gemm,
                NeighbourStyle(order=("scenario", "mode", "shapes", "backends")),
            ),
        },
        GpuSpecs(HERE, {"b200": {}, "h200": {}}, frozenset({"b200"}), "b200"),
    )
