"""Runners that measure one thing and verify another, or verify what the operator never wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeded.trees import Seed, check_clean, check_seed, seed

NOTHING, OTHER = "nothing-launched", "other-operator"
UNUSED, ALONE = "output-unused", "reference-of-output"
_LAUNCH = "        return self.make_launcher(dev_id, torch.ops._C.my_op, x, y, out)\n"
_CALL = "        torch.ops._C.my_op(x, y, out)\n"
_REF = "        out_ref = _ref_my_op(x, y).to(out.dtype)\n"
_RETURN = "        return self.check_diff(out, out_ref, threshold=0.999999)\n"
_SYNC = "        torch.cuda.synchronize()\n"


def _swap(rule: str, old: str, *lines: str, line: str | None = None) -> Seed:
    text = "".join(f"        {one}\n" for one in lines)
    return seed(rule, "my_op", (old, text), line=line or lines[-1])


_CHECK = "return self.check_diff("
SEEDS = [
    _swap(NOTHING, _LAUNCH, "return lambda launch: None"),
    _swap(NOTHING, _LAUNCH, "def idle(launch):", "    pass", "return idle", line="def idle"),
    _swap(NOTHING, _LAUNCH, "nothing = lambda: None", "return self.make_launcher(dev_id, nothing)",
          line="nothing = "),
    _swap(OTHER, _LAUNCH, "return self.make_launcher(dev_id, torch.ops._C.rms, x, y, out)",
          line="torch.ops._C.my_op(x, y, out)"),
    _swap(OTHER, _CALL, "torch.ops._C.rms(x, y, out)"),
    _swap(OTHER, _CALL, "out = x + y", line="    def run_verification"),
    _swap(UNUSED, _REF, "out = x * 2", _REF.strip(), line=_CHECK),
    _swap(UNUSED, _REF, "out = x.float() + y.float()", _REF.strip(), line=_CHECK),
    _swap(UNUSED, _REF, _REF.strip(), "out.copy_(out_ref)"),
    _swap(UNUSED, _REF, _REF.strip(), "out.zero_()"),
    seed(UNUSED, "my_op", (_CALL, "        _ = torch.ops._C.my_op(x, y)\n"),
         (_SYNC, "        out = x + y\n"), line=_CHECK),
    _swap(ALONE, _REF, "ref = out * 1", "out_ref = ref / 2 * 2", line=_CHECK),
    _swap(ALONE, _REF, "out_ref = torch.where(torch.isnan(out), out, out)", line=_CHECK),
    _swap(ALONE, _REF, "out_ref = torch.from_numpy(out.cpu().numpy().copy())", line=_CHECK),
    _swap(ALONE, _REF, "out_ref = torch.stack([r for r in out])", line=_CHECK),
    _swap(ALONE, _REF, "out_ref = torch.empty_like(out)", "for i in range(self.num_tokens):",
          "    out_ref[i] = out[i]", line=_CHECK),
    _swap(ALONE, _REF, "out_ref = torch.empty_like(out)", "torch.add(out, 0, out=out_ref)",
          line=_CHECK),
    _swap(UNUSED, _REF, "x.copy_(out)", "out_ref = x", line="x.copy_(out)"),
]  # fmt: skip


@pytest.mark.parametrize("planted", SEEDS, ids=str)
def test_found(tmp_path: Path, planted: Seed) -> None:
    check_seed(tmp_path, planted)


CLEAN = [
    _swap(NOTHING, _LAUNCH, "return lambda launch: torch.ops._C.my_op(x, y, out)"),
    _swap(OTHER, _CALL, "torch.ops._C.my_op.default(x, y, out)"),
    _swap(UNUSED, _REF, "out = out.float()", _REF.strip()),
    # In place: the input is the output, and there is a buffer that nobody looks at.
    seed(
        UNUSED,
        "my_op",
        (_CALL, "        out_ref = _ref_my_op(x, y)\n" + _CALL),
        (_REF, ""),
        (_RETURN, "        return self.check_diff(x, out_ref)\n"),
    ),
    # Called twice: the second run begins with what the first one left, taken away.
    _swap(UNUSED, _CALL, "torch.ops._C.my_op(x, y, out)", "out.zero_()", _CALL.strip()),
    # A property of the output besides the comparison with the reference.
    seed(
        ALONE,
        "my_op",
        (
            _RETURN,
            "        self.verify.exact(out, out.clamp(-9, 9))\n"
            "        self.verify.cosine(out, out_ref)\n"
            "        return self.verify.verdict()\n",
        ),
    ),
]


@pytest.mark.parametrize("look_alike", CLEAN, ids=str)
def test_not_found(tmp_path: Path, look_alike: Seed) -> None:
    check_clean(tmp_path, look_alike)
