"""The question about one field: what it is for, what is allowed, what an answer looks like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.author.halops.facts import Field, Scenario
from orchestrator.author.halops.intent import meaning
from orchestrator.author.halops.intent.meaning import BACKENDS, CACHE_DTYPE, DTYPE, SHAPES
from orchestrator.author.halops.intent.question import Question
from orchestrator.author.halops.write.answers import is_list

# What is asked for, in English and Chinese.
_TEXTS = {
    BACKENDS: ("which backends", "跑哪些 backend"),
    DTYPE: ("which dtype or mode", "用什么 dtype / mode"),
    CACHE_DTYPE: ("which dtype has the KV cache", "KV cache 用什么类型"),
    SHAPES: ("which shapes", "测哪些 shape"),
    "batch": ("which batch sizes", "测哪些 batch size"),
    "kv_len": ("which lengths of the KV cache", "测哪些 KV 长度"),
    "q_len": ("which sequence lengths", "测哪些序列长度"),
    "prefix": ("which prefix lengths", "测哪些前缀长度"),
    "chunk": ("which chunk lengths", "测哪些 chunk 长度"),
    "q_heads": ("how many query heads", "多少个 q 头"),
    "kv_heads": ("how many KV heads", "多少个 kv 头"),
    "head_dim": ("which head dimension", "head_dim 多大"),
}
_EXAMPLES: dict[str, Any] = {
    "batch": [1, 16, 64],
    "kv_len": [4096, 16384, 65536],
    "q_len": [1024, 4096, 16384],
    "prefix": [4096, 16384],
    "chunk": [512, 2048],
    "q_heads": 64,
    "kv_heads": 8,
    "head_dim": 128,
}


def about(
    field: Field, scenario: Scenario, used: Sequence[Any], trouble: str | None, *, chinese: bool
) -> Question:
    """The question; ``used``: what configs have there, the first is the example."""
    sort = meaning.role(field, scenario) or ""
    english, own = _TEXTS.get(sort, (f"which {field.name}", f"{field.name} 取什么值"))
    text = f"{own} ({field.name})?" if chinese else f"{english} ({field.name})?"
    if trouble is not None:
        text = f"{text} {trouble}"
    return Question(
        field.name,
        text,
        _choices(field, sort, scenario),
        _example(field, sort, scenario, used),
    )


def _choices(field: Field, sort: str, scenario: Scenario) -> tuple[str, ...]:
    """All that is allowed, where the code says so."""
    if sort == BACKENDS:
        return tuple(scenario.backends)
    spelling = scenario.dtypes.get(field.name)
    if spelling is not None and spelling.torch is not None:
        return ()  # any dtype of torch's
    return field.choices


def _example(field: Field, sort: str, scenario: Scenario, used: Sequence[Any]) -> Any:
    """What another config has; else something of the kind."""
    if used:
        return used[0]
    choices = _choices(field, sort, scenario)
    if sort == SHAPES:
        return [[128, 1024, 4096, 7168]] if len(field.columns) == 4 else [[4096, 4096, 7168]]
    if choices:
        return list(choices[:2]) if is_list(field, scenario) else choices[0]
    if sort == DTYPE:
        return "bfloat16"
    example = _EXAMPLES.get(sort)
    wants_list = is_list(field, scenario)
    if isinstance(example, list) and not wants_list:
        return example[0]
    return (
        [example]
        if wants_list and example is not None and not isinstance(example, list)
        else example
    )
