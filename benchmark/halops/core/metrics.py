"""What a case costs at least: attended pairs, FLOPs, bytes; and how near to the roofline it came.

Lengths are the actual ones of each sequence or expert, never the padded maxima. FLOPs count a
multiply-add as two. Bytes are what has to cross the memory bus once: every input read once, every
output written once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Above this part of a peak, what was counted or timed cannot be right: the flag ABOVE_ROOFLINE.
ABOVE_ROOFLINE = 1.05

# Dense peaks of the vendors' data sheets (as ``harness.specs`` has them; FP4: HGX B200): bytes a
# second and FLOP a second by compute class. ``models`` are devices' names without the vendor.
GPU_SPECS: dict[str, dict[str, Any]] = {
    "b200": {
        "models": ["B200"],
        "bandwidth": 8e12,
        "tf32": 1125e12,
        "fp16": 2250e12,
        "bf16": 2250e12,
        "fp8": 4500e12,
        "fp4": 9000e12,
    },
    "h200": {
        "models": ["H200", "H200_SXM", "H200_141GB_HBM3e"],
        "bandwidth": 4.8e12,
        "fp64": 67e12,
        "fp32": 67e12,
        "tf32": 494.5e12,
        "fp16": 989.5e12,
        "bf16": 989.5e12,
        "fp8": 1979e12,
    },
    "h100": {
        "models": ["H100_80GB_HBM3", "H100_SXM5"],
        "bandwidth": 3.35e12,
        "fp64": 67e12,
        "fp32": 67e12,
        "tf32": 494.5e12,
        "fp16": 989.5e12,
        "bf16": 989.5e12,
        "fp8": 1979e12,
    },
    "h20": {
        "models": ["H20"],
        "bandwidth": 4e12,
        "fp64": 1e12,
        "fp32": 44e12,
        "tf32": 74e12,
        "fp16": 148e12,
        "bf16": 148e12,
        "fp8": 296e12,
    },
    "a100": {
        "models": ["A100-SXM4-80GB"],
        "bandwidth": 2.039e12,
        "fp64": 19.5e12,
        "fp32": 19.5e12,
        "tf32": 156e12,
        "fp16": 312e12,
        "bf16": 312e12,
    },
    "l40s": {
        "models": ["L40S"],
        "bandwidth": 0.864e12,
        "fp32": 91.6e12,
        "tf32": 183e12,
        "fp16": 362.05e12,
        "bf16": 362.05e12,
        "fp8": 733e12,
    },
    "c500": {
        "models": ["C500", "C500_OAM", "MXC500"],
        "bandwidth": 1.8432e12,
        "bf16": 280e12,
    },
}


@dataclass(frozen=True)
class Work:
    """What one call has to do: FLOPs, bytes read and written, and the compute class of the FLOPs.

    ``compute`` is a key of ``GPU_SPECS``' entries: ``bf16``, ``fp8``, ``fp4``, ...
    """

    flops: int
    bytes_read: int
    bytes_written: int
    compute: str

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written together."""
        return self.bytes_read + self.bytes_written


_COMPUTE_CLASS = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "float4_e2m1fn_x2": "fp4",
}


def compute_class(dtype: Any) -> str:
    """The compute class of a torch dtype or its name; the name itself where none is known."""
    name = str(dtype).removeprefix("torch.")
    return _COMPUTE_CLASS.get(name, name)


def attended_pairs(q_len: int, kv_len: int, causal: bool = True) -> int:
    """Pairs P of a query and a key that it attends to.

    Causal, aligned bottom-right: the last query sees all ``kv_len`` keys, the one before it one
    less, so P = q(2k - q + 1)/2 for q <= k. Queries that lie before the first key see none.
    """
    if not causal:
        return q_len * kv_len
    seeing = min(q_len, kv_len)
    return seeing * (2 * kv_len - seeing + 1) // 2


def attention_flops(num_q_heads: int, head_dim_qk: int, head_dim_vo: int, pairs: int) -> int:
    """2 Hq (d_qk + d_vo) P: both matrix products, the softmax not counted."""
    return 2 * num_q_heads * (head_dim_qk + head_dim_vo) * pairs


def attention_bytes(
    q_lens: Sequence[int],
    kv_lens: Sequence[int],
    *,
    num_q_heads: int,
    num_kv_heads: int,
    head_dim_qk: int,
    head_dim_vo: int,
    q_bytes: int,
    kv_bytes: int,
    out_bytes: int,
    page_size: int | None = None,
    scale_bytes: int = 0,
    shared_latent: bool = False,
) -> tuple[int, int]:
    """Bytes that attention has to read and to write, over sequences of these lengths.

    Q, K, V once each and O once; with ``page_size`` the page table's entries in use (int32, one a
    page). ``shared_latent``: V is a part of K's rows (MLA), so the cache is counted once.
    ``*_bytes`` are bytes an element; ``scale_bytes`` are all scales together.
    """
    queries, keys = sum(q_lens), sum(kv_lens)
    width = head_dim_qk if shared_latent else head_dim_qk + head_dim_vo
    read = queries * num_q_heads * head_dim_qk * q_bytes
    read += keys * num_kv_heads * width * kv_bytes
    read += scale_bytes
    if page_size is not None:
        read += 4 * sum(-(-length // page_size) for length in kv_lens)
    return read, queries * num_q_heads * head_dim_vo * out_bytes


def gemm_flops(m: int, n: int, k: int) -> int:
    """2 M N K; grouped: the sum over active experts, each with its own M."""
    return 2 * m * n * k


def gemm_bytes(
    m: int, n: int, k: int, *, a_bits: int, b_bits: int, out_bits: int, scale_bytes: int = 0
) -> tuple[int, int]:
    """Bytes that A [m, k] times B [k, n] has to read (``scale_bytes`` too) and to write.

    ``*_bits`` are bits an element, so that two FP4 numbers to a byte count as they lie.
    """
    return (m * k * a_bits + k * n * b_bits) // 8 + scale_bytes, m * n * out_bits // 8


def mxfp8_scale_bytes(rows: int, k: int, swizzled: bool = False) -> int:
    """Bytes of an operand's MXFP8 scales: one E8M0 byte for each 32 elements of a row."""
    return _block_scales(rows, k, 32, swizzled)


def nvfp4_scale_bytes(rows: int, k: int, swizzled: bool = False) -> int:
    """Bytes of an operand's NVFP4 scales: one E4M3 byte per 16 elements, and a float32 global."""
    return _block_scales(rows, k, 16, swizzled) + 4


def _block_scales(rows: int, k: int, block: int, swizzled: bool) -> int:
    columns = -(-k // block)
    if swizzled:
        # Tiles of 128 rows by 4 scales, as the tensor cores of compute capability 10.0 read them.
        rows, columns = -(-rows // 128) * 128, -(-columns // 4) * 4
    return rows * columns


def gpu_spec(gpu_type: str | None, device_model: str | None) -> tuple[str | None, str | None]:
    """The key of ``GPU_SPECS`` that rooflines are drawn by, and what to tell about the choice.

    ``gpu_type`` as the configuration names it, else the detected ``device_model`` (None: there is
    no GPU, then ``b200``). A detected model that is not listed gives no roofline. Raises
    ``ValueError`` for an unknown explicit name.
    """
    if gpu_type is not None:
        if gpu_type not in GPU_SPECS:
            raise ValueError(f"gpu_type {gpu_type!r} is unknown; use {', '.join(GPU_SPECS)}")
        return gpu_type, None
    if device_model is None:
        return "b200", "no GPU here: gpu_type is b200"
    for key, spec in GPU_SPECS.items():
        if device_model.casefold() in {str(model).casefold() for model in spec["models"]}:
            return key, None
    return None, f"{device_model} is not in GPU_SPECS: no roofline"


def roofline(key: str | None, work: Work, seconds: float | None) -> dict[str, Any] | None:
    """What part of the peaks of ``GPU_SPECS[key]`` a call of ``seconds`` reached, as records say.

    The bound is the roof that takes longer at its peak; ``fraction`` is how near it came. Without
    a peak for the compute class (FP4 but on ``b200``) only the bandwidth's part is told.
    """
    if key is None or not seconds:
        return None
    spec: Mapping[str, Any] = GPU_SPECS[key]
    bandwidth, peak = float(spec["bandwidth"]), spec.get(work.compute)
    memory = work.bytes_moved / seconds / bandwidth
    compute = None if peak is None else work.flops / seconds / float(peak)
    bound = None if compute is None else ("compute" if compute > memory else "memory")
    return {
        "bandwidth_fraction": memory,
        "flops_fraction": compute,
        "bound": bound,
        "fraction": {"compute": compute, "memory": memory}.get(bound or ""),
        "peak_bandwidth": bandwidth,
        "peak_flops": peak,
        "source": f"GPU_SPECS[{key!r}]",
    }


def above_roofline(parts: Mapping[str, Any] | None) -> bool:
    """Whether a ``roofline`` says more than can be: a part above ``ABOVE_ROOFLINE``."""
    found = [(parts or {}).get(name) for name in ("bandwidth_fraction", "flops_fraction")]
    return any(part is not None and part > ABOVE_ROOFLINE for part in found)
