"""The reader on a checkout written as the specification spells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.author.halops.facts import Checkout
from orchestrator.author.halops.read import read_checkout
from orchestrator.errors import TreeError

ROOT = Path(__file__).parent / "checkouts" / "plain"


@pytest.fixture(scope="module")
def checkout() -> Checkout:
    return read_checkout(ROOT)


def line(checkout: Checkout, place: object) -> str:
    """The line of code that a place names."""
    path, _, number = str(place).rpartition(":")
    return (checkout.root / path).read_text().splitlines()[int(number) - 1].strip()


def test_ops_and_scenarios_are_those_of_the_registries(checkout: Checkout) -> None:
    assert {name: list(op.scenarios) for name, op in checkout.ops.items()} == {
        "attention": ["prefill_dense", "decode_gqa"],
        "gemm": ["dense", "group_masked"],
    }
    assert checkout.root == ROOT / "benchmark"
    assert line(checkout, checkout.ops["gemm"].place) == '"gemm": "kernel.gemm.scenarios",'
    assert checkout.todos == ()


def test_required_fields_and_defaults(checkout: Checkout) -> None:
    fields = checkout.scenario("attention", "decode_gqa").fields
    required = {name for name, field in fields.items() if field.required}
    assert required == {
        "backends", "s_kv_list", "dtype", "num_q_heads", "num_kv_heads", "head_dim", "scenario",
    }  # fmt: skip
    assert fields["mtp_steps_list"].default == [0]
    assert fields["use_cuda_graph"].default is True
    assert fields["gpu_type"].default == "b200" and fields["gpu_type"].entry
    assert fields["backends"].names_backends and not fields["backends"].sweep
    assert 'cfg.get("mtp_steps_list", [0])' in line(checkout, fields["mtp_steps_list"].place)


def test_sweeps_are_those_of_the_code_and_of_the_entry_layer(checkout: Checkout) -> None:
    decode = checkout.scenario("attention", "decode_gqa")
    assert {each.name for each in decode.sweeps} == {"mtp_steps_list", "s_kv_list", "batch_sizes"}
    assert decode.fields["batch_sizes"].expands_to == "batch_size"
    assert line(checkout, decode.fields["batch_sizes"].place).startswith("batch_sizes = cfg.get(")
    dense = checkout.scenario("gemm", "dense")
    assert [each.name for each in dense.sweeps] == ["shapes"], "GEMM reads no batch"
    assert dense.fields["shapes"].columns == ("M", "N", "K")
    masked = checkout.scenario("gemm", "group_masked")
    assert masked.fields["shapes"].columns == ("num_experts", "max_m", "N", "K")


def test_backends_with_the_lines_that_refuse_a_dtype(checkout: Checkout) -> None:
    decode = checkout.scenario("attention", "decode_gqa")
    assert list(decode.backends) == ["halops", "golden", "fi", "fi(trtllm-gen)", "fa2", "cudnn"]
    assert set(decode.backends["fa2"].refuses) == {"fp8", "e4m3", "float8_e4m3fn"}
    refusal = decode.backends["fa2"].refuses["fp8"]
    assert line(checkout, refusal.place) == 'raise ValueError("fa2 has no FP8")'
    assert "raise NotImplemented" in line(checkout, decode.backends["cudnn"].refuses["e4m3"].place)
    assert all(not decode.backends[name].refuses for name in ("halops", "golden", "fi"))
    dense = checkout.scenario("gemm", "dense")
    assert set(dense.backends["cublas"].refuses) == {"w4a4-nvfp4"}
    assert set(checkout.scenario("attention", "prefill_dense").backends) == {
        "halops", "golden", "fa2",
    }  # fmt: skip


def test_constraints_by_branch_and_none_where_there_are_none(checkout: Checkout) -> None:
    assert checkout.scenario("attention", "prefill_dense").constraints == ()
    decode = checkout.scenario("attention", "decode_gqa").constraints
    assert [each.expression for each in decode] == ["hq % hkv == 0", "(1 + mtp) * group <= 64"]
    assert decode[1].fields == ("mtp_steps_list", "num_kv_heads", "num_q_heads")
    dense = checkout.scenario("gemm", "dense").constraints
    by_line = {line(checkout, each.place): each for each in dense}
    assert by_line['assert K % 32 == 0, "MXFP8 has a scale for 32"'].branch == (
        "mode == 'w8a8-mxfp8'",
    )
    assert by_line["assert K % 16 == 0"].branch[-1] == "mode == 'w4a4-nvfp4'"
    assert by_line["assert K % 16 == 0"].fields == ("shapes",)


def test_aliases_of_dtypes_are_the_scenarios_own(checkout: Checkout) -> None:
    decode = checkout.scenario("attention", "decode_gqa").dtypes["dtype"]
    assert set(decode.aliases) == {"fp8", "e4m3"}
    assert "bf16" not in decode.accepts and "bfloat16" in decode.accepts
    assert decode.torch is not None and "getattr(torch, name)" in line(checkout, decode.torch)
    prefill = checkout.scenario("attention", "prefill_dense").dtypes["dtype"]
    assert not prefill.aliases and "fp8" not in prefill.accepts


def test_what_the_code_does_with_the_order(checkout: Checkout) -> None:
    decode = checkout.scenario("attention", "decode_gqa")
    assert decode.halops_moved and "_move_to_front" in line(checkout, decode.halops_moved)
    masked = checkout.scenario("gemm", "group_masked")
    assert masked.halops_moved is None
    assert masked.first_is_base and line(checkout, masked.first_is_base) == "if base is None:"


def test_gpus_and_what_becomes_of_an_unknown_one(checkout: Checkout) -> None:
    specs = checkout.gpu_specs
    assert specs is not None
    assert (set(specs.specs), specs.fp4, specs.default) == ({"b200", "h200"}, {"b200"}, "b200")
    assert specs.fallback and "GPU_SPECS.get(name" in line(checkout, specs.fallback)


def test_neighbours_with_their_order_and_style(checkout: Checkout) -> None:
    attention, gemm = checkout.ops["attention"], checkout.ops["gemm"]
    assert attention.neighbours[0].values["s_kv_list"] == [4096, 8192]
    assert attention.style.order[:2] == ("scenario", "dtype")
    assert attention.style.flow and not attention.style.marks
    assert not gemm.style.quotes and gemm.style.flow_inner


def test_a_folder_of_another_shape_is_told(tmp_path: Path) -> None:
    with pytest.raises(TreeError, match=r"no HALOps benchmark here"):
        read_checkout(tmp_path)
    (tmp_path / "kernel").mkdir()
    (tmp_path / "benchmark.py").write_text("OPS = {}\n")
    with pytest.raises(TreeError, match=r"benchmark\.py:1: OP_REGISTRY"):
        read_checkout(tmp_path)
    (tmp_path / "benchmark.py").write_text("OP_REGISTRY = {\n")
    with pytest.raises(TreeError, match=r"benchmark\.py:1: syntax error"):
        read_checkout(tmp_path)
