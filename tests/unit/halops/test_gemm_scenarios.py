"""GEMM scenarios from configuration to rows: what passes, what fails, and what is refused."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from core.backends import Launch, UnavailableError, UnsupportedError, refusal
from core.report import Row
from core.runner import ConfigError, Context
from kernel.gemm.backends import deep_gemm, golden, halops, torch_mm
from kernel.gemm.scenarios import SCENARIOS, dense, group_masked, grouped_contiguous
from test_gemm_golden import CPU

CONFIGS = Path(dense.__file__).resolve().parents[3] / "configs" / "gemm"
MODULES = {"dense": dense, "grouped_contiguous": grouped_contiguous, "group_masked": group_masked}
SHAPES = {"dense": [9, 128, 128], "grouped_contiguous": [3, 24, 128, 128]}
SHAPES["group_masked"] = [3, 8, 128, 128]


def config(scenario: str, **fields: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "mode": "bf16",
        "shapes": [SHAPES[scenario]],
        "backends": ["halops", "golden", "torch"],
    }
    if scenario == "grouped_contiguous":
        base |= {"m_alignment": 4, "routing": "random"}
    if scenario == "group_masked":
        base |= {"masked_m": [8, 0, 3]}
    return base | fields


def run(scenario: str, cfg: dict[str, Any], *, checking: bool = False) -> list[Row]:
    ctx = Context(CPU, {"kind": "cpu"}, dry_run_iters=1, repeat_iters=2, checking=checking)
    ctx.op, ctx.scenario = "gemm", scenario
    SCENARIOS[scenario](cfg, ctx)
    return ctx.rows


def only(rows: list[Row], backend: str) -> Row:
    (found,) = (row for row in rows if row.backend == backend)
    return found


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the adapters of GPU libraries run where PyTorch has the same functions for the CPU."""
    for module in (torch_mm, deep_gemm, halops):
        monkeypatch.setattr(module, "need_cuda", lambda tensor, backend: None)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_torch_is_held_against_the_reference_on_a_cpu(scenario: str) -> None:
    if scenario == "group_masked":
        rows = run(scenario, config(scenario, backends=["golden", "torch"]))
    else:
        rows = run(scenario, config(scenario))
        assert only(rows, "halops").status == "UNAVAILABLE"
        assert only(rows, "halops").reason == "halops is not installed"
    assert only(rows, "golden").status == "UNVERIFIED"
    row = only(rows, "torch")
    assert row.status == "PASSED" and row.verdict is not None
    assert row.verdict.poisoned or scenario == "grouped_contiguous"  # torch allocates that output
    assert 0 < float(row.verdict.metrics["worst_row_error"] or 0) < 2**-7
    assert (
        row.work is not None
        and row.work.flops
        == 2
        * 128
        * 128
        * {
            "dense": 9,
            "grouped_contiguous": 24,
            "group_masked": 11,
        }[scenario]
    )


@pytest.mark.parametrize("scenario", ["grouped_contiguous", "group_masked"])
def test_grouped_speedups_are_against_the_first_that_succeeds(
    scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(inputs: Any) -> Launch:
        return lambda: torch.ones(sum(inputs.rows), 128)

    monkeypatch.setattr(torch_mm, "grouped_contiguous", wrong)
    monkeypatch.setattr(torch_mm, "padded", wrong)
    cfg = config(scenario, masked_m=5, backends=["halops", "torch", "golden"])
    rows = run(scenario, cfg)
    assert [row.status for row in rows] == ["UNAVAILABLE", "FAILED", "UNVERIFIED"]
    assert [row.speedup for row in rows] == [None, None, 1.0]


def test_dense_moves_halops_to_the_front_grouped_keeps_the_order() -> None:
    given = ["torch", "halops"]
    assert run("dense", config("dense", backends=given))[0].backend == "halops"
    cfg = config("grouped_contiguous", backends=given)
    assert [row.backend for row in run("grouped_contiguous", cfg)] == given


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("mode", ["bf16", "w8a8-fp8"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_cublas_calls_agree_with_the_reference(scenario: str, mode: str) -> None:
    rows = run(scenario, config(scenario, mode=mode, backends=["golden", "cublas"]))
    row = only(rows, "cublas")
    assert (row.status, row.reason) == ("PASSED", None)
    assert row.verdict is not None and row.verdict.poisoned


@pytest.mark.usefixtures("on_cpu")
def test_one_wrong_row_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(inputs: Any) -> Launch:
        def launch() -> torch.Tensor:
            out = golden.dense(inputs)().to(torch.bfloat16)
            out[4] *= 1.05
            return out

        return launch

    monkeypatch.setattr(torch_mm, "dense", wrong)
    row = only(run("dense", config("dense")), "torch")
    assert row.status == "FAILED" and row.roofline is None


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(
    ("mode", "k", "told"),
    [
        ("w8a8-fp8", 100, "16 bytes"),
        ("w8a8-mxfp8", 48, "32 along K"),
        ("w4a4-nvfp4", 100, "packed FP4"),
        ("w4a4-nvfp4", 48, "packed FP4"),
    ],
)
def test_k_is_bound_by_the_mode(scenario: str, mode: str, k: int, told: str) -> None:
    shape = [*SHAPES[scenario][:-1], k]
    rows = run(scenario, config(scenario, mode=mode, shapes=[shape], backends=["golden"]))
    assert rows[0].status == "ERROR" and told in str(rows[0].reason)


@pytest.mark.parametrize("side", [-1, -2])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scales_by_blocks_bind_n_and_k(scenario: str, side: int) -> None:
    shape = list(SHAPES[scenario])
    shape[side] = 144
    cfg = config(scenario, mode="w8a8-fp8", fp8_scales="block", shapes=[shape])
    rows = run(scenario, cfg | {"backends": ["golden"]})
    assert rows[0].status == "ERROR" and "= 144" in str(rows[0].reason)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_bf16_binds_nothing(scenario: str) -> None:
    shape = [*SHAPES[scenario][:-2], 7, 13]
    rows = run(scenario, config(scenario, shapes=[shape], backends=["golden"]))
    assert rows[0].status == "UNVERIFIED"


# Which configurations an adapter refuses by themselves, before data is made.
REFUSED: dict[str, Callable[[str, dict[str, Any]], bool]] = {
    "halops": lambda name, cfg: isinstance(cfg.get("masked_m"), list),
    "golden": lambda name, cfg: False,
    "cublas": lambda name, cfg: bool(cfg["mode"] == "bf16" and cfg["sm_count"]),
    "torch": lambda name, cfg: bool(
        cfg["sm_count"]
        or cfg["mode"] in ("w8a8-mxfp8", "w4a4-nvfp4")
        or (
            cfg["mode"] == "w8a8-fp8"
            and (name != "grouped_contiguous" or cfg["fp8_scales"] != "row")
        )
    ),
    "deep_gemm": lambda name, cfg: bool(
        cfg["mode"] in ("w8a8-mxfp8", "w4a4-nvfp4")
        or (cfg["mode"] == "w8a8-fp8" and cfg["fp8_scales"] != "block")
        or isinstance(cfg.get("masked_m"), list)
    ),
}


@pytest.mark.parametrize("mode", ["bf16", "w8a8-fp8", "w8a8-mxfp8", "w4a4-nvfp4"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_adapters_refuse_what_their_library_does_not_do(scenario: str, mode: str) -> None:
    registry = MODULES[scenario]._get_backends()
    assert list(registry) == list(REFUSED)
    for scales in ("row", "block"):
        for sm_count in (0, 64):
            cfg = config(scenario, mode=mode, fp8_scales=scales, sm_count=sm_count)
            for backend, adapt in registry.items():
                refused = refusal(adapt, cfg) is not None
                assert refused == REFUSED[backend](scenario, cfg), (backend, cfg)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"mode": "fp8"}, "mode 'fp8'"),
        ({"mode": "w4a4-nvfp4"}, "torch does not do w4a4-nvfp4"),
        ({"backends": ["cutlass"]}, "cutlass"),
        ({"fp8_scales": "tensor"}, "neither row nor block"),
        ({"shapes": [[1, 2]]}, "[M, N, K]"),
        ({"shapes": [[1, 2, 0]]}, "positive"),
        ({"shapes": [[1, 2, True]]}, "positive"),
        ({"refcheck_reference": "oracle"}, "oracle"),
    ],
)
def test_a_wrong_configuration_is_refused_before_anything_runs(
    fields: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        run("dense", config("dense", **fields), checking=True)
    assert told in str(caught.value)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: str(path.name))
def test_every_configuration_is_accepted_and_names_halops_first(path: Path) -> None:
    cfg = yaml.safe_load(path.read_text(encoding="utf-8"))
    scenario = cfg.pop("scenario")
    assert path.name.startswith(scenario)
    assert cfg["mode"].replace("-", "_") in path.name
    assert cfg["backends"][0] == "halops"
    run(scenario, cfg, checking=True)


FAKE = """
import torch

CALLS = []


def set_num_sms(count):
    CALLS.append(("sms", count))


def bf16_gemm_nt(a, b, out):
    out.copy_(a @ b.t())


def m_grouped_bf16_gemm_nt_contiguous(a, b, out, indices):
    for row, expert in enumerate(indices.tolist()):
        out[row] = a[row] @ b[expert].t()


def m_grouped_bf16_gemm_nt_masked(a, b, out, masked_m, expected_m):
    CALLS.append(("expected", expected_m))
    for expert, count in enumerate(masked_m.tolist()):
        out[expert, :count] = a[expert, :count] @ b[expert].t()


def gemm_dense(*, a, b, out, scale_a, scale_b, global_a, global_b, mode, sm_count):
    CALLS.append((mode, sm_count, scale_a, global_b))
    bf16_gemm_nt(a, b, out)


def gemm_group_masked(*, a, b, out, masked_m, **others):
    m_grouped_bf16_gemm_nt_masked(a, b, out, masked_m, None)
"""


@pytest.fixture
def library(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """A library of the given name that multiplies with PyTorch and notes how it was called."""
    (tmp_path / f"{request.param}.py").write_text(FAKE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(deep_gemm, "need_capability", lambda backend, *majors: None)
    sms = type("Properties", (), {"multi_processor_count": 132})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: sms)
    yield importlib.import_module(request.param)
    sys.modules.pop(request.param)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("library", ["deep_gemm"], indirect=True)
@pytest.mark.parametrize("sm_count", [0, 64])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_deep_gemm_is_called_as_it_wants(scenario: str, sm_count: int, library: Any) -> None:
    cfg = config(scenario, backends=["golden", "deep_gemm"], sm_count=sm_count)
    if scenario == "group_masked":
        cfg["masked_m"] = 5
    row = only(run(scenario, cfg), "deep_gemm")
    assert (row.status, row.reason) == ("PASSED", None)
    assert ("sms", sm_count or 132) in library.CALLS
    assert (("expected", 5) in library.CALLS) == (scenario == "group_masked")


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("library", ["halops"], indirect=True)
def test_halops_is_called_by_keyword_and_what_it_lacks_is_told(library: Any) -> None:
    row = only(run("dense", config("dense", sm_count=7, backends=["halops"])), "halops")
    assert (row.status, row.reason) == ("PASSED", None)
    assert library.CALLS[0] == ("bf16", 7, None, None)
    row = only(
        run("group_masked", config("group_masked", masked_m=5, backends=["halops"])), "halops"
    )
    assert (row.status, row.reason) == ("PASSED", None)
    rows = run("grouped_contiguous", config("grouped_contiguous", backends=["halops"]))
    assert rows[0].status == "UNAVAILABLE"
    assert rows[0].reason == "this halops has no gemm_grouped_contiguous"


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("library", ["deep_gemm"], indirect=True)
def test_a_masked_kernel_that_writes_too_few_rows_fails(library: Any) -> None:
    whole = library.m_grouped_bf16_gemm_nt_masked

    def short(a: Any, b: Any, out: Any, masked_m: Any, expected_m: Any) -> None:
        whole(a, b, out, masked_m - 1, expected_m)

    library.m_grouped_bf16_gemm_nt_masked = short
    cfg = config("group_masked", masked_m=5, backends=["golden", "deep_gemm"])
    assert only(run("group_masked", cfg), "deep_gemm").status == "FAILED"


@pytest.mark.usefixtures("on_cpu")
def test_cublas_is_limited_while_it_runs_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[int | None] = []
    sms = type("Properties", (), {"multi_processor_count": 132})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: sms)
    monkeypatch.setattr(torch._C, "_set_sm_carveout_experimental", set_to.append, raising=False)
    inputs = dense._make_inputs({"mode": "w8a8-fp8"}, 16, 32, 32, CPU)
    torch_mm.cublas_dense(inputs, 100)()
    assert set_to == [32, None]
    torch_mm.cublas_dense(inputs, 0)()
    assert set_to == [32, None]


def test_gpu_libraries_are_unavailable_on_a_cpu_with_the_reason() -> None:
    cfg = config("dense", backends=["cublas", "deep_gemm"])
    rows = run("dense", cfg)
    assert [row.status for row in rows] == ["UNAVAILABLE"] * 2
    assert "needs a GPU" in str(rows[0].reason)
    assert rows[1].reason == "deep_gemm is not installed"
    inputs = dense._make_inputs({"mode": "bf16"}, 4, 4, 4, CPU)
    with pytest.raises(UnavailableError):
        halops.dense(inputs, 0)
    with pytest.raises(UnsupportedError):
        dense.adapt_torch(inputs, {"mode": "w8a8-mxfp8"})
