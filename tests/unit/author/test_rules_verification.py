"""Verification that fools itself by its data, its comparisons or its exceptions."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeded.trees import Seed, check_clean, check_seed, damaged, plant, seed

from orchestrator.author.check import check_tree
from orchestrator.author.check.fix import mend

SEED, UNSEEDED = "verification-seed", "verification-unseeded"
SWALLOWED, NONE, IGNORED = "swallowed-exception", "no-comparison", "comparison-ignored"
_DATA = "        x, y, out = self._prepare(dev_id, seed=7)        # 用与 benchmark 不同的 seed\n"
_RETURN = "        return self.check_diff(out, out_ref, threshold=0.999999)\n"
_CALL = "        torch.ops._C.my_op(x, y, out)\n        torch.cuda.synchronize()\n"
_GENERATOR = "        gen = torch.Generator(device=dev).manual_seed(seed)\n"
_RMS_DATA = "        x, weight, out = self._prepare(dev_id, seed=7)\n"
_RMS_END = "        self.synchronize(dev_id)\n        return self._check(out, x, weight)\n"


def _data(*lines: str, line: str | None = None) -> Seed:
    """The skeleton with the verification's data made otherwise, with the benchmark's seed."""
    text = "".join(f"        {one}\n" for one in lines)
    return seed(SEED, "my_op", (_DATA, text), line=line)


def _end(rule: str, *lines: str, line: str | None = None) -> Seed:
    """The skeleton with another end of the verification."""
    text = "".join(f"        {one}\n" for one in lines)
    return seed(rule, "my_op", (_RETURN, text), line=line or lines[0])


def _body(rule: str, text: str, line: str) -> Seed:
    """The skeleton with another call and end."""
    return seed(
        rule,
        "my_op",
        (
            _CALL + "        out_ref = _ref_my_op(x, y).to(out.dtype)\n" + _RETURN,
            text,
        ),
        line=line,
    )


_TRY = """        try:
            torch.ops._C.my_op(x, y, out)
            return self.check_diff(out, _ref_my_op(x, y))
"""

SEEDS = [
    _data("x, y, out = self._prepare(dev_id, seed=42)"),
    _data("x, y, out = self._prepare(dev_id)"),
    _data("x, y, out = self._prepare(dev_id, 42)"),
    _data("seed = 42", "x, y, out = self._prepare(dev_id, seed)"),
    _data("x, y, out = self._prepare(dev_id=dev_id)"),
    _data("x, y, out = self._prepare(dev_id, seed=40 + 2)"),
    seed(SEED, "rms_norm", (_RMS_DATA, _RMS_DATA.replace("7", "42"))),
    seed(SEED, "silu_and_mul", ("self._prepare(dev_id, seed=7)", "self._prepare(dev_id, seed=42)")),
    seed(
        SEED,
        "gptq_shuffle",
        ("original = self._prepare(dev_id, seed=7)", "original = self._prepare(dev_id, 42)"),
    ),
    seed(
        SEED,
        "concat_and_cache_mla",
        (
            "self._prepare(dev_id, 7, num_tokens + 3, num_blocks)",
            "self._prepare(dev_id, 42, num_tokens + 3, num_blocks)",
        ),
        line="kv_c, k_pe, kv_cache = self._prepare",
    ),
    seed(SEED, "awq_dequantize", ("self.generator(dev_id, 7)", "self.generator(dev_id, 42)")),
    seed(
        SEED,
        "fused_add_rms",
        ("self._data(dev_id, seed=2024)", "self._data(dev_id, seed=self.SEED)"),
    ),
    seed(SEED, "fused_add_rms", ("self._data(dev_id, seed=2024)", "self._data(dev_id)")),
    seed(
        SEED,
        "paged_attention_v1",
        ("self._prepare(dev_id, self.seed + 1)", "self._prepare(dev_id, self.seed)"),
    ),
    seed(
        SEED,
        "paged_attention_v1",
        ("self._prepare(dev_id, self.seed + 1)", "self._prepare(dev_id, 0)"),
    ),
    seed(
        SEED,
        "w4_gemm",
        (
            "gen = torch.Generator(device=device).manual_seed(1)",
            "gen = torch.Generator(device=device).manual_seed(0)",
        ),
        line="gen = torch.Generator(device=device).manual_seed(0)",
    ),
    seed(
        SEED,
        "gate",
        ("class GateRunner", "SEED = 1234\n\n\nclass GateRunner"),
        ("gating = self._gating(dev, 4321)", "gating = self._gating(dev, SEED)"),
        line="gating = self._gating(dev, SEED)",
    ),
    # One generator for both.
    seed(
        SEED,
        "w4_gemm",
        (
            'self.group = config.get("group_size", 128)\n',
            'self.group = config.get("group_size", 128)\n'
            '        self.gen = torch.Generator(device="cuda").manual_seed(3)\n',
        ),
        (
            "            gen = torch.Generator(device=device)\n            gen.manual_seed(0)\n"
            "            self.data = self.make(device, gen)\n",
            "            self.data = self.make(device, self.gen)\n",
        ),
        (
            "        gen = torch.Generator(device=device).manual_seed(1)\n"
            "        a, packed, scales, zeros = self.make(device, gen)\n",
            "        a, packed, scales, zeros = self.make(device, self.gen)\n",
        ),
        line="a, packed, scales, zeros = self.make(device, self.gen)",
    ),
    seed(
        UNSEEDED,
        "my_op",
        (
            _DATA,
            "        x = torch.randn(8, 8, device='cuda')\n"
            "        y, out = x + 1, torch.empty_like(x)\n",
        ),
    ),
    seed(
        UNSEEDED,
        "gate",
        (", dtype=self.dtype, generator=gen)", ", dtype=self.dtype)"),
        line="return torch.randn(self.tokens",
    ),
    seed(
        UNSEEDED,
        "fused_add_rms",
        ("        torch.manual_seed(seed)\n", ""),
        line="x = torch.randn(self.num_tokens",
    ),
    seed(
        UNSEEDED,
        "w4_gemm",
        ("torch.Generator(device=device).manual_seed(1)", "torch.Generator(device=device)"),
        line="a = torch.randn(self.m",
    ),
    seed(
        UNSEEDED,
        "my_op",
        (
            _DATA,
            "        x = torch.empty(8, 8, device='cuda').normal_()\n"
            "        y, out = x + 1, torch.empty_like(x)\n",
        ),
    ),
    _body(
        SWALLOWED,
        _TRY + "        except Exception:\n            return True, 0.0\n",
        "except Exception",
    ),
    _body(
        SWALLOWED,
        _TRY + "        except RuntimeError as e:\n            pass\n        return False, 1.0\n",
        "except RuntimeError",
    ),
    _body(SWALLOWED, _TRY + "        except:\n            return False, 1.0\n", "except:"),
    _body(
        SWALLOWED, _TRY + "        except Exception:\n            return None\n", "except Exception"
    ),
    _body(
        SWALLOWED,
        "        passed, diff = False, 1.0\n"
        "        try:\n"
        "            torch.ops._C.my_op(x, y, out)\n"
        "            passed, diff = self.check_diff(out, _ref_my_op(x, y))\n"
        "        except Exception:\n"
        "            passed = True\n"
        "        return passed, diff\n",
        "except Exception",
    ),
    _body(
        SWALLOWED,
        "        import contextlib\n\n"
        "        with contextlib.suppress(Exception):\n"
        "            torch.ops._C.my_op(x, y, out)\n"
        "        return self.check_diff(out, _ref_my_op(x, y))\n",
        "with contextlib.suppress",
    ),
    _body(
        SWALLOWED,
        "        verdict = (False, 1.0)\n"
        "        try:\n"
        "            torch.ops._C.my_op(x, y, out)\n"
        "            verdict = self.check_diff(out, _ref_my_op(x, y))\n"
        "        finally:\n"
        "            return verdict\n",
        "return verdict",
    ),
    seed(
        SWALLOWED,
        "rms_norm",
        (
            "        ref = _ref_rms_norm(x, weight, self.epsilon)\n",
            "        try:\n"
            "            ref = _ref_rms_norm(x, weight, self.epsilon)\n"
            "        except RuntimeError:\n"
            "            pass\n",
        ),
        line="except RuntimeError",
    ),
    _end(NONE, "return True, 0.0"),
    _end(NONE, "return (True, 0)"),
    _end(NONE, "passed = True", "return passed, 0.0", line="return passed, 0.0"),
    _end(NONE, "return bool(True), 0.0"),
    _end(
        NONE,
        "ok, diff = self.check_diff(out, out_ref)",
        "return ok or True, diff",
        line="return ok or True",
    ),
    seed(NONE, "rms_norm", (_RMS_END, "        return True, 0.0\n")),
    seed(
        NONE,
        "swap_blocks",
        (
            '        self.verify.exact(dst, expected, name="dst")\n'
            '        self.verify.exact(src, source, name="src")\n'
            "        return self.verify.verdict()\n\n    def verify_timed",
            "        return True, 0.0\n\n    def verify_timed",
        ),
    ),
    seed(
        NONE, "copy_blocks", ("return passed, 0.0 if passed else 1.0", "return passed or True, 0.0")
    ),
    _end(IGNORED, "self.check_diff(out, out_ref)", "return out.sum() > 0, 0.0"),
    _end(IGNORED, "_, diff = self.check_diff(out, out_ref)", "return diff < 0.5, diff"),
    _end(
        IGNORED,
        "ok, diff = self.check_diff(out, out_ref)",
        "good = self.check_diff(x, y)[0]",
        "return good, diff",
    ),
    _end(IGNORED, "torch.allclose(out, out_ref)", "return self.check_diff(out, out_ref)"),
    _end(IGNORED, "same = torch.equal(out, out_ref)", "return self.check_diff(out, out_ref)"),
    seed(
        IGNORED,
        "fused_add_rms",
        ("return ok and ok_residual, max(diff, diff_residual)", "return ok, diff"),
        line="ok_residual, diff_residual = self.check_diff",
    ),
]

LOOK_ALIKES = [
    _data("x, y, out = self._prepare(dev_id, seed=43)"),
    _data("x, y, out = self._prepare(dev_id, 42 + 1)"),
    # Nothing is known of it.
    _data("x, y, out = self._prepare(dev_id, int(self.hidden_size))"),
    # A permutation may be the same where the data is not.
    seed(
        SEED,
        "concat_and_cache_mla",
        ("gen = self.generator(dev_id, 8)", "gen = self.generator(dev_id, 43)"),
    ),
    # The global generator, seeded once.
    seed(
        UNSEEDED,
        "my_op",
        (
            _DATA,
            "        torch.manual_seed(7)\n        x = torch.randn(8, 8)\n"
            "        y, out = x + 1, x + 2\n",
        ),
    ),
    # Seeded where the runner is made, or loaded: each phase goes on with other numbers.
    *(
        seed(
            UNSEEDED,
            "fused_add_rms",
            ("        torch.manual_seed(seed)\n", ""),
            (before, before + seeding),
        )
        for before, seeding in (
            ("        self.eps = 1e-6\n", "        torch.manual_seed(0)\n"),
            ("except ImportError:\n    pass\n", "torch.manual_seed(0)\n"),
        )
    ),
    seed(
        UNSEEDED,
        "my_op",
        (_DATA, "        x = torch.ones(8, 8)\n        y, out = x + 1, torch.empty_like(x)\n"),
    ),
    _body(
        SWALLOWED,
        _TRY + "        except RuntimeError as error:\n"
        "            raise ValueError('shape') from error\n",
        "except",
    ),
    _body(
        SWALLOWED, _TRY + "        except RuntimeError:\n            return False, 1.0\n", "except"
    ),
    _body(
        SWALLOWED,
        "        try:\n            call = torch.ops._C.my_op\n        except AttributeError:\n"
        "            call = torch.ops._C.my_op_v2\n        call(x, y, out)\n"
        "        return self.check_diff(out, _ref_my_op(x, y))\n",
        "except",
    ),
    _body(
        SWALLOWED,
        "        try:\n            import torch.testing\n        except ImportError:\n"
        "            pass\n"
        "        torch.ops._C.my_op(x, y, out)\n"
        "        return self.check_diff(out, _ref_my_op(x, y))\n",
        "except",
    ),
    _end(NONE, "torch.testing.assert_close(out, out_ref)", "return True, 0.0"),
    _end(NONE, "assert torch.equal(out, out_ref)", "return True, 0.0"),
    _end(NONE, "self.assert_near(out, out_ref)", "return True, 0.0"),
    _end(
        NONE,
        "from torch.testing import compare_tensors",
        "compare_tensors(out, out_ref)",
        "return True, 0.0",
    ),
    _end(NONE, "if not torch.equal(out, out_ref):", "    return False, 1.0", "return True, 0.0"),
    _end(NONE, "passed = torch.equal(out, out_ref)", "return passed, 0.0 if passed else 1.0"),
    _end(NONE, "diff = (out - out_ref).abs().max().item()", "return diff < 1e-3, diff"),
    _end(
        IGNORED, "passed = True", "passed &= self.check_diff(out, out_ref)[0]", "return passed, 0.0"
    ),
    _end(
        IGNORED,
        "results = []",
        "results.append(self.check_diff(out, out_ref))",
        "return all(ok for ok, _ in results), 0.0",
    ),
    _end(IGNORED, "self.verify.exact(out, out_ref)", "return self.verify.verdict()"),
    _end(IGNORED, "ok, _ = self.check_diff(out, out_ref)", "return ok, 0.0 if ok else 1.0"),
]


@pytest.mark.parametrize("planted", SEEDS, ids=str)
def test_self_deception_is_found(tmp_path: Path, planted: Seed) -> None:
    check_seed(tmp_path, planted)


@pytest.mark.parametrize("look_alike", LOOK_ALIKES, ids=str)
def test_honest_verification_is_not(tmp_path: Path, look_alike: Seed) -> None:
    check_clean(tmp_path, look_alike)


def test_a_seed_written_in_verification_is_mended(tmp_path: Path) -> None:
    planted = _data("x, y, out = self._prepare(dev_id, seed=42)")
    plant(tmp_path, planted.operator, planted.changes)
    assert mend(check_tree(tmp_path), lambda: check_tree(tmp_path)).left == []
    runner = tmp_path / "runners" / "mcoplib_mxbenchmark_my_op_runners.py"
    assert runner.read_text() == damaged("my_op", planted.changes).replace(
        "seed=42)\n        t", "seed=7)\n        t"
    )


def test_a_seed_that_others_use_is_left_to_people(tmp_path: Path) -> None:
    planted = _data("x, y, out = self._prepare(dev_id)")
    plant(tmp_path, planted.operator, planted.changes)
    assert [one.edit for one in check_tree(tmp_path)] == [None]
