"""Summaries, sizes of elements and declared traffic, in several spellings."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeded.trees import Seed, check_clean, check_seed, damaged, plant, seed

from orchestrator.author.check import check_tree
from orchestrator.author.check.fix import mend

SUMMARY, COMMA, BYTES = "summary-missing", "shape-comma", "bfloat16-bytes"
FIXED, MISSING, INCOMPLETE = "fixed-element-size", "traffic-missing", "traffic-incomplete"
_SHAPE = '        state.add_summary("Shape", f"({self.num_tokens} {self.hidden_size})")\n'
_OP = '        state.add_summary("Op", self.name)\n'
_ES = "        es = 2 if self.dtype in (torch.float16, torch.bfloat16) else 4\n"
_METRICS = "    def define_metrics(self, state):\n"
_MOVES = "        self.moves(state, read=(self.x, self.weight), written=(self.out,))\n"


def _shape(expression: str) -> Seed:
    """The skeleton with another Shape."""
    return seed(COMMA, "my_op", (_SHAPE, f'        state.add_summary("Shape", {expression})\n'))


def _es(*lines: str, line: str | None = None) -> Seed:
    """The skeleton with the element size found out in another way."""
    text = "".join(f"        {one}\n" for one in lines)
    return seed(BYTES, "my_op", (_ES, text), line=line or lines[0])


SEEDS = [
    *(
        seed(SUMMARY, operator, (old, ""), line="def define_metrics(self, state)")
        for operator in ("rms_norm", "awq_dequantize", "vllm_topk_softmax")
        for old in ('        state.add_summary("Op", self.name)\n',)
    ),
    seed(SUMMARY, "my_op", (_SHAPE, ""), line="def define_metrics"),
    seed(
        SUMMARY, "my_op", ('add_summary("dtype"', 'add_summary("Dtype"'), line="def define_metrics"
    ),
    seed(
        SUMMARY, "fused_add_rms", ('            "Op": self.name,\n', ""), line="def define_metrics"
    ),
    seed(
        SUMMARY,
        "w4_gemm",
        ('        state.add_summary("Op", self.name)\n', ""),
        line="    def define_metrics",
    ),
    _shape('f"({self.num_tokens}, {self.hidden_size})"'),
    _shape('"4096,4096"'),
    _shape("str((self.num_tokens, self.hidden_size))"),
    _shape('f"{(self.num_tokens, self.hidden_size)}"'),
    _shape('", ".join([str(self.num_tokens), str(self.hidden_size)])'),
    _shape('"%d,%d" % (self.num_tokens, self.hidden_size)'),
    _shape('"{}, {}".format(self.num_tokens, self.hidden_size)'),
    _shape('str(self.num_tokens) + "," + str(self.hidden_size)'),
    _shape('f"{self.num_tokens:,}"'),
    _shape("f'M={self.num_tokens},N={self.hidden_size}'"),
    seed(
        COMMA,
        "my_op",
        (
            _SHAPE,
            '        shape = f"{self.num_tokens},1"\n        state.add_summary("Shape", shape)\n',
        ),
    ),
    seed(
        COMMA, "rms_norm", ('f"({self.num_tokens} {self.hidden_size})"', 'f"{tuple(self.x.shape)}"')
    ),
    seed(COMMA, "rms_norm", ('f"({self.num_tokens} {self.hidden_size})"', "str(self.x.shape)")),
    seed(
        COMMA, "rms_norm", ('f"({self.num_tokens} {self.hidden_size})"', 'f"{list(self.x.shape)}"')
    ),
    seed(COMMA, "fused_add_rms", ('"(%d %d)"', '"(%d, %d)"')),
    seed(COMMA, "w4_gemm", ('" ".join(str(n)', '",".join(str(n)')),
    seed(
        COMMA,
        "paged_attention_v1",
        ('.replace(",", "")', '.replace("(", "[")'),
        line="shape = str((self.seqs",
    ),
    _es("es = 2 if self.dtype == torch.float16 else 4"),
    _es("es = 2 if self.dtype is torch.half else 4"),
    _es('es = 2 if self.config.get("dtype") == "float16" else 4'),
    _es('es = 2 if str(self.dtype) == "torch.float16" else 4'),
    _es('es = 2 if self.config.get("dtype") in ("float16", "half") else 4'),
    _es("es = 4 if self.dtype != torch.float16 else 2"),
    _es("es = {torch.float16: 2, torch.float32: 4}.get(self.dtype, 4)"),
    _es('es = {"float16": 2}.get(self.config["dtype"], 4)'),
    _es("es = (self.dtype == torch.float16) and 2 or 4"),
    _es("es = 2 if self.dtype == torch.bfloat16 else 4"),
    _es('es = 2 if str(self.dtype).endswith(".float16") else 4'),
    _es(
        "if self.dtype == torch.float16:",
        "    es = 2",
        "else:",
        "    es = 4",
    ),
    _es("es = 4", "if self.dtype == torch.float16:", "    es = 2", line="if self.dtype == torch"),
    seed(
        BYTES,
        "my_op",
        (_ES, "        es = self._size()\n"),
        (
            _METRICS,
            "    def _size(self):\n        return 2 if self.dtype == torch.float16 else 4\n\n"
            + _METRICS,
        ),
        line="return 2 if self.dtype",
    ),
    seed(
        BYTES,
        "gate",
        ("if self.dtype in (torch.float16, torch.bfloat16):", "if self.dtype == torch.float16:"),
    ),
    seed(
        FIXED,
        "my_op",
        (_ES, ""),
        ("reads(elems * es * 2)", "reads(elems * 4)"),
        ("writes(elems * es)", "writes(self.num_tokens)"),
        line="state.add_global_memory_reads",
    ),
    seed(
        FIXED,
        "torch_softmax",
        (
            "nbytes = self.x.numel() * self.x.element_size()",
            "count = self.num_rows * self.row_size",
        ),
        ("state.add_global_memory_reads(nbytes)", "state.add_global_memory_reads(2 * count)"),
        ("state.add_global_memory_writes(nbytes)", "state.add_global_memory_writes(count)"),
        line="state.add_global_memory_reads",
    ),
    seed(
        FIXED,
        "my_op",
        (_ES, "        es = 2\n"),
        ("reads(elems * es * 2)", "reads(es * elems)"),
        ("writes(elems * es)", "writes(elems)"),
        line="state.add_global_memory_reads",
    ),
    seed(
        MISSING,
        "my_op",
        ("        state.add_global_memory_reads(elems * es * 2)\n", ""),
        line="def define_metrics",
    ),
    seed(
        MISSING,
        "my_op",
        ("        state.add_global_memory_writes(elems * es)\n", ""),
        line="def define_metrics",
    ),
    seed(MISSING, "rms_norm", (", written=(self.out,)", ""), line="def define_metrics"),
    seed(MISSING, "rms_norm", (_MOVES, ""), line="def define_metrics"),
    seed(
        INCOMPLETE, "rms_norm", ("read=(self.x, self.weight)", "read=(self.x,)"), line="self.moves"
    ),
    seed(INCOMPLETE, "rms_norm", ("written=(self.out,)", "written=(self.x,)"), line="self.moves"),
    seed(
        INCOMPLETE,
        "fused_add_rms_norm",
        ("self.residual, self.weight)", "self.residual)"),
        line="self.moves",
    ),
    seed(
        INCOMPLETE,
        "torch_matmul",
        (
            "self.a.numel() * self.a.element_size() + self.b.numel() * self.b.element_size()",
            "self.a.numel() * self.a.element_size()",
        ),
        line="state.add_global_memory_reads",
    ),
    seed(
        INCOMPLETE,
        "torch_silu_and_mul",
        ("self.x.numel() * self.x.element_size()", "self.out.numel() * self.out.element_size()"),
        line="state.add_global_memory_reads",
    ),
]

LOOK_ALIKES = [
    # Summaries of a helper, a loop, a base class.
    seed(
        SUMMARY,
        "my_op",
        (_OP, "        self._columns(state)\n"),
        (
            _METRICS,
            '    def _columns(self, s):\n        s.add_summary("Op", self.name)\n\n' + _METRICS,
        ),
    ),
    seed(
        SUMMARY,
        "my_op",
        (_OP, '        for key in ("Op",):\n            state.add_summary(key, self.name)\n'),
    ),
    seed(
        SUMMARY,
        "my_op",
        (_OP, "        from torch.somewhere import columns\n        columns(state)\n"),
    ),
    _shape('f"{self.num_tokens}x{self.hidden_size}"'),
    _shape('str((self.num_tokens, self.hidden_size)).replace(",", "")'),
    _shape("f\"({' '.join([str(self.num_tokens), str(self.hidden_size)])})\""),
    _shape('"({} {})".format(self.num_tokens, self.hidden_size)'),
    seed(COMMA, "my_op", (_OP, _OP + '        state.add_summary("Note", "a, b")\n')),
    seed(
        COMMA,
        "rms_norm",
        ('f"({self.num_tokens} {self.hidden_size})"', 'f"{self.x.shape[0]} {max(1, 2)}"'),
    ),
    _es('es = 2 if "float16" in str(self.dtype) else 4'),
    _es("es = 4 if self.dtype == torch.float32 else 2"),
    _es('es = 2 if self.config["dtype"].endswith("float16") else 4'),
    _es("es = {torch.float32: 4}.get(self.dtype, 2)"),
    _es("es = torch.finfo(self.dtype).bits // 8"),
    _es("es = self.dtype.itemsize"),
    # Not bytes: elements of a vector, a tolerance.
    *(
        seed(
            BYTES,
            "my_op",
            (_ES, "        vec = 2 if self.dtype == torch.float16 else 4\n" + size),
        )
        for size in (_ES, "        es = self.dtype.itemsize\n")
    ),
    seed(BYTES, "my_op", (_ES, "        vec = 8 if self.dtype == torch.float16 else 4\n" + _ES)),
    # Two bytes an element, and the dtype's size as well.
    seed(FIXED, "my_op", ("reads(elems * es * 2)", "reads(elems * 4)")),
    seed(FIXED, "my_op", ("reads(elems * es * 2)", "reads(2 * elems * self.dtype.itemsize)")),
    seed(MISSING, "my_op", ("(elems * es * 2)", "(0)")),
    # A cache is touched in part, a scalar does not count, bytes may be of a part.
    seed(
        INCOMPLETE,
        "reshape_and_cache",
        ("            written=(self.key, self.value),\n", "            written=(self.value,),\n"),
    ),
    seed(INCOMPLETE, "static_scaled_fp8_quant", ("read=(self.x, self.scale)", "read=(self.x,)")),
    seed(
        INCOMPLETE,
        "rms_norm",
        ("read=(self.x, self.weight)", "read=(self.x, 2 * self.hidden_size)"),
    ),
]


@pytest.mark.parametrize("planted", SEEDS, ids=str)
def test_wrong_metrics_are_found(tmp_path: Path, planted: Seed) -> None:
    check_seed(tmp_path, planted)


@pytest.mark.parametrize("look_alike", LOOK_ALIKES, ids=str)
def test_right_metrics_are_not(tmp_path: Path, look_alike: Seed) -> None:
    check_clean(tmp_path, look_alike)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('f"({self.num_tokens}, {self.hidden_size})"', 'f"({self.num_tokens} {self.hidden_size})"'),
        ('"4096,4096"', '"4096 4096"'),
        ('f"{self.num_tokens},{max(1, 2)}"', 'f"{self.num_tokens} {max(1, 2)}"'),
    ],
)
def test_commas_of_a_literal_are_mended(tmp_path: Path, before: str, after: str) -> None:
    planted = _shape(before)
    plant(tmp_path, planted.operator, planted.changes)
    done = mend(check_tree(tmp_path), lambda: check_tree(tmp_path))
    assert done.left == []
    runner = tmp_path / "runners" / "mcoplib_mxbenchmark_my_op_runners.py"
    assert runner.read_text() == damaged("my_op", planted.changes).replace(before, after)


def test_commas_that_are_no_literal_are_left_to_people(tmp_path: Path) -> None:
    planted = _shape("str((self.num_tokens, self.hidden_size))")
    plant(tmp_path, planted.operator, planted.changes)
    assert [one.edit for one in check_tree(tmp_path)] == [None]
