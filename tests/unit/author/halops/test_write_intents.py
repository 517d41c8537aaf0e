"""Intents in both languages against a small checkout: the config's values, or the questions."""

from __future__ import annotations

from typing import Any

import pytest
from small_checkout import GEOMETRY, PLAIN, checkout

from orchestrator.author.halops.facts import Scenario
from orchestrator.author.halops.intent import parse_intent
from orchestrator.author.halops.intent.choose import choose
from orchestrator.author.halops.intent.question import Question
from orchestrator.author.halops.write.compose import Composed, compose
from orchestrator.author.halops.write.names import file_name

KV = [4096, 8192, 16384, 32768, 65536]
TREE = checkout()


def made(text: str, **given: Any) -> tuple[Scenario, Composed]:
    intent = parse_intent(text)
    scenario = choose(TREE, intent)
    assert isinstance(scenario, Scenario), scenario.as_dict()
    return scenario, compose(TREE, scenario, intent, given)


def decode(dtype: str, backends: list[str], **more: Any) -> dict[str, Any]:
    return {"scenario": "decode_gqa", "dtype": dtype, "backends": backends, **more}


# What is asked for, the file's name, and the values that were not inferred.
COMPLETE = [
    (
        "给 decode_gqa 加个 FP8 的配置, batch 1/16/64, kv 4k 到 64k, 后端 halops、fi 和 golden",
        "decode_gqa_b1-64_kv4k-64k_gqa8_fp8",
        decode("fp8", ["halops", "fi", "golden"], batch_sizes=[1, 16, 64], s_kv_list=KV),
    ),
    (
        "add an fp8 decode_gqa config, batch 1/16/64, kv 4k to 64k, backends fi, halops, golden",
        "decode_gqa_b1-64_kv4k-64k_gqa8_fp8",
        decode("fp8", ["halops", "fi", "golden"], batch_sizes=[1, 16, 64], s_kv_list=KV),
    ),
    (
        "decode GQA ｆｐ８, all backends, bs 1, kv ８k",
        "decode_gqa_b1_kv8k_gqa8_fp8",
        decode(
            "fp8",
            ["halops", "golden", "fi", "fi_trtllm", "fi(trtllm-gen)"],
            batch_sizes=[1],
            s_kv_list=[8192],
        ),
    ),
    (
        "decode gqa bf16 全部后端 除了 fa4 和 cudnn, batch 1-64, kv 4k-32k, "
        "96 个 q 头 8 个 kv 头, 头维 192",
        "decode_gqa_b1-64_kv4k-32k_gqa12_bf16",
        decode(
            "bfloat16",
            ["halops", "golden", "fa2", "fa4_paged", "fi", "fi_trtllm", "fi(trtllm-gen)"],
            batch_sizes=[1, 2, 4, 8, 16, 32, 64],
            s_kv_list=KV[:-1],
            num_q_heads=96,
            num_kv_heads=8,
            head_dim=192,
        ),
    ),
    (
        "decode_gqa bf16 mtp 0 到 3 gqa 4:1 8 kv heads hd 128 kv 4k batch 16 h200 "
        "backends halops,fa2",
        "decode_gqa_b16_kv4k_mtp0-3_gqa4_bf16",
        decode(
            "bfloat16",
            ["halops", "fa2"],
            batch_sizes=[16],
            s_kv_list=[4096],
            num_q_heads=32,
            num_kv_heads=8,
            head_dim=128,
            mtp_steps_list=[0, 1, 2, 3],
            gpu_type="h200",
        ),
    ),
    (
        "decode_gqa fp16, GQA 64/8, 上下文 4k、64k, 并发 16, 只用 halops, 不要 refcheck",
        "decode_gqa_b16_kv4k-64k_gqa8_fp16",
        decode(
            "float16",
            ["halops"],
            batch_sizes=[16],
            s_kv_list=[4096, 65536],
            num_q_heads=64,
            num_kv_heads=8,
            refcheck=False,
        ),
    ),
    (
        "decode GQA with bf16, FlashInfer and flash-attention 2, context 4k, 1 到 4 batch, "
        "cuda graph off",
        "decode_gqa_b1-4_kv4k_gqa8_bf16",
        decode(
            "bfloat16",
            ["fi", "fa2"],
            batch_sizes=[1, 2, 4],
            s_kv_list=[4096],
            use_cuda_graph=False,
        ),
    ),
    (
        "分块预填充 bf16, 前缀 4k/8k, 块长 512, batch 1, halops golden",
        "prefill_chunk_b1_p4k-8k_c512_gqa8_bf16",
        {
            "scenario": "prefill_chunk",
            "batch_sizes": [1],
            "prefix_len_list": [4096, 8192],
            "chunk_len_list": [512],
            "dtype": "bfloat16",
            "backends": ["halops", "golden"],
        },
    ),
    (
        "chunked prefill, prefix 8k to 32k, chunk 1k, bs=2, half, backends: halops, fa2",
        "prefill_chunk_b2_p8k-32k_c1k_gqa8_fp16",
        {
            "scenario": "prefill_chunk",
            "batch_sizes": [2],
            "prefix_len_list": [8192, 16384, 32768],
            "chunk_len_list": [1024],
            "dtype": "float16",
            "backends": ["halops", "fa2"],
        },
    ),
    (
        "分页的 prefill, 半精度, 序列 1k~16k, 批 1、4, 后端 halops",
        "prefill_paged_b1-4_s1k-16k_gqa8_fp16",
        {
            "scenario": "prefill_paged",
            "batch_sizes": [1, 4],
            "s_q_list": [1024, 2048, 4096, 8192, 16384],
            "dtype": "float16",
            "backends": ["halops"],
        },
    ),
    (
        "prefill dense fp16, seqlen 1k/4k, batch 2, halops sdpa_flash math, no refcheck",
        "prefill_dense_b2_s1k-4k_gqa8_fp16",
        {
            "scenario": "prefill_dense",
            "batch_sizes": [2],
            "s_q_list": [1024, 4096],
            "dtype": "float16",
            "backends": ["halops", "sdpa_flash", "sdpa_math"],
            "refcheck": False,
        },
    ),
    (
        "gemm fp8 4096x4096x7168 halops cublas",
        "dense_4096x4096x7168_w8a8-fp8",
        {
            "scenario": "dense",
            "mode": "w8a8-fp8",
            "shapes": [[4096, 4096, 7168]],
            "backends": ["halops", "cublas"],
        },
    ),
    (
        "dense gemm bf16 M 128/256 N 4096 K 7168 backends cublas, halops",
        "dense_m128-256_n4k_k7k_bf16",
        {
            "scenario": "dense",
            "mode": "bf16",
            "shapes": [[128, 4096, 7168], [256, 4096, 7168]],
            "backends": ["halops", "cublas"],
        },
    ),
    (
        "稠密矩阵乘 bf16 形状 4096x4096x4096、8192x8192x8192, 后端 halops、cublas",
        "dense_m4k-8k_n4k-8k_k4k-8k_bf16",
        {
            "scenario": "dense",
            "mode": "bf16",
            "shapes": [[4096] * 3, [8192] * 3],
            "backends": ["halops", "cublas"],
        },
    ),
    (
        "group_masked w4a4-nvfp4 [128, 256, 4096, 7168] halops golden",
        "group_masked_128x256x4096x7168_w4a4-nvfp4",
        {
            "scenario": "group_masked",
            "mode": "w4a4-nvfp4",
            "shapes": [[128, 256, 4096, 7168]],
            "backends": ["halops", "golden"],
        },
    ),
    (
        "w8a8-fp8 grouped masked gemm, 专家 8, 每专家 256, n 4096, k 7168, halops 和 deep gemm",
        "group_masked_8x256x4096x7168_w8a8-fp8",
        {
            "scenario": "group_masked",
            "mode": "w8a8-fp8",
            "shapes": [[8, 256, 4096, 7168]],
            "backends": ["halops", "deep_gemm"],
        },
    ),
    (
        "grouped contiguous w8a8 mxfp8, 64 experts, max m 128/256, N 4096, K 7168, "
        "deepgemm, halops",
        "grouped_contiguous_e64_m128-256_n4k_k7k_w8a8-mxfp8",
        {
            "scenario": "grouped_contiguous",
            "mode": "w8a8-mxfp8",
            "shapes": [[64, 128, 4096, 7168], [64, 256, 4096, 7168]],
            "backends": ["halops", "deep_gemm"],
        },
    ),
    (
        "分组连续的矩阵乘, ＮＶＦＰ４, 形状 8x128x4096x7168, 后端 halops, sm 132",
        "grouped_contiguous_8x128x4096x7168_w4a4-nvfp4",
        {
            "scenario": "grouped_contiguous",
            "mode": "w4a4-nvfp4",
            "shapes": [[8, 128, 4096, 7168]],
            "backends": ["halops"],
            "sm_count": 132,
        },
    ),
]

# What is asked for, and the fields that are asked back.
OPEN = [
    ("加一组 group_masked 的 w4a4-nvfp4 shape", ["backends", "shapes"]),
    ("add a w4a4-nvfp4 group_masked config", ["backends", "shapes"]),
    ("decode_gqa", ["backends", "batch_sizes", "dtype", "s_kv_list"]),
    ("decode_gqa 测一下", ["backends", "batch_sizes", "dtype", "s_kv_list"]),
    ("decode_gqa bf16 和 fp16 kv 4k batch 1 halops", ["dtype"]),
    ("decode_gqa nvfp4 kv 4k batch 1 halops", ["dtype"]),
    ("decode_gqa bf16, kv 4k, batch 1, 不要 fa2", ["backends"]),
    ("decode_gqa bf16, kv 4k, batch 1, fa2 without cudnn, golden", ["backends"]),
    (
        "mla 解码, bf16, kv 4k/64k, batch 1/128, halops fi",
        ["head_dim", "kv_lora_rank", "num_q_heads"],
    ),
    ("dense gemm bf16 halops M 128 N 4096", ["shapes"]),
    ("dense gemm bf16 halops 4x128x4096x7168", ["shapes"]),
    ("矩阵乘 w8a8 4096x4096x4096 halops", ["mode"]),
    ("prefill_dense bf16 batch 1 seq 1k sdpa", ["backends"]),
    ("decode_gqa bf16 kv 4-64k batch 1 halops", ["s_kv_list"]),
    ("decode_gqa bf16 kv 4k batch 1 halops gqa 5", ["num_q_heads"]),
]

# What is asked for, and the scenarios (or ops) that it may be.
WHICH = [
    ("给 decode 加个 FP8 的配置, batch 1/16/64, kv 4k 到 64k", ["decode_gqa", "decode_mla"]),
    ("an fp8 decode config", ["decode_gqa", "decode_mla"]),
    ("prefill bf16, seq 1k-8k", ["prefill_dense", "prefill_paged"]),
    ("非分页的预填充", ["prefill_dense", "prefill_chunk"]),
    ("分组矩阵乘", ["grouped_contiguous", "group_masked"]),
    ("attention", ["prefill_dense", "prefill_paged", "prefill_chunk", "decode_gqa", "decode_mla"]),
    ("dense bf16", ["prefill_dense", "dense"]),
]


@pytest.mark.parametrize(("text", "name", "values"), COMPLETE, ids=[one[0] for one in COMPLETE])
def test_complete_ones_become_a_config(text: str, name: str, values: dict[str, Any]) -> None:
    scenario, found = made(text)
    said = {key: value for key, value in found.values.items() if key not in found.inferred}
    assert said == values
    assert [one.as_dict() for one in found.questions] == []
    assert file_name(scenario, found.values) == name
    assert found.unused == [] and parse_intent(text).unknown == ()


@pytest.mark.parametrize(("text", "fields"), OPEN, ids=[one[0] for one in OPEN])
def test_key_fields_are_asked_for_together(text: str, fields: list[str]) -> None:
    _, found = made(text)
    assert sorted(one.field for one in found.questions) == fields


@pytest.mark.parametrize(("text", "names"), WHICH, ids=[one[0] for one in WHICH])
def test_a_scenario_that_is_not_certain_is_asked_for(text: str, names: list[str]) -> None:
    found = choose(TREE, parse_intent(text))
    assert isinstance(found, Question) and found.field == "scenario"
    assert list(found.choices) == names


def test_there_are_forty() -> None:
    assert len(COMPLETE) + len(OPEN) + len(WHICH) >= 40


def test_questions_are_in_the_language_of_the_intent() -> None:
    _, chinese = made("decode_gqa 测一下")
    _, english = made("decode_gqa")
    assert chinese.questions[0].text == "测哪些 KV 长度 (s_kv_list)?"
    assert english.questions[0].text == "which lengths of the KV cache (s_kv_list)?"


def test_geometry_is_of_one_config_and_pointed_out() -> None:
    _, found = made("decode_gqa bf16 kv 4k batch 1 halops")
    assert found.geometry == list(GEOMETRY)
    assert {key: found.values[key] for key in GEOMETRY} == GEOMETRY
    assert found.inferred["num_q_heads"] == "as in configs/attention/decode_gqa_bf16.yaml"


def test_geometry_that_no_config_agrees_with_is_asked_for() -> None:
    _, found = made("decode_gqa bf16 kv 4k batch 1 halops 48 q heads")
    assert [one.field for one in found.questions] == ["num_kv_heads", "head_dim"]


def test_secondary_fields_are_as_in_the_neighbours() -> None:
    _, found = made("decode_gqa bf16 kv 4k batch 1 halops")
    assert {key: found.values[key] for key in PLAIN} == PLAIN
    assert set(PLAIN) <= set(found.inferred)


def test_the_order_is_the_neighbours() -> None:
    _, found = made("decode_gqa bf16 kv 4k batch 1 halops mtp 1")
    neighbour = [*TREE.ops["attention"].neighbours[0].values]
    assert [*found.values] == [*neighbour, "mtp_steps_list"]


def test_given_values_win_and_are_read_as_people_write_them() -> None:
    _, found = made(
        "decode_gqa bf16 kv 4k batch 1 fa2", s_kv_list="8k 到 16k", backends="fi,halops"
    )
    assert found.values["s_kv_list"] == [8192, 16384]
    assert found.values["backends"] == ["halops", "fi"]
    assert found.values["batch_sizes"] == [1]


def test_what_found_no_place_is_told() -> None:
    _, found = made("decode_gqa bf16 kv 4k batch 1 halops frobnicate chunk 512 window=7")
    assert found.unused == ["window=7: decode_gqa reads no such field", "frobnicate", "chunk 512"]
