"""What sentences in Chinese and English mean, without any checkout."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.author.halops.intent import Intent, parse_intent

DOUBLES = (4096, 8192, 16384, 32768, 65536)


def names(intent: Intent, *, negated: bool) -> list[str]:
    return [one.text for one in intent.words if one.negated is negated]


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        ("kv 4k 到 64k", {"kv_len": DOUBLES}),
        ("kv from 4k to 64k", {"kv_len": DOUBLES}),
        ("４ｋ～６４ｋ 的 kv 长度", {"kv_len": DOUBLES}),
        ("context 4k-64K", {"kv_len": DOUBLES}),
        ("上下文 4K..64K", {"kv_len": DOUBLES}),
        ("batch 1/16/64", {"batch": (1, 16, 64)}),
        ("batch 1、16、64", {"batch": (1, 16, 64)}),
        ("batch_sizes = [1, 16, 64]", {"batch": (1, 16, 64)}),
        ("bs 1 16 64", {"batch": (1, 16, 64)}),
        ("bs16", {"batch": (16,)}),
        ("batch 1 到 64 步长 21", {"batch": (1, 22, 43, 64)}),
        ("1.5k prefix", {"prefix": (1536,)}),
        ("64 个 q 头 8 个 kv 头", {"q_heads": (64,), "kv_heads": (8,)}),
        ("q heads 64, kv heads 8", {"q_heads": (64,), "kv_heads": (8,)}),
        (
            "64 heads 8 kv heads head dim 128",
            {"q_heads": (64,), "kv_heads": (8,), "head_dim": (128,)},
        ),
        ("batch 1,16, 64 q heads, kv 4k", {"batch": (1, 16), "q_heads": (64,), "kv_len": (4096,)}),
        ("GQA 64/8", {"q_heads": (64,), "kv_heads": (8,)}),
        ("gqa 8:1", {"group": (8,)}),
        ("mtp 0 到 3", {"mtp": (0, 1, 2, 3)}),
        ("prefix 4k/8k chunk 512", {"prefix": (4096, 8192), "chunk": (512,)}),
        ("M 128/256 N 4096 K=7168", {"m": (128, 256), "n": (4096,), "k": (7168,)}),
    ],
)
def test_numbers_find_their_word(text: str, amounts: dict[str, Any]) -> None:
    found = parse_intent(text)
    assert (found.amounts, found.unclear, found.unknown) == (amounts, (), ())


@pytest.mark.parametrize(
    ("text", "dtypes"),
    [
        ("ＦＰ８", ("fp8",)),
        ("bf16 和 fp16", ("bfloat16", "float16")),
        ("w8a8 mxfp8", ("w8a8-mxfp8",)),
        ("w4a4-nvfp4", ("w4a4-nvfp4",)),
        ("mxfp8 的 w8a8", ("w8a8-mxfp8",)),
        ("不要 fp8，用 bf16", ("bfloat16",)),
    ],
)
def test_dtypes(text: str, dtypes: tuple[str, ...]) -> None:
    assert parse_intent(text).dtypes == dtypes


@pytest.mark.parametrize(
    ("text", "cache", "own", "length"),
    [
        ("bf16, kv cache 用 fp8", "fp8", ("bfloat16",), None),
        ("bf16 with fp8 kv cache", "fp8", ("bfloat16",), None),
        ("fp8 kv cache 4k", None, ("fp8",), (4096,)),
    ],
)
def test_the_cache_has_a_dtype_of_its_own(
    text: str, cache: str | None, own: tuple[str, ...], length: tuple[int, ...] | None
) -> None:
    found = parse_intent(text)
    assert (found.cache_dtype, found.dtypes) == (cache, own)
    assert found.amounts.get("kv_len") == length


@pytest.mark.parametrize(
    ("text", "wanted", "ruled_out"),
    [
        ("用 halops、fi，不要 fa2 和 fa4", ["halops", "fi"], ["fa2", "fa4"]),
        ("halops fa2 golden without cudnn", ["halops", "fa2", "golden"], ["cudnn"]),
        ("除了 fa4, 用 halops", ["halops"], ["fa4"]),
        ("FlashInfer and flash-attention 2", ["fi", "fa2"], []),
        ("fi(trtllm-gen)、fa4_paged", ["fi(trtllm-gen)", "fa4_paged"], []),
        ("fi（trtllm-gen）", ["fi(trtllm-gen)"], []),
    ],
)
def test_what_is_ruled_out(text: str, wanted: list[str], ruled_out: list[str]) -> None:
    found = parse_intent(text)
    assert (names(found, negated=False), names(found, negated=True)) == (wanted, ruled_out)
    assert found.unclear == ()


def test_a_comma_behind_what_is_ruled_out_is_not_guessed() -> None:
    found = parse_intent("fa2 without cudnn, golden")
    assert found.unclear == ("whether golden is wanted or ruled out, too",)


@pytest.mark.parametrize(
    ("text", "switches"),
    [
        ("no refcheck", {"refcheck": False}),
        ("关掉 cuda graph", {"cuda_graph": False}),
        ("cuda graph 关掉, 开 冷 L2", {"cuda_graph": False, "cold_l2": True}),
        ("refcheck=false", {"refcheck": False}),
    ],
)
def test_switches(text: str, switches: dict[str, bool]) -> None:
    assert parse_intent(text).switches == switches


@pytest.mark.parametrize(
    ("text", "tags", "not_tags"),
    [
        ("分块预填充", ("chunk", "prefill"), ()),
        ("chunked prefill", ("chunk", "prefill"), ()),
        ("grouped masked gemm", ("masked", "grouped", "gemm"), ()),
        ("非 paged 的 prefill", ("prefill",), ("paged",)),
    ],
)
def test_kinds_of_work(text: str, tags: tuple[str, ...], not_tags: tuple[str, ...]) -> None:
    found = parse_intent(text)
    assert (found.tags, found.not_tags) == (tags, not_tags)


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("4096x4096x7168, 128×4096×7k", ((4096, 4096, 7168), (128, 4096, 7168))),
        ("shapes [[1, 2, 3], [4, 5, 6]]", ((1, 2, 3), (4, 5, 6))),
        ("形状 [128, 256, 4096, 7168]", ((128, 256, 4096, 7168),)),
    ],
)
def test_shapes(text: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    assert parse_intent(text).shapes == shapes


@pytest.mark.parametrize(
    ("text", "unclear"),
    [
        ("kv 4-64k", "4 to 64k: is the first one 4 or 4k?"),
        ("prefix 0 到 8k", "0 to 8k: a doubling range starts at 1 or above and goes up"),
        ("kv 64k to 4k", "64k to 4k: a doubling range starts at 1 or above and goes up"),
        ("17 bf16", "17 is of nothing that was named"),
        ("batch 1 到 1000 step 1", "1 to 1000: that is 1000 values, give them one by one"),
    ],
)
def test_what_cannot_be_told_is_said(text: str, unclear: str) -> None:
    assert parse_intent(text).unclear == (unclear,)


def test_a_range_that_does_not_double_ends_where_it_was_said_to() -> None:
    found = parse_intent("kv 4k to 12k")
    assert found.amounts["kv_len"] == (4096, 8192, 12288) and "12288 is added" in found.told[0]


def test_a_number_behind_a_name_is_its_own_unless_another_word_claims_it() -> None:
    found = parse_intent("rms hidden 4096, sdpa_math 4 q heads 2 kv heads")
    assert found.named == {"hidden": 4096} and found.unclear == ()
    assert found.amounts == {"q_heads": (4,), "kv_heads": (2,)}


def test_unknown_words_are_kept() -> None:
    found = parse_intent("给 decode 加个玄学配置 frobnicate, window=128")
    assert found.unknown == ("玄学",)
    assert [one.text for one in found.words] == ["frobnicate"] and found.named == {"window": 128}


@pytest.mark.parametrize(
    "text", ["", "   ", "((((", "=", "w=", "1.5", "k=", "/,,/", "[[[", "到", "x" * 5000]
)
def test_nothing_breaks_it(text: str) -> None:
    assert parse_intent(text).text == text
