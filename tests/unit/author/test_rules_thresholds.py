"""Thresholds below the rules, exact operators compared by cosine, and what only looks like it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from seeded.trees import SHIPPED, Seed, check_clean, check_seed, seed

from orchestrator.author.check.rules import thresholds

LOOSE, EXACT = "loose-threshold", "exact-by-cosine"
_RETURN = "        return self.check_diff(out, out_ref, threshold=0.999999)\n"
_EQUAL = """        passed = all(torch.equal(a, b) for a, b in zip(dst, expected))
        return passed, 0.0 if passed else 1.0
"""


def _end(
    rule: str, *lines: str, line: str | None = None, config: dict[str, object] | None = None
) -> Seed:
    text = "".join(f"        {one}\n" for one in lines)
    return seed(rule, "my_op", (_RETURN, text), line=line or lines[0], config=config)


SEEDS = [
    _end(LOOSE, "return self.check_diff(out, out_ref, threshold=0.99)"),
    _end(LOOSE, "return self.check_diff(out, out_ref, 0.9999)"),
    _end(
        LOOSE,
        "least = 0.999",
        "return self.check_diff(out, out_ref, threshold=least)",
        line="return self.check",
    ),
    _end(
        LOOSE,
        "least = 0.99 if self.dtype == torch.bfloat16 else 0.999999",
        "return self.check_diff(out, out_ref, least)",
        line="return self.check",
    ),
    _end(
        LOOSE,
        "least = 0.999999",
        "if self.dtype == torch.bfloat16:",
        "    least = 0.999",
        "return self.check_diff(out, out_ref, least)",
        line="return self.check",
    ),
    _end(
        LOOSE,
        'return self.check_diff(out, out_ref, self.config.get("threshold", 0.99))',
        config={"threshold": 0.99},
    ),
    _end(LOOSE, "return self.check_diff(out, out_ref, threshold=1 - 1e-3)"),
    _end(
        LOOSE,
        "cos = torch.nn.functional.cosine_similarity(out.flatten(), out_ref.flatten(), dim=0)",
        "return bool(cos > 0.99), float(1 - cos)",
        line="return bool(cos",
    ),
    _end(
        LOOSE,
        "cos = torch.cosine_similarity(out.flatten(), out_ref.flatten(), dim=0).item()",
        "return 1 - cos < 1e-2, 1 - cos",
        line="return 1 - cos",
    ),
    _end(
        LOOSE,
        "cos = torch.cosine_similarity(out.flatten(), out_ref.flatten(), dim=0)",
        "if cos < 0.99:",
        "    return False, 1.0",
        "return self.check_diff(out, out_ref)",
        line="if cos < 0.99",
    ),
    seed(
        LOOSE,
        "rms_norm",
        ("least, reason=ROUNDING", "least"),
        line="self.verify.cosine(out, ref, least",
    ),
    seed(
        LOOSE,
        "torch_silu_and_mul",
        (
            '    threshold_reason = "silu, then times up: two roundings below float32, one in '
            'the reference"\n',
            "",
        ),
        line="return self.check_diff(out",
    ),
    seed(
        LOOSE,
        "merge_attn_states",
        (
            "self.verify.cosine(output, expected, name",
            "self.verify.cosine(output, expected, threshold=0.98, name",
        ),
    ),
    # Quantised ones have 0.99.
    seed(
        LOOSE,
        "w4_gemm",
        ("threshold = 0.999", "threshold = 0.9"),
        line="return self.check_diff(out, ref",
    ),
    seed(LOOSE, "static_scaled_fp8_quant", ("0.9999,", "0.95,"), line="self.verify.cosine"),
    seed(
        LOOSE,
        "gate",
        ('    threshold_reason = "weights are rounded to bfloat16 by the kernel"\n', ""),
        line="passed, diff = self.check_diff",
    ),
    seed(EXACT, "copy_blocks", (_EQUAL, "        return self.check_diff(dst[0], expected[0])\n")),
    seed(
        EXACT,
        "reshape_and_cache",
        ('        self.verify.exact(key_cache, expected[0], name="key_cache")\n', ""),
        (
            '        self.verify.exact(value_cache, expected[1], name="value_cache")\n'
            "        return self.verify.verdict()\n",
            "        return self.check_diff(value_cache, expected[1])\n",
        ),
        line="return self.check_diff(value_cache",
    ),
    seed(
        EXACT,
        "gptq_shuffle",
        (
            "            self.verify.exact(\n"
            "                q_weight, _ref_gptq_shuffle(original, q_perm), "
            'name=f"{name} q_weight"\n'
            "            )\n",
            "            self.verify.cosine(q_weight, _ref_gptq_shuffle(original, q_perm))\n",
        ),
    ),
    seed(
        EXACT,
        "cp_gather_cache",
        (
            '        self.verify.exact(dst, expected, name="dst")\n',
            '        self.verify.cosine(dst, expected, name="dst")\n',
        ),
    ),
    # Whole numbers, whatever the operator is called.
    seed(
        EXACT,
        "gate",
        (
            "passed, diff = self.check_diff(weights, ref_weights, threshold=0.9999)",
            "passed, diff = self.check_diff(ids, ref_ids)",
        ),
    ),
    seed(
        EXACT,
        "moe_align_block_size",
        (
            'self.verify.exact(num_tokens_post_pad, ref_length, name="num_tokens_post_pad")',
            "self.verify.cosine(num_tokens_post_pad, ref_length)",
        ),
    ),
]

LOOK_ALIKES = [
    _end(LOOSE, "return self.check_diff(out, out_ref, threshold=0.9999999)"),
    _end(LOOSE, "return self.check_diff(out, out_ref)"),
    _end(LOOSE, "least = 1.0 - 1e-6", "return self.check_diff(out, out_ref, least)"),
    _end(
        LOOSE,
        'return self.verify.cosine(out, out_ref, 0.99, reason="the kernel rounds twice")',
    ),
    _end(
        LOOSE,
        'self.threshold_reason = "the kernel rounds twice"',
        "return self.check_diff(out, out_ref, 0.99)",
    ),
    _end(LOOSE, "self.quantised = True", "return self.check_diff(out, out_ref, 0.99)"),
    _end(LOOSE, "narrow = out.to(torch.int8)", "return self.check_diff(narrow, out_ref, 0.99)"),
    _end(LOOSE, "return self.check_diff(out, out_ref, threshold=max(0.9, 0.9999999))"),
    # Another comparison: of a norm, a fraction.
    _end(LOOSE, "share = (out == out_ref).float().mean().item()", "return share > 0.99, 1 - share"),
    seed(LOOSE, "w4_gemm", ("threshold = 0.999", "threshold = 0.99"), config={"dtype": "float16"}),
    # Looked at beside an exact comparison.
    seed(
        EXACT,
        "cp_gather_cache",
        (
            '        self.verify.exact(dst, expected, name="dst")\n',
            '        self.verify.exact(dst, expected, name="dst")\n'
            "        self.verify.cosine(dst, expected)\n",
        ),
    ),
    # A cache of another dtype is computed.
    seed(
        EXACT,
        "reshape_and_cache",
        (
            '        self.verify.exact(key_cache, expected[0], name="key_cache")\n'
            '        self.verify.exact(value_cache, expected[1], name="value_cache")\n',
            "        self.verify.cosine(key_cache, expected[0])\n"
            "        self.verify.cosine(value_cache, expected[1])\n",
        ),
        (
            'key, value, key_cache, value_cache, slot_mapping, "auto", scale, scale\n',
            'key, value, key_cache, value_cache, slot_mapping, "fp8", scale, scale\n',
        ),
    ),
]


@pytest.mark.parametrize("planted", SEEDS, ids=str)
def test_loose_comparisons_are_found(tmp_path: Path, planted: Seed) -> None:
    check_seed(tmp_path, planted)


@pytest.mark.parametrize("look_alike", LOOK_ALIKES, ids=str)
def test_tight_comparisons_are_not(tmp_path: Path, look_alike: Seed) -> None:
    check_clean(tmp_path, look_alike)


def test_the_limits_are_those_of_the_harness() -> None:
    found: dict[str, object] = {}
    module = ast.parse((SHIPPED / "harness" / "thresholds.py").read_text())
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value.args[0] if isinstance(node.value, ast.Call) else node.value
            found[node.targets[0].id] = ast.literal_eval(value)
    assert found["COSINE"] == thresholds.COSINE
    assert found["QUANTISED_COSINE"] == thresholds.QUANTISED_COSINE
    assert found["_QUANTISED_NAME"] == thresholds.QUANTISED_NAME.pattern
