"""Verdicts that pass where a comparison does not, or over none; outputs that nobody looks at."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeded.trees import Seed, check_clean, check_seed, seed

WEAK, NONE = "weak-verdict", "no-comparison"
_RETURN = "        return self.check_diff(out, out_ref, threshold=0.999999)\n"
_CHECK = "        ok, diff = self.check_diff(out, out_ref)\n"
_VERIFY = "    def run_verification"


def _end(rule: str, *lines: str, line: str | None = None) -> Seed:
    text = "".join(f"        {one}\n" for one in lines)
    return seed(rule, "my_op", (_RETURN, text), line=line or lines[-1])


_OK = _CHECK.strip()
SEEDS = [
    _end(WEAK, _OK, "return ok or diff < 1, diff"),
    _end(WEAK, _OK, "return bool(ok or diff < 1), diff"),
    _end(WEAK, _OK, "ok = ok or diff < 1", "return ok, diff", line="ok = ok or"),
    _end(WEAK, _OK, "ok |= diff < 1", "return ok, diff", line="ok |= diff"),
    _end(WEAK, _OK, "return any([ok, diff < 1]), diff"),
    _end(WEAK, "return torch.equal(out, out_ref) | (out.numel() > 0)"),
    _end(NONE, "return self.verify.verdict()", line=_VERIFY),
    _end(NONE, "out.sum()", "return self.verify.verdict()", line=_VERIFY),
    _end(NONE, "verify = self.verify", "return verify.verdict()", line=_VERIFY),
]


@pytest.mark.parametrize("planted", SEEDS, ids=str)
def test_found(tmp_path: Path, planted: Seed) -> None:
    check_seed(tmp_path, planted)


CLEAN = [
    _end(WEAK, _OK, "return ok and diff < 1, diff"),
    _end(WEAK, _OK, "return not (not ok or diff > 1), diff"),
    _end(WEAK, _OK, "limit = self.num_tokens or 1", "return ok and diff < limit, diff"),
    _end(NONE, "verify = self.verify", "verify.exact(out, out_ref)", "return verify.verdict()"),
    _end(NONE, "judge(self.verify, out, out_ref)", "return self.verify.verdict()"),
]


@pytest.mark.parametrize("look_alike", CLEAN[:4], ids=str)
def test_not_found(tmp_path: Path, look_alike: Seed) -> None:
    check_clean(tmp_path, look_alike)
