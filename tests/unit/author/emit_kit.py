"""Operators and trials as the readers hand them over, small ones of several kinds."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path
from typing import Any

from orchestrator.author.emit import draft
from orchestrator.author.facts import (
    Argument,
    Constraint,
    Draft,
    Operator,
    Output,
    Parameter,
    Place,
    Trial,
)

ROOT = Path(__file__).parents[3]
AT = Place("unit_test/test_it.py", 12)
SOURCE = Place("op/vllm/it.cu", 40)
ESTABLISHED = """\
import torch


class OpBenchmarkBase:
    def __init__(self, name, config):
        self.name, self.config = name, config

    def as_torch_stream(self, stream, dev_id): ...

    def make_launcher(self, dev_id, op_func, *args): ...

    def check_diff(self, out, ref, threshold=0.999999): ...
"""


def our_tree(folder: Path) -> Path:
    """A copy of what the tree with our harness needs, without operators."""
    tree = folder / "benchmark"
    shutil.copytree(ROOT / "benchmark" / "harness", tree / "harness")
    for name in ("mcoplib_mxbenchmark_op_wrapper.py", "mcoplib_mxbenchmark_ops.py"):
        shutil.copy(ROOT / "benchmark" / name, tree / name)
    for name in ("config", "runners"):
        (tree / name).mkdir()
    return tree


def established_tree(folder: Path) -> Path:
    """A checkout whose base class has what established runners know, and nothing else."""
    tree = our_tree(folder)
    shutil.rmtree(tree / "harness")
    (tree / "mcoplib_mxbenchmark_op_wrapper.py").write_text(ESTABLISHED)
    return tree


def parameter(name: str, *values: str, kind: str = "int", **more: Any) -> Parameter:
    return Parameter(name, values, kind, AT, **more)  # type: ignore[arg-type]


DTYPE = parameter("dtype", "torch.float16", "torch.bfloat16", "torch.float32", kind="dtype")


def argument(text: str) -> Argument:
    """``out!: Tensor``, ``eps: float = 1e-6``, ``*, bias: Tensor?``."""
    keyword_only = text.startswith("*, ")
    head, _, default = text.removeprefix("*, ").partition(" = ")
    name, _, type_ = head.partition(": ")
    mutated = name.endswith("!")
    return Argument(name.rstrip("!"), type_, mutated, default or None, keyword_only)


def operator(name: str, *arguments: str, **more: Any) -> Operator:
    given: dict[str, Any] = {
        "namespace": "_C",
        "framework": "vllm",
        "kind": "schema",
        "call": f"torch.ops._C.{name}",
        "imports": ("import mcoplib._C",),
        "sources": (SOURCE,),
        **more,
    }
    return Operator(name, arguments=tuple(argument(a) for a in arguments), **given)


def statements(text: str) -> tuple[str, ...]:
    """Statements of a test, one a line; an indented line belongs to the one before."""
    found: list[str] = []
    for line in textwrap.dedent(text).strip().splitlines():
        if line.startswith(" "):
            found[-1] += f"\n{line}"
        elif line.strip():
            found.append(line)
    return tuple(found)


def trial(prepare: str, reference: str = "", **more: Any) -> Trial:
    given: dict[str, Any] = {
        "function": "test_it",
        "parameters": (),
        "arguments": {},
        "outputs": (),
        **more,
    }
    helpers = tuple(textwrap.dedent(h).strip() for h in given.pop("helpers", ()))
    return Trial(
        AT,
        prepare=statements(prepare),
        reference=statements(reference),
        helpers=helpers,
        **given,
    )


def close(actual: str, expected: str, **more: Any) -> Output:
    return Output(actual, expected, more.pop("how", "close"), AT, **more)


def made(
    tree: Path, what: tuple[Operator, Trial], *, name: str | None = None, **more: Any
) -> Draft:
    """The draft of one of the kinds below."""
    op, tested = what
    return draft(op, tested, tree=tree, name=name or op.name, **more)


def runner(one: Draft) -> str:
    return next(text for path, text in one.files.items() if path.endswith(".py"))


def config(one: Draft) -> str:
    return next(text for path, text in one.files.items() if path.endswith(".json"))


def activation() -> tuple[Operator, Trial]:
    """Out of place, the output first; a length that may grow."""
    op = operator(
        "silu_and_mul",
        "result!: Tensor",
        "input: Tensor",
        dtypes=("float32", "float16", "bfloat16"),
        constraints=(Constraint('d > 0 && "x\\n"', "d must be positive", SOURCE),),
    )
    tested = trial(
        """
        torch.set_default_device(device)
        x = torch.randn(num_tokens, 2 * d, dtype=dtype)
        out = torch.empty(num_tokens, d, dtype=dtype)
        """,
        "ref = silu_and_mul_ref(x)",
        parameters=(
            parameter("num_tokens", "7", "83", "2048"),
            parameter("d", "512", "13824", "17"),
            DTYPE,
        ),
        arguments={"result": "out", "input": "x"},
        outputs=(close("out", "ref"),),
        helpers=(
            """
            def silu_and_mul_ref(x: torch.Tensor) -> torch.Tensor:
                d = x.shape[-1] // 2
                return F.silu(x[..., :d]) * x[..., d:]  # the gate comes first
            """,
        ),
        imports=("import torch.nn.functional as F",),
        device_names=("device",),
        seed_names=("seed",),
    )
    return op, tested


def norm() -> tuple[Operator, Trial]:
    """Two tensors changed in place, weights out of a layer."""
    op = operator(
        "fused_add_rms_norm",
        "input!: Tensor",
        "residual!: Tensor",
        "weight: Tensor",
        "epsilon: float",
    )
    tested = trial(
        """
        layer = Norm(hidden_size).to(dtype=dtype, device="cuda")
        x = torch.randn(num_tokens, hidden_size, dtype=dtype).cuda()
        residual = torch.randn_like(x) * 0.1
        """,
        "expected, expected_residual = layer(x, residual)",
        parameters=(
            parameter("num_tokens", "19", "4096"),
            parameter("hidden_size", "768", "8192", "5120"),
            DTYPE,
        ),
        arguments={
            "input": "x",
            "residual": "residual",
            "weight": "layer.weight.data",
            "epsilon": "layer.epsilon",
        },
        outputs=(
            close("x", "expected", atol="1e-2", rtol="1e-2"),
            close("residual.float().cpu()", "expected_residual.float()", how="exact"),
        ),
        copied=("x", "residual"),
        helpers=(
            """
            class Norm(torch.nn.Module):
                def __init__(self, hidden_size, epsilon=1e-6):
                    super().__init__()
                    self.weight = torch.nn.Parameter(torch.ones(hidden_size))
                    self.epsilon = epsilon

                def forward(self, x, residual):
                    total = x.float() + residual.float()
                    scale = torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + self.epsilon)
                    return (total * scale).to(x.dtype) * self.weight, total.to(x.dtype)
            """,
        ),
    )
    return op, tested


def scatter() -> tuple[Operator, Trial]:
    """Two caches written in part; values that belong together."""
    op = operator(
        "reshape_and_cache",
        "key: Tensor",
        "key_cache!: Tensor",
        "slot_mapping: Tensor",
        "kv_cache_dtype: str",
    )
    names = ("num_tokens", "head_size", "block_size", "dtype")

    def with_others(name: str, *values: str, kind: str = "int") -> Parameter:
        others = tuple(other for other in names if other != name)
        return parameter(name, *values, kind=kind, together=others)

    tested = trial(
        """
        random.seed(0)
        slots = random.sample(range(256 * block_size), num_tokens)
        slot_mapping = torch.tensor(slots, dtype=torch.long, device=device)
        key = torch.randn(num_tokens, head_size, dtype=dtype, device=device)
        key_cache = torch.randn(256, block_size, head_size, dtype=dtype, device=device)
        cloned = key_cache.clone()
        """,
        """
        for i, slot in enumerate(slots):
            cloned[slot // block_size, slot % block_size] = key[i]
        """,
        parameters=(
            with_others("num_tokens", "42", "2048"),
            with_others("head_size", "64", "128"),
            with_others("block_size", "16", "32"),
            with_others("dtype", "torch.float16", "torch.bfloat16", kind="dtype"),
        ),
        arguments={
            "key": "key",
            "key_cache": "key_cache",
            "slot_mapping": "slot_mapping",
            "kv_cache_dtype": '"auto"',
        },
        outputs=(close("key_cache", "cloned", how="exact"),),
        imports=("import random",),
        device_names=("device",),
    )
    return op, tested


def returning() -> tuple[Operator, Trial]:
    """A Python function that returns what is compared; the reference within the comparison."""
    op = operator(
        "softcap_softmax",
        "x: Any",
        "cap: Any = 30.0",
        framework="torch",
        kind="triton",
        namespace="rowops.softcap",
        call="softcap_softmax",
        imports=("from rowops.softcap import softcap_softmax",),
    )
    tested = trial(
        "x = torch.randn(n_rows, n_cols, device='cuda', dtype=dtype) * 20",
        parameters=(
            parameter("n_rows", "17", "4096"),
            parameter("n_cols", "781", "4096"),
            parameter("cap", "30.0", "50.0", kind="float"),
            DTYPE,
        ),
        arguments={"x": "x", "cap": "cap"},
        outputs=(close("y", "reference(x, cap)"),),
        result="y",
        helpers=("def reference(x, cap):\n    return torch.softmax(x.float() / cap, -1)",),
    )
    return op, tested


def top_k() -> tuple[Operator, Trial]:
    """Outputs in any order, a pair that is unpacked, a keyword, a flag."""
    op = operator(
        "topk_softmax",
        "weights!: Tensor",
        "indices!: Tensor",
        "gating: Tensor",
        "renormalize: bool = False",
        "softcap: float = 0.0",
        "*, bias: Tensor? = None",
    )
    tested = trial(
        """
        num_experts, topk = experts
        gating = torch.randn((num_tokens, num_experts), dtype=dtype, device="cuda")
        weights = torch.empty((num_tokens, topk), dtype=torch.float32, device="cuda")
        indices = torch.zeros(num_tokens, topk, dtype=torch.int32, device="cuda")
        bias = torch.randn(num_experts, device="cuda")
        """,
        """
        scores = torch.softmax(gating.float() + bias, dim=-1)
        ref_weights, ref_indices = scores.topk(topk, dim=-1)
        """,
        parameters=(
            parameter("num_tokens", "33", "1024"),
            parameter("experts", "(8, 2)", "(256, 6)", kind="other"),
            parameter("renormalize", "False", "True", kind="bool"),
            DTYPE,
        ),
        arguments={
            "weights": "weights",
            "indices": "indices",
            "gating": "gating",
            "renormalize": "renormalize",
            "bias": "bias",
        },
        outputs=(
            close("indices", "ref_indices.int()", how="unordered"),
            close("weights", "ref_weights", when="not renormalize", atol="1e-5"),
        ),
    )
    return op, tested


def dequantising() -> tuple[Operator, Trial]:
    """A quantised product whose reference does all at once; the call allocates."""
    op = operator(
        "awq_gemm",
        "x: Tensor",
        "qweight: Tensor",
        "scales: Tensor",
        allocates=(SOURCE,),
    )
    tested = trial(
        """
        qweight = torch.randint(0, 255, (n, k), dtype=torch.int32)
        x = torch.randn(m, k, dtype=torch.float16)
        scales = torch.rand(n, k, dtype=torch.float16)
        """,
        "ref = x @ (((qweight >> shifts) & mask).half() * scales).t()",
        parameters=(
            parameter("m", "16"),
            parameter("n", "64", "128"),
            parameter("k", "256"),
            parameter("shifts", "4"),
            parameter("mask", "15"),
        ),
        arguments={"x": "x", "qweight": "qweight", "scales": "scales"},
        outputs=(close("out", "ref", atol="0.1"),),
        result="out",
    )
    return op, tested


KINDS = {
    "activation": activation,
    "norm": norm,
    "scatter": scatter,
    "returning": returning,
    "top_k": top_k,
    "dequantising": dequantising,
}
