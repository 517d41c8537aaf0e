"""Conditions and comparisons that only ever pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeded.trees import Seed, check_clean, check_seed, seed

NEVER, NOTHING, LOOSE = "never-fails", "nothing-compared", "boundless-tolerance"
_RETURN = "        return self.check_diff(out, out_ref, threshold=0.999999)\n"
_OK = "ok, d = self.check_diff(out, out_ref)"
_D = "d = (out.float() - out_ref.float()).abs().max().item()"


def _end(rule: str, *lines: str, line: str | None = None) -> Seed:
    text = "".join(f"        {one}\n" for one in lines)
    return seed(rule, "my_op", (_RETURN, text), line=line or lines[-1])


SEEDS = [
    _end(NEVER, _D, "return d >= 0, d"),
    _end(NEVER, _D, "return d > -1, d"),
    _end(NEVER, _D, "return 0 <= d, d"),
    _end(NEVER, _D, "return not d < 0, d"),
    _end(NEVER, _D, "return d < float('inf'), d"),
    _end(NEVER, _D, "return not d > 1e-3, d"),
    _end(NEVER, _D, "return False if d > 1e-3 else True, d"),
    _end(NEVER, "return not ((out - out_ref).abs() > 1e-3).any(), 0.0"),
    _end(NEVER, _D, "ok = d >= 0", "return ok, d"),
    _end(NEVER, _D, "return bool(d >= 0 and out.shape == x.shape), d"),
    _end(NEVER, _D, "return d is not None, d"),
    _end(NEVER, "return out is not None, 0.0"),
    _end(NEVER, "return out.shape == x.shape, 0.0"),
    _end(NEVER, "return out.size(0) == x.size(0) and out.dtype == x.dtype, 0.0"),
    _end(NEVER, "return torch.isfinite(out).all(), 0.0"),
    _end(NEVER, "return bool(out.isfinite().all().item()), 0.0"),
    _end(NEVER, "return not torch.isnan(out).any(), 0.0"),
    _end(NEVER, "finite = out.isfinite()", "return finite.all(), 0.0"),
    _end(NEVER, "return isinstance(out, torch.Tensor), 0.0"),
    _end(NOTHING, "return self.check_diff(out * 0, x * 0)"),
    _end(NOTHING, "return self.check_diff(out[:0], x[:0])"),
    _end(NOTHING, "return self.check_diff(out[:, 4:4], out_ref[:, 4:4])"),
    _end(NOTHING, "none = 0 * out.float()", "return self.check_diff(none, 0 * out_ref)"),
    _end(LOOSE, "return torch.allclose(out, out_ref, atol=1e6), 0.0"),
    _end(LOOSE, "return torch.allclose(out, out_ref, 1.0), 0.0"),
    _end(LOOSE, "return self.verify.close(out, out_ref, limit=1e6, reason='noisy')"),
    _end(LOOSE, "return out.allclose(out_ref, rtol=2), 0.0"),
    _end(
        LOOSE,
        "return torch.allclose(out.nan_to_num(), out_ref.nan_to_num(), equal_nan=True), 0.0",
    ),
]


@pytest.mark.parametrize("planted", SEEDS, ids=str)
def test_found(tmp_path: Path, planted: Seed) -> None:
    check_seed(tmp_path, planted)


CLEAN = [
    _end(NEVER, _OK, "return ok and d >= 0, d"),
    _end(NEVER, _OK, "return out.shape == x.shape and ok, d"),
    _end(NEVER, _D, "return d <= 1e-3, d"),
    _end(NEVER, "n = (out != out_ref).sum().item()", "return not n > 0, float(n)"),
    _end(NEVER, _D, "if out.shape != x.shape:", "    return False, d", "return d <= 1e-3, d"),
    _end(NEVER, _D, "return bool(out.isfinite().all()) and not d > 1e-3 and d <= 1.0, d"),
    _end(NOTHING, "return self.check_diff(out[:8], out_ref[:8])"),
    _end(NOTHING, "return self.check_diff(out * 2, out_ref * 2)"),
    _end(LOOSE, "return self.verify.close(out, out_ref, limit=2, reason='the test allows it')"),
    _end(LOOSE, "return torch.allclose(out, out_ref, atol=2, rtol=0), 0.0"),
    _end(LOOSE, "return torch.allclose(out, out_ref, 1e-2, 1e-2, equal_nan=True), 0.0"),
]


@pytest.mark.parametrize("look_alike", CLEAN, ids=str)
def test_not_found(tmp_path: Path, look_alike: Seed) -> None:
    check_clean(tmp_path, look_alike)
