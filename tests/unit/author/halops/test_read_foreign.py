"""The reader on checkouts that are written otherwise: other names, registries, helpers, classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.author.halops.facts import Checkout, Scenario
from orchestrator.author.halops.read import read_checkout

CHECKOUTS = Path(__file__).parent / "checkouts"


@pytest.fixture(scope="module")
def decorated() -> Checkout:
    return read_checkout(CHECKOUTS / "decorated")


@pytest.fixture(scope="module")
def updated() -> Checkout:
    return read_checkout(CHECKOUTS / "updated")


def constraints(scenario: Scenario) -> dict[str, tuple[str, ...]]:
    return {each.expression: each.fields for each in scenario.constraints}


def required(scenario: Scenario) -> set[str]:
    return {name for name, field in scenario.fields.items() if field.required}


def test_ops_that_decorators_register_with_one_more(decorated: Checkout) -> None:
    assert {name: list(op.scenarios) for name, op in decorated.ops.items()} == {
        "attention": ["decode_sparse"],
        "gemm": ["dense", "dense_bias"],
        "norm": ["rms_norm"],
    }


def test_ops_that_update_registers(updated: Checkout) -> None:
    assert {name: list(op.scenarios) for name, op in updated.ops.items()} == {
        "attention": ["mtp"],
        "gemm": ["grouped_contiguous"],
    }


def test_reads_through_helpers_constants_and_generators(decorated: Checkout) -> None:
    sparse = decorated.scenario("attention", "decode_sparse")
    assert required(sparse) == {"backends", "kv_lens", "dtype", "q_heads", "kv_heads", "scenario"}
    assert (sparse.fields["topk"].default, sparse.fields["page_size"].default) == (2048, 64)
    assert sparse.fields["topk"].default_source == "DEFAULTS['topk']"
    assert [each.name for each in sparse.sweeps] == ["kv_lens", "batch_sizes"]
    assert str(sparse.fields["q_heads"].place) == "kernel/attention/scenarios/common.py:22"


def test_batch_sizes_that_a_helper_of_the_entry_layer_expands(decorated: Checkout) -> None:
    sizes = decorated.scenario("attention", "decode_sparse").fields["batch_sizes"]
    assert (sizes.expands_to, str(sizes.place)) == ("batch_size", "core/config.py:14")
    assert "batch_sizes" not in decorated.scenario("gemm", "dense").fields


def test_backends_of_a_decorator_and_the_helper_that_refuses(decorated: Checkout) -> None:
    backends = decorated.scenario("attention", "decode_sparse").backends
    assert list(backends) == ["halops", "golden", "naive", "fa2"]
    assert {name: str(each.place) for name, each in backends["fa2"].refuses.items()} == {
        "e4m3": "kernel/attention/scenarios/decode_sparse.py:37"
    }
    assert str(backends["naive"].place).endswith("decode_sparse.py:25")


def test_spellings_that_a_table_has(decorated: Checkout) -> None:
    dtype = decorated.scenario("attention", "decode_sparse").dtypes["dtype"]
    assert set(dtype.accepts) == {"bfloat16", "float16", "e4m3"}
    assert list(dtype.aliases) == ["e4m3"] and dtype.torch is None


def test_constraints_of_nested_helpers_stand_where_they_are_said(decorated: Checkout) -> None:
    sparse = decorated.scenario("attention", "decode_sparse")
    assert constraints(sparse) == {
        "q % kv == 0": ("kv_heads", "q_heads"),
        "topk % page == 0": ("page_size", "topk"),
        "topk <= length": ("kv_lens", "topk"),
    }
    places = {each.expression: each.place.line for each in sparse.constraints}
    assert places["topk <= length"] == 50


def test_scenarios_that_are_partials_and_objects(decorated: Checkout) -> None:
    dense = decorated.scenario("gemm", "dense")
    assert dense.fields["shapes"].columns == ("m", "n", "k")
    assert dense.first_is_base and dense.first_is_base.line == 40
    assert set(dense.backends["cublas"].refuses) == {"w4a4-nvfp4"}
    norm = decorated.scenario("norm", "rms_norm")
    assert list(norm.backends) == ["halops", "golden"]
    assert constraints(norm)["c['hidden'] % 8 == 0"] == ("hidden",)
    assert "eps" not in norm.fields, "the code sets it itself"
    assert norm.fields["dtype"].default == "bfloat16"


def test_halops_moved_by_a_key_and_by_an_insert(decorated: Checkout, updated: Checkout) -> None:
    sparse = decorated.scenario("attention", "decode_sparse")
    assert sparse.halops_moved and sparse.halops_moved.line == 63
    mtp = updated.scenario("attention", "mtp")
    assert mtp.halops_moved and mtp.halops_moved.line == 69
    contiguous = updated.scenario("gemm", "grouped_contiguous")
    assert contiguous.halops_moved is None
    assert contiguous.first_is_base and contiguous.first_is_base.line == 35


def test_gpus_that_are_objects_and_an_unknown_one_that_is_an_error(decorated: Checkout) -> None:
    specs = decorated.gpu_specs
    assert specs is not None
    assert (set(specs.specs), specs.fp4) == ({"b200", "b300", "h20"}, {"b200", "b300"})
    assert specs.fallback is None and str(specs.place) == "core/gpus.py:12"


def test_gpus_nested_with_a_silent_default(updated: Checkout) -> None:
    specs = updated.gpu_specs
    assert specs is not None and specs.fp4 == {"b200"}
    assert specs.fallback and specs.fallback.line == 7


def test_constraints_through_classes_divmod_and_match(updated: Checkout) -> None:
    mtp = updated.scenario("attention", "mtp")
    assert constraints(mtp) == {
        "not self.left": ("num_kv_heads", "num_q_heads"),
        "self.rows <= 64": ("mtp_steps_list", "num_kv_heads", "num_q_heads"),
        "shape.kv % 128 == 0": ("s_kv_list",),
        "spec['batch_size'] * kv <= 1 << 20": ("batch_size", "s_kv_list"),
    }
    assert set(mtp.dtypes["dtype"].aliases) == {"fp8", "e4m3"}
    assert set(mtp.backends["fa4"].refuses) >= {"fp8", "e4m3", "float32"}
    assert "fi" in mtp.backends and not mtp.backends["fi"].refuses


def test_shapes_spread_over_parameters_and_an_adapter_that_asserts(updated: Checkout) -> None:
    contiguous = updated.scenario("gemm", "grouped_contiguous")
    assert contiguous.fields["shapes"].columns == ("experts", "rows", "n", "k")
    found = constraints(contiguous)
    assert found["k % (2 * block) == 0"] == found["not (per_expert <= 0)"] == ("shapes",)
    assert str(contiguous.backends["deep_gemm"].refuses["w4a4-nvfp4"].place).endswith("deep.py:5")


def test_styles_of_neighbours(decorated: Checkout, updated: Checkout) -> None:
    style = decorated.ops["attention"].style
    assert (style.flow, style.indent, style.quotes) == (False, 4, '"')
    assert style.marks and style.comments and style.document_start
    other = updated.ops["gemm"].style
    assert other.flow and other.quotes == "'" and other.order[:2] == ("scenario", "backends")
    assert decorated.ops["norm"].neighbours == ()
