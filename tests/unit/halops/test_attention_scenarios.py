"""Attention's scenarios: backends against the reference, work, refusals, constraints, sweeps."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from core import metrics
from core.backends import refusal
from core.runner import ConfigError, Context
from harness import environment
from kernel.attention.scenarios import SCENARIOS, decode_gqa, decode_mla, prefill_paged
from kernel.attention.work import count_work

import benchmark as front_door

CPU = torch.device("cpu")
GQA: dict[str, Any] = {
    "num_q_heads": 8,
    "num_kv_heads": 2,
    "head_dim": 64,
    "page_size": 16,
    "dtype": "bfloat16",
    "backends": ["sdpa_math", "sdpa_flash", "fa2", "fi", "halops"],
}
SWEEPS: dict[str, dict[str, Any]] = {
    "prefill_dense": {k: v for k, v in GQA.items() if k != "page_size"} | {"seq_lens": [33]},
    "prefill_paged": GQA | {"seq_lens": [33]},
    "prefill_chunk": GQA | {"prefix_len_list": [0, 20], "chunk_len_list": [9]},
    "decode_gqa": GQA | {"s_kv_list": [40], "mtp_steps_list": [0, 2]},
    "decode_mla": {
        "num_q_heads": 4,
        "kv_lora_rank": 32,
        "qk_rope_head_dim": 16,
        "dtype": "bfloat16",
        "s_kv_list": [40],
        "backends": ["fi", "sdpa_math"],
    },
}
FP8 = ("float8_e4m3fn", "fp8", "e4m3")


def _context() -> Context:
    context = Context(CPU, environment.cpu_device(), dry_run_iters=1, repeat_iters=1)
    context.op = "attention"
    return context


def _run(scenario: str, cfg: dict[str, Any]) -> Context:
    context = _context()
    context.scenario = scenario
    front_door._run_scenarios(SCENARIOS[scenario], cfg, context)
    return context


@pytest.mark.parametrize("scenario", list(SCENARIOS))
def test_torch_passes_and_what_is_not_installed_is_unavailable(scenario: str) -> None:
    context = _run(scenario, SWEEPS[scenario] | {"batch_sizes": [1, 2]})
    statuses = {row.backend: row.status for row in context.rows}
    assert statuses.pop("sdpa_math") == "PASSED"
    assert statuses.pop("sdpa_flash", "PASSED") == "PASSED"
    assert set(statuses.values()) == {"UNAVAILABLE"}
    assert {row.params["batch_size"] for row in context.rows} == {1, 2}
    if "halops" in statuses:
        assert context.rows[0].backend == "halops", "it comes first"
    assert not [note for note in context.notes if "never reads" in note]


def test_a_field_that_nobody_reads_is_told() -> None:
    context = _run("decode_mla", SWEEPS["decode_mla"] | {"kv_lora_rnk": 4})
    assert any("kv_lora_rnk" in note for note in context.notes)


def test_every_sweep_is_walked() -> None:
    context = _run("prefill_chunk", SWEEPS["prefill_chunk"] | {"backends": ["sdpa_math"]})
    assert [(row.params["prefix_len"], row.params["chunk_len"]) for row in context.rows] == [
        (0, 9),
        (20, 9),
    ]
    context = _run("decode_gqa", SWEEPS["decode_gqa"] | {"backends": ["sdpa_math"]})
    assert [row.params["mtp_steps"] for row in context.rows] == [0, 2]


@pytest.mark.parametrize("name", ["fa2", "fa4", "fa4_paged", "cudnn", "sdpa_flash", "sdpa_math"])
def test_fp8_is_refused_by_what_does_not_do_it(name: str) -> None:
    adapt = decode_gqa._get_backends()[name]
    for dtype in FP8:
        assert refusal(adapt, {"dtype": dtype}) is not None
    assert refusal(adapt, {"dtype": "bfloat16", "cache_quant_type": "per_tensor"}) is not None
    assert refusal(adapt, {"dtype": "bfloat16"}) is None


@pytest.mark.parametrize("name", ["halops", "golden", "fi", "fi(trtllm-gen)", "fi_trtllm"])
def test_fp8_is_taken_by_what_does_it(name: str) -> None:
    adapt = decode_gqa._get_backends()[name]
    for dtype in FP8:
        assert refusal(adapt, {"dtype": dtype, "cache_quant_type": "per_tensor"}) is None


def test_aliases_of_fp8_are_local_to_decoding() -> None:
    with pytest.raises(AttributeError):
        _run("prefill_paged", SWEEPS["prefill_paged"] | {"dtype": "fp8"})


@pytest.mark.parametrize(
    ("cfg", "says"),
    [
        ({"num_q_heads": 7}, "multiple"),
        ({"num_q_heads": 64, "num_kv_heads": 2, "mtp_steps_list": [0, 2]}, "64"),
    ],
)
def test_constraints_of_decoding(cfg: dict[str, Any], says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        decode_gqa.build_inputs(GQA | cfg, 40, 0, CPU)


def test_the_bound_on_mtp_steps_is_met_exactly() -> None:
    cfg = GQA | {"num_q_heads": 64, "num_kv_heads": 2, "mtp_steps_list": [1]}
    decode_gqa.build_inputs(cfg, 40, 1, CPU)


def _bytes(*tensors: torch.Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def test_bytes_are_those_of_the_tensors_that_are_used() -> None:
    cfg = GQA | {"batch_size": 3, "ragged": True, "cache_quant_type": "per_head"}
    inputs = decode_gqa.build_inputs(cfg, 40, 1, CPU)
    assert inputs.kv_lens == [20, 30, 40]
    k, v = inputs.packed(inputs.k_pages), inputs.packed(inputs.v_pages)
    assert inputs.k_scale is not None
    assert inputs.v_scale is not None
    _, pages, _ = inputs.page_lists()
    found = count_work(inputs)
    assert found.bytes_read == _bytes(inputs.q, k, v, inputs.k_scale, inputs.v_scale, pages)
    assert found.bytes_written == _bytes(inputs.q)
    pairs = sum(20 - 1 + i for i in range(2)) + sum(30 - 1 + i for i in range(2)) + 39 + 40
    assert found.flops == 2 * 8 * (64 + 64) * pairs


def test_the_latent_cache_is_counted_once() -> None:
    cfg = SWEEPS["decode_mla"]
    inputs = decode_mla.build_inputs(cfg, 40, 0, CPU)
    found = count_work(inputs, shared_latent=True)
    cache, (_, pages, _) = inputs.packed(inputs.k_pages), inputs.page_lists()
    assert found.bytes_read == _bytes(inputs.q, cache, pages)
    assert found.flops == 2 * 4 * (48 + 32) * 40
    assert inputs.v_pages.data_ptr() == inputs.k_pages.data_ptr()


def test_pages_are_disjoint_and_shuffled() -> None:
    inputs = prefill_paged.build_inputs(GQA | {"batch_size": 4, "ragged": True}, 200, CPU)
    starts, pages, lasts = inputs.page_lists()
    assert sorted(pages.tolist()) == list(range(inputs.k_pages.shape[0]))
    assert pages.tolist() != sorted(pages.tolist())
    counts = (starts[1:] - starts[:-1]).tolist()
    assert [(n - 1) * 16 + int(x) for n, x in zip(counts, lasts, strict=True)] == inputs.kv_lens


CONFIGS = sorted((Path(front_door.ROOT) / "configs" / "attention").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_configurations_pass_the_check(path: Path) -> None:
    cfg = yaml.safe_load(path.read_text())
    context = _context()
    context.scenario = cfg["scenario"]
    front_door._check(SCENARIOS[cfg["scenario"]], cfg, context)
    assert not [note for note in context.notes if "never reads" in note]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"dtype": "bf16"}, "bfloat16"),
        ({"dtype": "fp8", "backends": ["fi", "fa2"]}, "fa2"),
        ({"backends": ["fa9"]}, "fa9"),
        ({"cache_quant_type": "int4"}, "per_head"),
        ({"gpu_type": "b300"}, "b300"),
        ({"s_kv_list": None}, "s_kv_list"),
    ],
)
def test_wrong_configurations_are_refused(change: dict[str, Any], says: str) -> None:
    cfg = {k: v for k, v in (SWEEPS["decode_gqa"] | change).items() if v is not None}
    with pytest.raises(ConfigError, match=says):
        front_door._check(SCENARIOS["decode_gqa"], cfg, _context())


def test_the_front_door(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "attention").mkdir()
    config, records = tmp_path / "attention" / "x.yaml", tmp_path / "r.jsonl"
    fields = SWEEPS["decode_gqa"] | {"scenario": "decode_gqa", "backends": ["sdpa_math"]}
    config.write_text(yaml.safe_dump(fields))
    words = [f"--config={config}", "--device=cpu", "--dry-run-iters=1", "--repeat-iters=1"]
    table = tmp_path / "t.csv"
    assert front_door.main([*words, f"--records={records}", f"--csv={table}"]) == 0
    assert "PASSED" in capsys.readouterr().out
    assert len(records.read_text().splitlines()) == 2
    assert len(table.read_text().splitlines()) == 3
    assert front_door.main([*words, "--backend=fa2"]) == 3
    assert front_door.main([*words, "--backend=nobody"]) == 2
    config.write_text(yaml.safe_dump(fields | {"dtype": "bf16"}))
    assert front_door.main(words) == 2
    assert "bfloat16" in capsys.readouterr().err
    assert front_door.main([f"--config={tmp_path}/absent.yaml"]) == 2


def test_every_scenario_has_its_parts() -> None:
    for name in SCENARIOS:
        module = importlib.import_module(f"kernel.attention.scenarios.{name}")
        registry = module._get_backends()
        assert next(iter(registry)) == "halops"
        assert "golden" in registry
        assert callable(module.build_inputs)
    assert metrics.GPU_SPECS


def test_the_library_is_used_when_it_can_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "halops"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "attention.py").write_text(
        "import torch\n"
        "def decode_gqa(*, q, k_cache, v_cache, page_table, cu_seqlens_q, seq_lens,\n"
        "               softmax_scale, causal, k_scale, v_scale, out_dtype):\n"
        "    k, v = (t[page_table.long()].flatten(1, 2)[:, :int(seq_lens[0])]\n"
        "            .repeat_interleave(q.shape[1] // t.shape[2], 2) for t in (k_cache, v_cache))\n"
        "    q = q.view(len(seq_lens), -1, *q.shape[1:])\n"
        "    scores = torch.einsum('bqhd,bkhd->bhqk', q.float(), k.float()) * softmax_scale\n"
        "    out = torch.einsum('bhqk,bkhd->bqhd', scores.softmax(-1), v.float())\n"
        "    return out.flatten(0, 1).to(out_dtype)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("halops", "halops.attention"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    cfg = SWEEPS["decode_gqa"] | {"backends": ["sdpa_math", "halops"], "batch_size": 2}
    context = _run("decode_gqa", cfg | {"mtp_steps_list": [0]})
    assert [(row.backend, row.status) for row in context.rows] == [
        ("halops", "PASSED"),
        ("sdpa_math", "PASSED"),
    ]
    assert context.rows[0].speedup == 1.0
    context = _run("prefill_paged", SWEEPS["prefill_paged"] | {"backends": ["halops"]})
    assert context.rows[0].status == "UNAVAILABLE"
    assert "halops.attention.prefill_paged" in str(context.rows[0].reason)
    for name in ("halops", "halops.attention"):
        sys.modules.pop(name)
