"""Peaks, roofline fractions and flags; the measured rows are of real boards."""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness import specs
from harness.errors import TreeError
from harness.specs import Peaks


@pytest.mark.parametrize(
    ("name", "bandwidth", "bf16"),
    [
        ("NVIDIA H200", 4.8e12, 989.5e12),
        ("nvidia h200", 4.8e12, 989.5e12),
        ("H200", 4.8e12, 989.5e12),
        ("NVIDIA H200 NVL", 4.8e12, 835.5e12),
        ("NVIDIA H100 80GB HBM3", 3.35e12, 989.5e12),
        ("H100_80GB_HBM3", 3.35e12, 989.5e12),
        ("NVIDIA H100 PCIe", 2.0e12, 756.5e12),
        ("NVIDIA A100-SXM4-80GB", 2.039e12, 312e12),
        ("NVIDIA A100-SXM4-40GB", 1.555e12, 312e12),
        ("NVIDIA A100-PCIE-40GB", 1.555e12, 312e12),
        ("NVIDIA A100 80GB PCIe", 1.935e12, 312e12),
        ("NVIDIA H20", 4.0e12, 148e12),
        ("NVIDIA L20", 0.864e12, 119.5e12),
        ("NVIDIA L40S", 0.864e12, 362.05e12),
        ("NVIDIA B200", 8.0e12, 2250e12),
        ("MetaX C500", 1843.2e9, 280e12),
        ("MetaX C500 OAM", 1843.2e9, 280e12),
    ],
)
def test_peaks_by_device_name(name: str, bandwidth: float, bf16: float) -> None:
    found = specs.peaks(name, None)
    assert found is not None
    assert found.bandwidth == pytest.approx(bandwidth)
    assert found.flops["bf16"] == pytest.approx(bf16)
    assert "data sheet" in found.source


@pytest.mark.parametrize(
    "name",
    ["NVIDIA H200 MIG 1g.18gb", "NVIDIA H20-3e", "NVIDIA H100", "MetaX C550", "C600", "", "L"],
)
def test_a_model_that_is_merely_similar_has_no_peaks(name: str) -> None:
    assert specs.peaks(name, None) is None


def test_the_table_holds_together() -> None:
    for model, peaks in specs.GPU_SPECS.items():
        assert peaks.bandwidth is not None
        assert 0.25e12 < peaks.bandwidth < 10e12, model
        assert set(peaks.flops) <= set(specs.CLASSES)
        assert specs.peaks(model, None) is peaks
        half = peaks.flops["bf16"]
        assert 100e12 < half < 3000e12, model
        assert half == peaks.flops.get("fp16", half)
        assert peaks.flops.get("fp8", 2 * half) == pytest.approx(2 * half, rel=0.02)
        assert peaks.flops.get("int8", 2 * half) == pytest.approx(2 * half, rel=0.02)
        assert peaks.flops.get("tf32", half / 2) == pytest.approx(half / 2, rel=0.02)


# GlobalMem BW and BWUtil of measured rows: nvbench divides by clock times bus width.
@pytest.mark.parametrize(
    ("name", "bandwidth", "utilisation"),
    [
        ("NVIDIA H200", 3650571565528.236, 0.7582760800996854),
        ("NVIDIA H200", 1082691422310.6959, 0.2248905391746545),
        ("MetaX C500", 69033339537.58945, 0.03745298369009844),
        ("MetaX C500", 1852514820319.2332, 1.005053613454445),
    ],
)
def test_bandwidth_is_what_nvbench_reads_from_the_board(
    name: str, bandwidth: float, utilisation: float
) -> None:
    found = specs.peaks(name, None)
    assert found is not None
    assert found.bandwidth == pytest.approx(bandwidth / utilisation, rel=0.005)


C600 = {"C600": {"bandwidth": 2e12, "flops": {"bfloat16": 3e14}, "source": "a sheet"}}


def test_given_peaks() -> None:
    given = specs.overrides(json.dumps(C600))
    expected = Peaks(2e12, {"bf16": 3e14}, "a sheet")
    assert specs.peaks("MetaX C600", given) == expected
    assert specs.peaks("metax c600", given) == expected
    assert specs.peaks("NVIDIA H200", given) is specs.GPU_SPECS["H200"]
    assert specs.overrides(None) is None


def test_given_peaks_replace_what_they_name_only() -> None:
    given = {"NVIDIA H200": {"flops": {"torch.float16": 9e14, "fp8": 10**15}}}
    found = specs.peaks("NVIDIA H200", given)
    built_in = specs.GPU_SPECS["H200"]
    assert found is not None
    assert found.bandwidth == built_in.bandwidth
    assert found.flops == {**built_in.flops, "fp16": 9e14, "fp8": 1e15}
    assert found.source == "given for NVIDIA H200; else NVIDIA H200 data sheet"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "no object of GPU models"),
        ("3", "no object of GPU models"),
        ('{"C600": 3}', "C600: 3 is no object"),
        ('{"C600": {"bandwith": 2e12}}', "unknown key 'bandwith'"),
        ('{"C600": {"bandwidth": "2e12"}}', "no rate"),
        ('{"C600": {"bandwidth": true}}', "no rate"),
        ('{"C600": {"bandwidth": null}}', "no rate"),
        ('{"C600": {"bandwidth": 1843.2}}', "2e12 for 2 tera bytes"),
        ('{"C600": {"bandwidth": NaN}}', "no rate"),
        ('{"C600": {"bandwidth": Infinity}}', "no rate"),
        ('{"C600": {"bandwidth": -2e12}}', "no rate"),
        (f'{{"C600": {{"bandwidth": 1{"0" * 400}}}}}', "no rate"),
        ('{"C600": {"flops": 3e14}}', "flops 300000000000000.0 is no object"),
        ('{"C600": {"flops": {"int4": 3e14}}}', "flops of 'int4': use fp64"),
        ('{"C600": {"flops": {"bf16": 3e14, "bfloat16": 3e14}}}', "are the same"),
        ('{"C600": {"flops": {"bf16": 280}}}', "no rate"),
        ('{"C600": {"source": ""}}', "name the data sheet"),
        ('{"C600": {"source": 3}}', "name the data sheet"),
        ('{"C600": {}, "MetaX c600": {}}', "stands twice, also as C600"),
        ('{"C600": {"bandwidth": 1e12}, "C600": {}}', "'C600' stands twice"),
        ('{"C600": {"bandwidth": 1e12, "bandwidth": 2e12}}', "'bandwidth' stands twice"),
    ],
)
def test_wrong_peaks_are_refused_in_one_sentence(text: str, why: str) -> None:
    with pytest.raises(TreeError) as caught:
        specs.overrides(text)
    message = str(caught.value)
    assert why in message
    assert message.startswith("--specs: ")
    assert "\n" not in message


PEAKS = Peaks(1e12, {"bf16": 100e12, "fp8": 200e12}, "test")


@pytest.mark.parametrize(
    ("dtype", "moved", "flops", "seconds", "memory", "compute", "bound"),
    [
        ("bfloat16", 5e8, None, 1e-3, 0.5, None, "memory"),
        ("bfloat16", 5e8, 0, 1e-3, 0.5, None, "memory"),
        ("torch.bfloat16", 5e8, 80e9, 1e-3, 0.5, 0.8, "compute"),
        ("bf16", 9e8, 80e9, 1e-3, 0.9, 0.8, "memory"),
        ("float8_e4m3fn", None, 80e9, 1e-3, None, 0.4, "compute"),
        # The peak of a declared kind of work is not known: nobody can say what binds.
        ("float32", 5e8, 80e9, 1e-3, 0.5, None, None),
        ("fp16->int8", 5e8, 80e9, 1e-3, 0.5, None, None),
        (None, 5e8, 80e9, 1e-3, 0.5, None, None),
        (16, 5e8, None, 1e-3, 0.5, None, "memory"),
    ],
)
def test_roofline(
    dtype: Any,
    moved: float | None,
    flops: float | None,
    seconds: float,
    memory: float | None,
    compute: float | None,
    bound: str | None,
) -> None:
    found = specs.roofline(PEAKS, dtype, moved, flops, seconds)
    assert found is not None
    binding = {"memory": memory, "compute": compute, None: None}[bound]
    assert found["bandwidth_fraction"] == (memory if memory is None else pytest.approx(memory))
    assert found["flops_fraction"] == (compute if compute is None else pytest.approx(compute))
    assert found["bound"] == bound
    assert found["fraction"] == (binding if binding is None else pytest.approx(binding))
    assert (found["peak_bandwidth"], found["source"]) == (1e12, "test")


@pytest.mark.parametrize(
    ("peaks", "moved", "flops", "seconds"),
    [
        (None, 5e8, 1e9, 1e-3),
        (PEAKS, None, None, 1e-3),
        (PEAKS, 0, 0, 1e-3),
        (PEAKS, 5e8, 1e9, None),
        (PEAKS, 5e8, 1e9, 0.0),
        (PEAKS, 5e8, 1e9, float("nan")),
        (Peaks(None), 5e8, None, 1e-3),
    ],
)
def test_no_roofline_without_what_it_takes(
    peaks: Peaks | None, moved: float | None, flops: float | None, seconds: float | None
) -> None:
    assert specs.roofline(peaks, "bfloat16", moved, flops, seconds) is None


def test_without_bandwidth_the_bound_of_a_mixed_case_is_not_known() -> None:
    found = specs.roofline(Peaks(None, {"bf16": 1e14}), "bfloat16", 5e8, 50e9, 1e-3)
    assert found is not None
    assert (found["bound"], found["flops_fraction"]) == (None, 0.5)


UNKNOWN: dict[str, Any] = {
    "roofline": None,
    "cold_median": None,
    "batch_mean": None,
    "bytes_moved": None,
    "l2_bytes": None,
    "board_before": None,
    "board_after": None,
    "foreign": None,
}


# Measured rows: cold and batch GPU time and CPU time in microseconds.
@pytest.mark.parametrize(
    ("op", "cold", "batch", "cpu", "launch_bound"),
    [
        ("H200 gelu_new", 3.92, 24.12, 60.3, True),
        ("H200 dynamic_scaled_int8_quant", 17.76, 31.40, 65.6, True),
        ("H200 gelu_tanh_and_mul", 11.65, 21.53, 61.7, True),
        ("C500 get_cuda_view_from_cpu_tensor", 11.52, 15.36, 39.8, True),
        ("H200 dynamic_per_token_scaled_fp8_quant", 21.61, 24.78, 68.8, False),
        ("H200 cutlass_scaled_mm_azp", 94.97, 103.17, 188.4, False),
        ("H200 awq_dequantize", 47.64, 48.85, 127.1, False),
        ("H200 moe_align_block_size", 1107.3, 664.7, 1179.9, False),
        ("H200 silu_and_mul", 74.11, 71.51, 152.4, False),
        ("C500 awq_dequantize", 48.18, 33.61, 79.4, False),
        # Not measured: a long product whose clock the power limit lowers under steady load.
        ("a capped matrix product", 1500.0, 2100.0, 1560.0, False),
    ],
)
def test_launch_bound_rows(
    op: str, cold: float, batch: float, cpu: float, launch_bound: bool
) -> None:
    times = {"cold_median": cold * 1e-6, "batch_mean": batch * 1e-6, "cpu_median": cpu * 1e-6}
    expected = ["LAUNCH_BOUND"] if launch_bound else []
    assert specs.flags(**{**UNKNOWN, **times}) == expected, op


def board(*reasons: str, **more: Any) -> dict[str, Any]:
    limits = {"power_limit_w": 700.0, "default_power_limit_w": 700.0}
    return {"throttle_reasons": list(reasons), **limits, **more}


LOW = {"power_limit_w": 400.0}


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, []),
        ({"cold_median": 1e-5, "batch_mean": 2e-5}, ["LAUNCH_BOUND"]),
        ({"cold_median": 1e-5}, []),
        ({"batch_mean": 2e-5}, []),
        ({"roofline": {"bandwidth_fraction": 1.04, "flops_fraction": None}}, []),
        ({"roofline": {"bandwidth_fraction": 1.06, "flops_fraction": None}}, ["ABOVE_ROOFLINE"]),
        ({"roofline": {"bandwidth_fraction": 0.2, "flops_fraction": 1.2}}, ["ABOVE_ROOFLINE"]),
        ({"bytes_moved": 60 << 20, "l2_bytes": 60 << 20}, ["CACHE_RESIDENT"]),
        ({"bytes_moved": (60 << 20) + 1, "l2_bytes": 60 << 20}, []),
        ({"bytes_moved": 0, "l2_bytes": 60 << 20}, []),
        ({"bytes_moved": 100, "l2_bytes": 0}, []),
        ({"foreign": []}, []),
        ({"foreign": [{"pid": 1}]}, ["CONTENDED"]),
        ({"board_before": board("gpu_idle"), "board_after": board("sw_power_cap")}, []),
        ({"board_after": board("hw_slowdown")}, ["THROTTLED"]),
        ({"board_after": board("hw_thermal_slowdown")}, ["THROTTLED"]),
        ({"board_after": board("hw_power_brake_slowdown")}, ["THROTTLED"]),
        ({"board_before": board("sw_thermal_slowdown"), "board_after": board()}, ["THROTTLED"]),
        ({"board_after": board("sw_power_cap", **LOW)}, ["THROTTLED"]),
        ({"board_after": board(**LOW)}, []),
        (
            {
                "board_before": board(thermally_throttled_ns=5),
                "board_after": board(thermally_throttled_ns=6),
            },
            ["THROTTLED"],
        ),
        (
            {
                "board_before": board(thermally_throttled_ns=6, power_throttled_ns=1),
                "board_after": board(thermally_throttled_ns=6, power_throttled_ns=9),
            },
            [],
        ),
        (
            {
                "board_before": board(power_throttled_ns=1, **LOW),
                "board_after": board(power_throttled_ns=9, **LOW),
            },
            ["THROTTLED"],
        ),
        ({"board_after": board(thermally_throttled_ns=6)}, []),
        ({"board_before": {"source": None}, "board_after": {"throttle_reasons": None}}, []),
    ],
)
def test_flags(known: dict[str, Any], expected: list[str]) -> None:
    assert specs.flags(**{**UNKNOWN, **known}) == expected
