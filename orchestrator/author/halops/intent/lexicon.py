"""The words of the field in Chinese and English, each with its kind and what it stands for.

A space in an entry stands for any of nothing, blank, hyphen and underscore.
"""

from __future__ import annotations

from collections.abc import Iterator

# Numbers by meaning. Those in ``COUNTED`` are said behind their number: 64 q heads.
AMOUNTS: dict[str, str] = {
    "batch": "batch|batch size|batch sizes|batches|bs|批|批次|批量|批大小|批量大小|并发|并发数"
    "|concurrency|requests|请求|个请求",
    "kv_len": "kv|s kv|s kv list|kv len|kv lens|kv length|kv lengths|seqlen k|kv长度|kv 序列长度"
    "|kv 序列|context|context len|context length|ctx|上下文|上下文长度|缓存长度|history|历史长度",
    "q_len": "q len|s q|seq len q|seqlen q|seq|seqs|seqlen|seqlens|seq len|seq lens|s q list"
    "|seq len list|sequence length|sequence lengths|prompt|prompt len|prompt length|prompts|序列"
    "|序列长度|序列长|提示长度|长度|q 长度|input length|输入长度|length|lengths",
    "prefix": "prefix|prefix len|prefix length|prefixes|prefix len list|前缀|前缀长度|前缀长",
    "chunk": "chunk size|chunk len|chunk lens|chunk length|chunk sizes|chunk len list|chunk"
    "|chunks|块长|块长度|块大小|分块长度|分块大小|分块|chunk大小|chunk长度",
    "mtp": "mtp|mtp step|mtp steps|mtp steps list|mtp 步数|步数|mtp步|投机步数|draft|draft tokens"
    "|speculative tokens",
    "q_heads": "q head|q heads|num q heads|query head|query heads|heads|head|q头|q 头|个头|头"
    "|查询头|头数|q头数|num heads|qo heads|attention heads",
    "kv_heads": "kv head|kv heads|num kv heads|key value heads|kv头|kv 头|kv头数|键值头",
    "head_dim": "head dim|head dims|headdim|hd|head size|头维度|头维|头大小|dim|维|维度",
    "group": "gqa|gqa ratio|gqa比|gqa比例|gqa 比|gqa 比例|group size|组大小|gqa group|ratio",
    "experts": "experts|num experts|expert|专家|专家数|个专家|groups|num groups|组数",
    "max_m": "max m|m per expert|每专家m|每个专家m|每专家|tokens per expert|每专家token",
    "m": "m|rows|行数",
    "n": "n",
    "k": "k",
    "sm_count": "sm count|sms|sm|num sms|sm数|sm 数|sm数量",
    "page": "page size|page|block size|页大小|页长|页",
}
COUNTED = frozenset({"q_heads", "kv_heads", "experts", "sm_count", "head_dim"})

TAGS: dict[str, str] = {
    "attention": "attention|attn|注意力",
    "gemm": "gemm|matmul|矩阵乘|矩阵乘法|mm",
    "decode": "decode|decoding|解码",
    "prefill": "prefill|prefilling|预填充|预填|首字",
    "chunk": "chunked|chunk prefill|chunked prefill|分块预填充|分块预填",
    "paged": "paged|paging|分页|paged kv",
    "mla": "mla|multi head latent|latent|deepseek",
    "dense": "dense|稠密|普通",
    "grouped": "grouped|group|group gemm|grouped gemm|分组|moe",
    "contiguous": "contiguous|contig|连续|紧凑",
    "masked": "masked|mask|掩码|带掩码|group masked|grouped masked|分组掩码",
    "mha": "mha",
    "mqa": "mqa",
}
# What a longer tag says besides its own name; written without what stands between its words.
IMPLIED: dict[str, tuple[str, ...]] = {
    "chunkprefill": ("prefill",),
    "chunkedprefill": ("prefill",),
    "分块预填充": ("prefill",),
    "分块预填": ("prefill",),
    "groupgemm": ("gemm",),
    "groupedgemm": ("gemm",),
    "groupmasked": ("grouped",),
    "groupedmasked": ("grouped",),
    "分组掩码": ("grouped",),
}

# ``fp8`` is whichever FP8 a scenario has; formats of scaled GEMMs keep their own names.
DTYPES: dict[str, str] = {
    "bfloat16": "bf16|bfloat16|bfloat 16",
    "float16": "fp16|float16|half|半精度|f16",
    "float32": "fp32|float32|f32|单精度",
    "fp8": "fp8|e4m3|float8|fp8 e4m3|float8 e4m3|float8 e4m3fn|e4m3fn|f8",
    "float8_e5m2": "e5m2|fp8 e5m2|float8 e5m2",
    "mxfp8": "mxfp8|mx fp8",
    "nvfp4": "nvfp4|fp4|nv fp4|e2m1|mxfp4",
    "int8": "int8",
    "w8a8": "w8a8",
    "w4a4": "w4a4",
    "w8a8-fp8": "w8a8 fp8|w8a8 的 fp8",
    "w8a8-mxfp8": "w8a8 mxfp8",
    "w4a4-nvfp4": "w4a4 nvfp4|w4a4 fp4",
}

SWITCHES: dict[str, str] = {
    "refcheck": "refcheck|ref check|reference check|校验|正确性校验|正确性检查|结果校验",
    "cuda_graph": "cuda graph|cuda graphs|use cuda graph|cudagraph|cuda图",
    "cold_l2": "cold l2|cold l2 cache|l2 cold|冷l2|冷 l2|冷缓存|cold cache",
}

# Names of backends that people write differently from code.
NAMES: dict[str, str] = {
    "fa2": "flash attention 2|flashattention 2|flash attn 2|flashattn 2",
    "fa4": "flash attention 4|flashattention 4|flash attn 4|flashattn 4",
    "fi": "flashinfer|flash infer",
    "fi_trtllm": "trtllm|trtllm gen|flashinfer trtllm|fi trtllm|fi trtllm gen|trt llm",
    "deep_gemm": "deepgemm|deep gemm",
}

PLAIN: dict[str, str] = {
    "cache": "kv cache|kvcache|kv缓存|cache|缓存",
    "shapes": "shape|shapes|形状|尺寸|大小|mnk|m n k",
    "backends": "backend|backends|后端|对比|compare|比较|vs|versus|against",
    "to": "到|至|to|up to|through|直到|一直到",
    "and": "和|与|及|以及|and|or|或|跟|plus",
    "step": "步长|step|间隔|每隔",
    "each": "每个|each|every",
    "is": "为|是|等于|is|of|are|取|设为|设成|设",
    "not": "不要|不用|不跑|不带|不测|不含|不包括|别用|别跑|除了|除|去掉|关掉|关闭|关|非|没有|无"
    "|不开|不做|without|no|not|except|excluding|exclude|skip|disable|but not|non|minus"
    "|don't use|do not use|不是|不",
    "but": "but|要|用|使用|采用|with|using|use|开|打开|开启|enable|only|只用|只跑|只要|只测|只|run"
    "|跑|测",
    "all": "全部|所有|all|每种|everything",
    "backends_all": "全部后端|所有后端|all backends|every backend|全部 backend|所有 backend",
}

_FILLER = (
    "给|加|加个|加一个|加一组|加上|新增|增加|添加|生成|来|来个|来一个|来一份|搞|写|写个|做|做个|一个|一组|一份|一条"
    "|的|个|条|组|份|种|张|把|对|在|上|下|里|中|请|帮|帮我|我|我想|想|想要|需要|希望|要求|麻烦|配置|配置文件|场景"
    "|基准|性能|测试|测一下|测一测|跑一下|一下|扫|扫描|遍历|扫一遍|从|分别|各|固定|那个|这个|外|以外|之外|也|都|然后"
    "|再|并|并且|且|下面|算子|kernel|模式|精度|类型|数据类型|量化|时|时候|了|吧|吗|呢|啊|有|两个|倍增|翻倍|比例|卡|上跑"
    "|config|configs|configuration|configurations|yaml|file|bench|benchmark|benchmarks|sweep|sweeps"
    "|sweeping|test|tests|add|generate|create|make|write|new|a|an|the|for|me|please|want|i|i'd|like"
    "|need|would|some|on|in|at|by|from|from the|it|its|this|that|set|sets|one|case|cases|scenario"
    "|mode|dtype|type|precision|quantized|quantised|doubling|size|sizes|tokens|token|token的|as|be"
    "|give|let|lets|let's|us|us a|measure|value|values|first|over|per|also|too|then|op|operator|gpu"
    "|gpus|device"
)


def entries() -> Iterator[tuple[str, str, str]]:
    """Each word with its kind and what it stands for."""
    for kind, table in (
        ("amount", AMOUNTS),
        ("tag", TAGS),
        ("dtype", DTYPES),
        ("switch", SWITCHES),
        ("name", NAMES),
    ):
        for value, words in table.items():
            for word in words.split("|"):
                yield word, kind, value
    for kind, words in PLAIN.items():
        for word in words.split("|"):
            yield word, kind, word
    for word in _FILLER.split("|"):
        yield word, "filler", word
