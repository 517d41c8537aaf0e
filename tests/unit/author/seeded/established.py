"""Clean runners as many hands write them in established checkouts, to be damaged by the tests.

Each is complete, in its own style: f-strings for devices, closures as launchers, aliases of the
operator, comparisons of their own, helpers and base classes in the same module. ``CONFIGS`` has the
config of each. None of them is ever run.
"""

from __future__ import annotations

from typing import Any

_HEAD = """\
import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C
except ImportError:
    pass

"""

# In place, the operator through an alias, the reference from clones.
FUSED_ADD_RMS = (
    _HEAD
    + """
def ref_fused_add_rms(x, residual, weight, eps):
    summed = x.float() + residual.float()
    variance = summed.pow(2).mean(-1, keepdim=True)
    normed = summed * torch.rsqrt(variance + eps)
    return (normed * weight.float()).to(x.dtype), summed.to(x.dtype)


class FusedAddRmsRunner(OpBenchmarkBase):
    SEED = 42

    def __init__(self, name, config):
        super().__init__(name, config)
        self.cfg = config
        self.num_tokens = config.get("num_tokens", 4096)
        self.hidden = config["hidden_size"]
        self.eps = 1e-6
        self.op_func = torch.ops._C.fused_add_rms

    def define_metrics(self, state):
        summaries = {
            "Op": self.name,
            "dtype": self.cfg.get("dtype", "bfloat16"),
            "Shape": "(%d %d)" % (self.num_tokens, self.hidden),
        }
        for key, value in summaries.items():
            state.add_summary(key, value)
        elements = self.num_tokens * self.hidden
        state.add_element_count(elements)
        item = torch.tensor([], dtype=self.dtype).element_size()
        state.add_global_memory_reads((2 * elements + self.hidden) * item)
        state.add_global_memory_writes(2 * elements * item)

    def _data(self, dev_id, seed=SEED):
        dev = f"cuda:{dev_id}"
        torch.manual_seed(seed)
        x = torch.randn(self.num_tokens, self.hidden, dtype=self.dtype, device=dev)
        residual = torch.randn_like(x)
        weight = torch.ones(self.hidden, dtype=self.dtype, device=dev)
        return x, residual, weight

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with torch.cuda.device(dev_id), torch.cuda.stream(tc_s):
            x, residual, weight = self._data(dev_id)

        def launcher(launch):
            stream = self.as_torch_stream(launch.get_stream(), dev_id)
            with torch.cuda.stream(stream):
                self.op_func(x, residual, weight, self.eps)

        return launcher

    def run_verification(self, dev_id):
        x, residual, weight = self._data(dev_id, seed=2024)
        x_in, residual_in = x.clone(), residual.clone()
        self.op_func(x, residual, weight, self.eps)
        torch.cuda.synchronize()
        ref, ref_residual = ref_fused_add_rms(x_in, residual_in, weight, self.eps)
        ok, diff = self.check_diff(x, ref)
        ok_residual, diff_residual = self.check_diff(residual, ref_residual)
        return ok and ok_residual, max(diff, diff_residual)
"""
)

# Quantised, unpacked step by step, a mixin of its own in the module.
W4_GEMM = (
    _HEAD
    + """
def unpack_rows(packed):
    shifts = torch.arange(0, 32, 4, device=packed.device)
    nibbles = (packed.unsqueeze(-1) >> shifts) & 0xF
    return nibbles.flatten(-2)


def ref_gemm(a, packed, scales, zeros, group):
    weight = unpack_rows(packed).float()
    full_scales = scales.float().repeat_interleave(group, dim=0)
    full_zeros = unpack_rows(zeros).float().repeat_interleave(group, dim=0)
    dequantised = (weight - full_zeros) * full_scales
    return torch.matmul(a.float(), dequantised)


class _Gemm:
    threshold = 0.999

    def summaries(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).split(".")[-1])
        state.add_summary("Shape", " ".join(str(n) for n in (self.m, self.n, self.k)))


class W4GemmRunner(_Gemm, OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.m, self.n, self.k = (config.get(key, 4096) for key in ("m", "n", "k"))
        self.group = config.get("group_size", 128)

    def define_metrics(self, state):
        self.summaries(state)
        state.add_element_count(self.m * self.n)
        es = {torch.float16: 2, torch.bfloat16: 2, torch.float32: 4}[self.dtype]
        weights = self.k * self.n // 2
        scales = self.k // self.group * self.n * es
        state.add_global_memory_reads(self.m * self.k * es + weights + scales)
        state.add_global_memory_writes(self.m * self.n * es)

    def make(self, device, generator):
        options = dict(device=device, generator=generator)
        a = torch.randn(self.m, self.k, dtype=self.dtype, **options)
        packed = torch.randint(0, 2**31 - 1, (self.k, self.n // 8), dtype=torch.int32, **options)
        zeros = torch.randint(
            0, 2**31 - 1, (self.k // self.group, self.n // 8), dtype=torch.int32, **options
        )
        scales = torch.rand(self.k // self.group, self.n, dtype=self.dtype, **options) / 100
        return a, packed, scales, zeros

    def prepare_and_get_launcher(self, dev_id, tc_s):
        device = torch.device("cuda", dev_id)
        with torch.cuda.stream(tc_s):
            gen = torch.Generator(device=device)
            gen.manual_seed(0)
            self.data = self.make(device, gen)
        return self.make_launcher(dev_id, torch.ops._C.w4_gemm, *self.data, self.group)

    def run_verification(self, dev_id):
        device = torch.device("cuda", dev_id)
        gen = torch.Generator(device=device).manual_seed(1)
        a, packed, scales, zeros = self.make(device, gen)
        out = torch.ops._C.w4_gemm(a, packed, scales, zeros, self.group)
        ref = ref_gemm(a, packed, scales, zeros, self.group)
        return self.check_diff(out, ref.to(out.dtype), threshold=self.threshold)
"""
)

# Bits are moved: torch.equal, a loop over layers.
MOVE_BLOCKS = (
    _HEAD
    + """
class MoveBlocksRunner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.layers = config.get("num_layers", 4)
        self.blocks = config.get("num_blocks", 1024)
        self.width = config.get("width", 2048)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype))
        state.add_summary("Shape", "x".join(map(str, self.src[0].shape)))
        nbytes = sum(t.numel() * t.element_size() for t in self.src)
        state.add_element_count(sum(t.numel() for t in self.src))
        state.add_global_memory_reads(nbytes)
        state.add_global_memory_writes(nbytes)

    def _prepare(self, dev_id, seed):
        gen = torch.Generator(device="cuda").manual_seed(seed)
        src = [
            torch.randn(self.blocks, self.width, device="cuda", generator=gen).to(self.dtype)
            for _ in range(self.layers)
        ]
        dst = [torch.zeros_like(t) for t in src]
        order = torch.randperm(self.blocks, device="cuda", generator=gen)
        return src, dst, torch.stack([order, order.flip(0)], dim=1)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with torch.cuda.stream(tc_s):
            self.src, self.dst, mapping = self._prepare(dev_id, 42)
        return self.make_launcher(
            dev_id, torch.ops._C_cache_ops.copy_blocks, self.src, self.dst, mapping
        )

    def run_verification(self, dev_id):
        src, dst, mapping = self._prepare(dev_id, 43)
        expected = [t.clone() for t in dst]
        for one, other in zip(src, expected):
            for a, b in mapping.tolist():
                other[b] = one[a]
        torch.ops._C_cache_ops.copy_blocks(src, dst, mapping)
        torch.cuda.synchronize()
        passed = all(torch.equal(a, b) for a, b in zip(dst, expected))
        return passed, 0.0 if passed else 1.0
"""
)

# A cosine of its own, layouts as the working description has them.
PAGED = (
    _HEAD
    + """
def ref_single_query_cached_kv_attention(query, key_cache, value_cache, tables, lengths, scale):
    outputs = []
    for i in range(query.shape[0]):
        keys, values = [], []
        for j in range(int(lengths[i])):
            block = int(tables[i, j // value_cache.shape[3]])
            offset = j % value_cache.shape[3]
            keys.append(key_cache[block, :, :, offset, :].reshape(key_cache.shape[1], -1))
            values.append(value_cache[block, :, :, offset])
        k, v = torch.stack(keys), torch.stack(values)
        logits = torch.einsum("hd,khd->hk", query[i].float(), k.float()) * scale
        weights = torch.softmax(logits, dim=-1)
        outputs.append(torch.einsum("hk,khd->hd", weights, v.float()))
    return torch.stack(outputs)


class PagedRunner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.seqs = config.get("num_seqs", 4)
        self.heads = config.get("num_heads", 8)
        self.size = config.get("head_size", 128)
        self.block = config.get("block_size", 16)
        self.seed = config.get("seed", 0)
        self.scale = self.size**-0.5

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", self.config["dtype"])
        shape = str((self.seqs, self.heads, self.size)).replace(",", "")
        state.add_summary("Shape", shape)
        state.add_element_count(self.out.numel())
        size = self.out.element_size()
        state.add_global_memory_reads(self.key_cache.numel() * size * 2)
        state.add_global_memory_writes(self.out.numel() * size)

    def _prepare(self, dev_id, seed):
        dev = f"cuda:{dev_id}"
        gen = torch.Generator(device=dev).manual_seed(seed)
        kw = {"device": dev, "dtype": self.dtype, "generator": gen}
        query = torch.randn(self.seqs, self.heads, self.size, **kw)
        x = 16 // query.element_size()
        shape = (self.seqs * 8, self.heads, self.size // x, self.block, x)
        key_cache = torch.randn(shape, **kw)
        value_cache = torch.randn(self.seqs * 8, self.heads, self.size, self.block, **kw)
        tables = torch.arange(self.seqs * 8, dtype=torch.int32, device=dev).view(self.seqs, 8)
        lengths = torch.full((self.seqs,), 100, dtype=torch.int32, device=dev)
        return torch.empty_like(query), query, key_cache, value_cache, tables, lengths

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with torch.cuda.stream(tc_s):
            data = self._prepare(dev_id, self.seed)
            self.out, query, self.key_cache, value_cache, tables, lengths = data
        op = torch.ops._C.paged_attention_v1
        return lambda launch: op(
            self.out, query, self.key_cache, value_cache, self.scale, tables, lengths, self.block
        )

    def run_verification(self, dev_id):
        out, query, key_cache, value_cache, tables, lengths = self._prepare(dev_id, self.seed + 1)
        torch.ops._C.paged_attention_v1(
            out, query, key_cache, value_cache, self.scale, tables, lengths, self.block
        )
        torch.cuda.synchronize()
        if torch.isnan(out).any():
            return False, float("nan")
        ref = ref_single_query_cached_kv_attention(
            query, key_cache, value_cache, tables, lengths, self.scale
        )
        cos = torch.nn.functional.cosine_similarity(
            out.flatten().double(), ref.flatten().double(), dim=0
        ).item()
        return cos > 0.999999, 1 - cos
"""
)

# Unordered outputs, sorted before; vLLM's Python wrapper as the operator.
GATE = """\
import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    from vllm import _custom_ops as ops
except ImportError:
    ops = None


class GateRunner(OpBenchmarkBase):
    threshold_reason = "weights are rounded to bfloat16 by the kernel"

    def __init__(self, name, config):
        super().__init__(name, config)
        self.tokens = int(config.get("num_tokens", 1024))
        self.experts = int(config.get("num_experts", 64))
        self.k = int(config.get("topk", 4))

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", str(self.dtype).replace("torch.", ""))
        state.add_summary("Shape", f"{self.tokens}x{self.experts} top{self.k}")
        state.add_element_count(self.tokens * self.experts)
        es = 4
        if self.dtype in (torch.float16, torch.bfloat16):
            es = 2
        state.add_global_memory_reads(self.tokens * self.experts * es)
        state.add_global_memory_writes(self.tokens * self.k * 8)

    def _outputs(self, dev):
        weights = torch.empty(self.tokens, self.k, dtype=torch.float32, device=dev)
        ids = torch.empty(self.tokens, self.k, dtype=torch.int32, device=dev)
        return weights, ids

    def _gating(self, dev, seed):
        gen = torch.Generator(device=dev).manual_seed(seed)
        return torch.randn(self.tokens, self.experts, device=dev, dtype=self.dtype, generator=gen)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        dev = self.device(dev_id)
        with self.stream(tc_s):
            gating = self._gating(dev, 1234)
            weights, ids = self._outputs(dev)
        return self.make_launcher(dev_id, ops.topk_softmax, weights, ids, None, gating)

    def run_verification(self, dev_id):
        dev = self.device(dev_id)
        gating = self._gating(dev, 4321)
        weights, ids = self._outputs(dev)
        ops.topk_softmax(weights, ids, None, gating)
        torch.cuda.synchronize()
        probabilities = torch.softmax(gating.float(), dim=-1)
        ref_weights, ref_ids = torch.topk(probabilities, self.k, dim=-1)
        same = torch.equal(ids.long().sort(-1).values, ref_ids.sort(-1).values)
        close = torch.allclose(weights.sort(-1).values, ref_weights.sort(-1).values, atol=1e-5)
        passed, diff = self.check_diff(weights, ref_weights, threshold=0.9999)
        return bool(same and close and passed), diff
"""

RUNNERS: dict[str, str] = {
    "fused_add_rms": FUSED_ADD_RMS,
    "w4_gemm": W4_GEMM,
    "copy_blocks": MOVE_BLOCKS,
    "paged_attention_v1": PAGED,
    "gate": GATE,
}
_COMMON: dict[str, Any] = {"device_id": 0, "device_name": "MetaX C500", "samples": 1000}
CONFIGS: dict[str, dict[str, Any]] = {
    "fused_add_rms": {"num_tokens": 4096, "hidden_size": 4096, "dtype": "bfloat16"},
    "w4_gemm": {"m": 4096, "n": 4096, "k": 4096, "group_size": 128, "dtype": "float16"},
    "copy_blocks": {"num_layers": 4, "num_blocks": 1024, "width": 2048, "dtype": "float16"},
    "paged_attention_v1": {
        "num_seqs": 4,
        "num_heads": 8,
        "head_size": 128,
        "block_size": 16,
        "seed": 0,
        "dtype": "bfloat16",
    },
    "gate": {"num_tokens": 1024, "num_experts": 64, "topk": 4, "dtype": "bfloat16"},
}
CONFIGS = {name: {**_COMMON, **values} for name, values in CONFIGS.items()}
