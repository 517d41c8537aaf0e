"""References that prove nothing, or that nobody can follow, and what only looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeded.trees import Seed, check_clean, check_seed, seed

ITSELF, CLONE, AFTER = "output-with-itself", "output-with-its-clone", "reference-after-call"
OWN = "reference-is-operator"
ONE_LINE, LAYOUT, ROTARY = "one-line-reference", "value-cache-layout", "rotary-cache-dtype"
_END = """        out_ref = _ref_my_op(x, y).to(out.dtype)
        return self.check_diff(out, out_ref, threshold=0.999999)
"""
_CLONES = "        x_in, residual_in = x.clone(), residual.clone()\n"
_IN_PLACE = (
    "        self.op_func(x, residual, weight, self.eps)\n        torch.cuda.synchronize()\n"
)
_REFS = "        ref, ref_residual = ref_fused_add_rms(x_in, residual_in, weight, self.eps)\n"
_FIRST = "        ref, ref_residual = _ref_fused_add_rms_norm(x, residual, weight, self.epsilon)\n"
_THEN = (
    "        torch.ops._C.fused_add_rms_norm(x, residual, weight, self.epsilon)\n"
    "        self.synchronize(dev_id)\n"
)
_STEPS = """    weight = unpack_rows(packed).float()
    full_scales = scales.float().repeat_interleave(group, dim=0)
    full_zeros = unpack_rows(zeros).float().repeat_interleave(group, dim=0)
    dequantised = (weight - full_zeros) * full_scales
    return torch.matmul(a.float(), dequantised)
"""


def _end(rule: str, *lines: str, line: str | None = None) -> Seed:
    text = "".join(f"        {one}\n" for one in lines)
    return seed(rule, "my_op", (_END, text), line=line or lines[-1])


def _gemm(*lines: str) -> Seed:
    text = "".join(f"    {one}\n" for one in lines)
    return seed(ONE_LINE, "w4_gemm", (_STEPS, text), line=lines[-1])


_OP = "torch.ops._C.my_op"
_BY_OPERATOR = f"""    total = torch.empty_like(x)
    {_OP}(x, y, total)
    return total
"""
_BY_TORCH = "    total = x.float() + y.float()\n    return total\n"

SEEDS = [
    seed(OWN, "my_op", (_BY_TORCH, _BY_OPERATOR), line=f"{_OP}(x, y, total)"),
    _end(
        OWN,
        "out_ref = torch.empty_like(out)",
        f"{_OP}(x, y, out_ref)",
        "return self.check_diff(out, out_ref)",
        line=f"{_OP}(x, y, out_ref)",
    ),
    _end(
        OWN,
        "out_ref = torch.empty_like(out)",
        f"{_OP}(x.clone(), y.clone(), out_ref)",
        "return torch.equal(out, out_ref.float()), 0.0",
        line=f"{_OP}(x.clone()",
    ),
    _end(ITSELF, "return self.check_diff(out, out)"),
    _end(ITSELF, "ref = out", "return self.check_diff(out, ref)"),
    _end(ITSELF, "ref = out.view(-1)", "return self.check_diff(out.flatten(), ref)"),
    _end(ITSELF, "ref = out.detach()", "return self.check_diff(out, ref)"),
    _end(ITSELF, "same = torch.equal(out, out[:])", "return same, 0.0", line="same = torch.equal"),
    _end(
        ITSELF,
        "ok = torch.allclose(out, out.reshape(out.shape))",
        "return ok, 0.0",
        line="ok = torch",
    ),
    _end(
        ITSELF,
        "diff = (out - out).abs().max().item()",
        "return diff < 1e-3, diff",
        line="diff = (out",
    ),
    seed(
        ITSELF,
        "rms_norm",
        (
            'self.verify.close(out, ref, name="result")',
            'self.verify.close(out, out, name="result")',
        ),
    ),
    seed(
        ITSELF,
        "moe_sum",
        (
            "self.verify.close(out, _ref_moe_sum(input), name",
            "self.verify.close(out, out.view_as(out), name",
        ),
    ),
    seed(
        ITSELF,
        "fused_add_rms",
        (_REFS, "        ref, ref_residual = x, residual\n"),
        (
            "        ok_residual, diff_residual = self.check_diff(residual, ref_residual)\n"
            "        return ok and ok_residual, max(diff, diff_residual)\n",
            "        return ok, diff\n",
        ),
        line="ok, diff = self.check_diff(x, ref)",
    ),
    _end(CLONE, "ref = out.clone()", "return self.check_diff(out, ref)"),
    _end(CLONE, "return self.check_diff(out, out.clone())"),
    _end(CLONE, "ref = out.to(torch.float32)", "return self.check_diff(out, ref)"),
    _end(CLONE, "ref = out.cpu().cuda()", "return self.check_diff(out, ref)"),
    _end(CLONE, "return self.check_diff(out.double(), out.float())"),
    _end(
        CLONE, "ref = torch.empty_like(out)", "ref.copy_(out)", "return self.check_diff(out, ref)"
    ),
    _end(CLONE, "ref = torch.zeros_like(out)", "ref[:] = out", "return self.check_diff(out, ref)"),
    _end(
        CLONE,
        "ref = out.clone()",
        "ok = torch.equal(out, ref)",
        "return ok, 0.0",
        line="ok = torch",
    ),
    _end(CLONE, "ref = _ref_my_op(out, out)", "return self.check_diff(out, ref)"),
    _end(
        CLONE,
        "kept = out.clone()",
        "diff = (kept - out).abs().max()",
        "return diff < 1, diff",
        line="diff = ",
    ),
    seed(
        CLONE,
        "awq_gemm",
        ("        ref = _ref_awq_gemm(input, *weight)\n", "        ref = self.out.clone()\n"),
        ('        self.verify.close(self.out, ref, name="output")\n', ""),
        line="self.verify.cosine",
    ),
    seed(
        CLONE,
        "moe_sum",
        ("_ref_moe_sum(input), name", "out.clone(), name"),
    ),
    seed(
        AFTER,
        "fused_add_rms",
        (_CLONES, ""),
        (_IN_PLACE, _IN_PLACE + _CLONES),
        line="ref, ref_residual = ref_fused_add_rms(",
    ),
    seed(
        AFTER,
        "fused_add_rms",
        (_REFS, _REFS.replace("x_in, residual_in", "x, residual_in")),
        line="ref, ref_residual = ref_fused_add_rms(",
    ),
    seed(
        AFTER,
        "fused_add_rms",
        (_CLONES, ""),
        (_IN_PLACE, _IN_PLACE + _CLONES),
        ("self.check_diff(x, ref)", "self.check_diff(ref, x)"),
        line="ref, ref_residual = ref_fused_add_rms(",
    ),
    _end(AFTER, "ref = _ref_my_op(x, x)", "return self.check_diff(x, ref)", line="ref = _ref"),
    seed(
        AFTER,
        "fused_rope_fwd",
        ("        expected = _ref_fused_rope_fwd(qkv.clone(), cos, sin, indexes)\n", ""),
        (
            "        self.synchronize(dev_id)\n",
            "        self.synchronize(dev_id)\n"
            "        expected = _ref_fused_rope_fwd(qkv, cos, sin, indexes)\n",
        ),
        line="expected = _ref_fused_rope_fwd(qkv, cos",
    ),
    seed(
        AFTER,
        "concat_and_cache_mla",
        ("        expected = _ref_concat_and_cache_mla(kv_c, k_pe, kv_cache, slot_mapping)\n", ""),
        (
            "        self.synchronize(dev_id)\n",
            "        self.synchronize(dev_id)\n"
            "        expected = _ref_concat_and_cache_mla(kv_c, k_pe, kv_cache, slot_mapping)\n",
        ),
        line="expected = _ref_concat_and",
    ),
    _gemm("return a.float() @ ((((packed >> 4) & 0xF) - 8).float() * scales)"),
    _gemm("return torch.matmul(a.float(), (((packed & 15) - (zeros & 15)) * scales).float())"),
    _gemm("return torch.mm(a, (unpack_rows(packed) - unpack_rows(zeros)) * scales)"),
    _gemm("return torch.einsum('mk,kn->mn', a, (torch.bitwise_and(packed, 15) - 8) * scales)"),
    _gemm("return (((packed >> 4) & 0xF) * scales).float().t().matmul(a.float())"),
    seed(
        LAYOUT,
        "paged_attention_v1",
        ("value_cache[block, :, :, offset]", "value_cache[block, :, offset, :]"),
    ),
    seed(
        LAYOUT,
        "paged_attention_v1",
        ("value_cache[block, :, :, offset]", "value_cache[block, offset]"),
    ),
    seed(
        LAYOUT,
        "paged_attention_v1",
        (
            "values.append(value_cache[block, :, :, offset])",
            "values.append(value_cache[block, offset, :, :])",
        ),
    ),
    seed(
        ROTARY,
        "rotary_embedding",
        ("angle.sin()), dim=-1).to(self.dtype)", "angle.sin()), dim=-1).to(torch.float32)"),
    ),
    seed(
        ROTARY,
        "sgl_rotary_embedding",
        ("angle.sin()), dim=-1).to(self.dtype)", "angle.sin()), dim=-1).float()"),
    ),
    seed(
        ROTARY,
        "vllm_rotary_embedding",
        ("angle.sin()), dim=-1).to(self.dtype)", "angle.sin()), dim=-1).to(dtype=torch.float)"),
    ),
]

LOOK_ALIKES = [
    _end(
        OWN,
        "other, other_out = x + 1, torch.empty_like(out)",
        f"{_OP}(other, y, other_out)",
        "both = torch.equal(out, _ref_my_op(x, y))",
        "return both and torch.equal(other_out, _ref_my_op(other, y)), 0.0",
    ),
    # Before the call a clone is right.
    seed(ITSELF, "fused_add_rms", (_CLONES, _CLONES + "        x_in = x_in.contiguous()\n")),
    # Is there a NaN?
    _end(
        ITSELF,
        "if (out != out).any() or not (out == out).all():",
        "    return False, 1.0",
        "return self.check_diff(out, _ref_my_op(x, y))",
    ),
    # A mask of booleans is no packed number.
    _gemm("return torch.matmul(a * (group & 1) * (a & scales), scales)"),
    # What the runner itself writes behind the call makes no input of an output.
    _end(
        AFTER,
        "out[:1] = x[:1]",
        "ref = _ref_my_op(x, out)",
        "return self.check_diff(out, ref)",
    ),
    # A property of what is changed in place.
    _end(AFTER, "return torch.equal(x, x.clamp(-1, 1)), 0.0"),
    # Rows by a tensor are a copy.
    seed(
        AFTER, "fused_add_rms", ("x_in, residual_in = x.clone()", "x_in, residual_in = x[weight]")
    ),
    # Two pieces of one tensor.
    _end(
        ITSELF,
        "half = out.shape[0] // 2",
        "same = torch.equal(out[:half], out[half:])",
        "return same, 0.0",
    ),
    # Another call's result: the operator has to repeat itself.
    _end(
        CLONE,
        "first = out.clone()",
        "torch.ops._C.my_op(x, y, out)",
        "if not torch.equal(out, first):",
        "    return False, 1.0",
        "return self.check_diff(out, _ref_my_op(x, y))",
    ),
    _end(CLONE, "got = out.clone()", "return self.check_diff(got, _ref_my_op(x, y))"),
    _end(
        CLONE, "ref = torch.empty_like(out)", "ref.copy_(x + y)", "return self.check_diff(out, ref)"
    ),
    _end(CLONE, "ref = out.clone()", "ref.copy_(x + y)", "return self.check_diff(out, ref)"),
    # Some output says what others should be.
    _end(CLONE, "ref = _ref_my_op(x, out)", "return self.check_diff(out, ref)"),
    # The reference takes what the call leaves alone.
    seed(
        AFTER,
        "fused_add_rms_norm",
        (_FIRST, "        before = x.clone(), residual.clone()\n"),
        (
            _THEN,
            _THEN + "        made = _ref_fused_add_rms_norm(*before, weight, self.epsilon)\n"
            "        ref, ref_residual = made\n",
        ),
    ),
    # Steps of their own lines, or of named functions.
    _gemm(
        "weight = (unpack_rows(packed) - unpack_rows(zeros)) * scales",
        "return torch.matmul(a, weight)",
    ),
    _gemm("return torch.matmul(a[:, group - 1 :].float(), scales.float() * 2)"),
    _gemm("return torch.matmul(a[(packed >> 4) & 1].float(), scales.float() - 1)"),
    seed(
        LAYOUT,
        "paged_attention_v1",
        ("value_cache[block, :, :, offset]", "value_cache[block, ..., offset]"),
    ),
    seed(
        LAYOUT,
        "paged_attention_v1",
        ("value_cache[block, :, :, offset]", "value_cache[block][:, :, offset]"),
    ),
    seed(
        ROTARY,
        "rotary_embedding",
        ("angle.sin()), dim=-1).to(self.dtype)", "angle.sin()), dim=-1).to(query.dtype)"),
    ),
    seed(
        ROTARY,
        "rotary_embedding",
        ("angle.sin()), dim=-1).to(self.dtype)", "angle.sin()), dim=-1).float()"),
        config={"dtype": "float32"},
    ),
]


@pytest.mark.parametrize("planted", SEEDS, ids=str)
def test_references_that_prove_nothing_are_found(tmp_path: Path, planted: Seed) -> None:
    check_seed(tmp_path, planted)


@pytest.mark.parametrize("look_alike", LOOK_ALIKES, ids=str)
def test_good_references_are_not(tmp_path: Path, look_alike: Seed) -> None:
    check_clean(tmp_path, look_alike)
