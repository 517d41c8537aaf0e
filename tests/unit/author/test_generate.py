"""``mxfleet gen op`` as a process, for every operator of the source trees."""

from __future__ import annotations

import difflib
import json
import re
import shutil
from pathlib import Path

import pytest
from authored import AUTHORED, Authored
from authored_work import TODO, Generated, Work

BY_NAME = {authored.name: authored for authored in AUTHORED}


@pytest.fixture
def work(bare: Work, tmp_path: Path) -> Work:
    """A fresh copy of it."""
    shutil.copytree(bare.folder, tmp_path / "work", symlinks=True)
    return Work(tmp_path / "work")


each = pytest.mark.parametrize("authored", AUTHORED, ids=str)


@each
def test_configuration_and_runner_are_written(generated: Generated, authored: Authored) -> None:
    ran = generated.ran[authored.name]
    for name in authored.files():
        assert (generated.work.benchmark / name).is_file(), ran.out + ran.err
    config = json.loads((generated.work.benchmark / authored.files()[0]).read_text())
    assert config["device_id"] == 0 and config["device_name"] == "MetaX C500"
    assert re.fullmatch(r"(b?float|u?int)\d+\w*", config["dtype"])
    assert config["samples"] == (100 if authored.name == "gptq_shuffle" else 1000)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("silu_and_mul", {"num_tokens": 4096, "d": 13824}),
        ("rms_norm", {"num_tokens": 4096, "hidden_size": 8192}),
        ("moe_sum", {"m": 4096, "k": 1024}),
        ("moe_align_block_size", {"m": 4096, "num_experts": 256, "topk": 8}),
        ("paged_attention_v1", {"num_query_heads": 64, "num_kv_heads": 8, "block_size": 16}),
    ],
)
def test_what_is_timed_is_worth_measuring(
    generated: Generated, name: str, sizes: dict[str, int]
) -> None:
    config = json.loads((generated.work.benchmark / "config" / f"{name}.json").read_text())
    assert config == {**config, **sizes}


@each
def test_the_whitelist_gets_one_line_and_stays_sorted(
    generated: Generated, authored: Authored
) -> None:
    before, after = generated.whitelist[authored.name]
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    assert [line.strip("+ ") for line in changed] == [f'"{authored.name}",']
    names = re.findall(r'^ {4}"(\w+)",$', "\n".join(after), re.M)
    assert names == sorted(names) and authored.name in names


@each
def test_little_is_left_open_and_all_of_it_is_told(
    generated: Generated, authored: Authored
) -> None:
    left = generated.work.todos(authored)
    assert len(left) <= authored.most_todos, left
    told = generated.ran[authored.name].out
    for line in left:
        assert json.dumps(line.partition(f"{TODO}: ")[2])[1:40] in told


def test_check_has_nothing_against_what_was_generated(generated: Generated) -> None:
    sources = [word for a in AUTHORED for word in ("--source", str(a.source))]
    ran = generated.work.mxfleet("check", *dict.fromkeys(BY_NAME), *sources, "--output", "json")
    found = [event for event in ran.events() if event.get("severity") == "error"]
    open_points = [event for event in found if event.get("rule") == "todo"]
    assert [event for event in found if event not in open_points] == []
    left = [line for authored in AUTHORED for line in generated.work.todos(authored)]
    assert len(open_points) == len(left)


def test_a_second_time_is_refused_unless_forced_and_then_says_the_same(
    generated: Generated,
) -> None:
    work, authored = generated.work, BY_NAME["silu_and_mul"]
    before = work.state()
    refused = work.generate(authored)
    assert refused.code == 2 and "--force" in refused.out + refused.err
    assert work.state() == before
    forced = work.generate(authored, "--force")
    assert forced.code == 0, forced.err
    assert work.state() == before


@pytest.mark.parametrize("name", ["silu_and_mul", "vllm_topk_softmax"])
def test_a_dry_run_shows_the_difference_and_writes_nothing(work: Work, name: str) -> None:
    before = work.state()
    ran = work.generate(BY_NAME[name], "--dry-run")
    assert work.state() == before
    assert f'+    "{name}",' in ran.out
    assert f"+++ b/benchmark/config/{name}.json" in ran.out or f"config/{name}.json" in ran.out
    assert '+    "device_id": 0,' in ran.out


def test_an_operator_of_two_frameworks_becomes_two_benchmarks(work: Work) -> None:
    vllm, sgl = BY_NAME["vllm_topk_softmax"], BY_NAME["sgl_topk_softmax"]
    for authored in (vllm, sgl):
        ran = work.generate(authored)
        assert ran.code in (0, 1), ran.err
        assert "vllm_topk_softmax" in ran.out + ran.err and "sgl_topk_softmax" in ran.out + ran.err
    assert "torch.ops._moe_C.topk_softmax" in work.runner(vllm)
    assert "torch.ops.sgl_kernel.topk_softmax" in work.runner(sgl)
    assert not (work.benchmark / "config" / "topk_softmax.json").exists()


def test_an_output_that_the_unit_test_does_not_look_at_is_told(generated: Generated) -> None:
    told = generated.ran["vllm_topk_softmax"].events()
    open_points = [str(event) for event in told if event["event"] != "summary"]
    assert any("token_expert_indices" in text and "compare" in text for text in open_points)


def test_with_both_unit_tests_both_are_written_at_once(work: Work) -> None:
    vllm, sgl = BY_NAME["vllm_rotary_embedding"], BY_NAME["sgl_rotary_embedding"]
    tests = ["--unit-test", str(vllm.test), "--unit-test", str(sgl.test)]
    words = ["gen", "op", vllm.operator, "--source", str(vllm.source), *tests]
    ran = work.mxfleet(*words)
    assert ran.code in (0, 1), ran.out + ran.err
    assert "torch.ops._C.rotary_embedding" in work.runner(vllm)
    assert "torch.ops.sgl_kernel.rotary_embedding" in work.runner(sgl)
    assert "RotaryEmbedding" in work.runner(sgl) and "RotaryEmbedding" not in work.runner(vllm)


def test_what_is_set_is_what_is_configured(work: Work) -> None:
    flags = ["--set", "num_tokens=[16,32]", "--set", "dtype=float16", "--samples", "50"]
    ran = work.generate(BY_NAME["silu_and_mul"], *flags, "--device-name", "MetaX C600")
    assert ran.code == 0, ran.err
    config = json.loads((work.benchmark / "config" / "silu_and_mul.json").read_text())
    wanted = {"num_tokens": [16, 32], "dtype": "float16", "samples": 50}
    assert config == {**config, **wanted, "device_name": "MetaX C600"}


def test_a_schema_that_grew_is_read_anew_and_old_runners_are_told_what_they_miss(
    work: Work, tmp_path: Path
) -> None:
    authored = BY_NAME["top_k_per_row_decode"]
    assert work.generate(authored).code == 0
    newer = tmp_path / "mcoplib"
    shutil.copytree(authored.source, newer)
    for name, old, new in (
        ("torch_bindings.cpp", "int stride1, int topK)", "int stride1, int topK, int rounds)"),
        ("ops.h", "int64_t topK);", "int64_t topK, int64_t rounds);"),
        ("sampler.cu", "int64_t topK) {", "int64_t topK, int64_t rounds) {"),
    ):
        file = newer / "op" / "vllm" / name
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))
    found = work.mxfleet("check", authored.name, "--source", str(newer))
    assert found.code == 1 and "missing value for argument 'rounds'" in found.out
    words = authored.arguments()
    words[words.index(str(authored.source))] = str(newer)
    again = work.mxfleet(*words, "--force")
    assert "rounds" in "".join(work.todos(authored)) and "rounds" in again.out


def test_an_unknown_operator_names_near_ones_and_writes_nothing(work: Work) -> None:
    before = work.state()
    authored = BY_NAME["silu_and_mul"]
    words = ["gen", "op", "silu_and_mull", *authored.arguments()[3:]]
    ran = work.mxfleet(*words)
    assert ran.code == 2 and "silu_and_mul" in (ran.out + ran.err).replace("silu_and_mull", "")
    assert "Traceback" not in ran.err and work.state() == before
