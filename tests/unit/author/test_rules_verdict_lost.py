"""Verdicts that are overwritten, or that are true whatever was compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeded.trees import Seed, check_clean, check_seed, seed

LOST = "verdict-lost"
_RETURN = "        return self.check_diff(out, out_ref, threshold=0.999999)\n"
_OK = "passed, d = self.check_diff(out, out_ref)"


def _end(*lines: str, line: str | None = None) -> Seed:
    text = "".join(f"        {one}\n" for one in lines)
    return seed(LOST, "my_op", (_RETURN, text), line=line or lines[-1])


SEEDS = [
    _end(_OK, "passed = True", "return passed, d", line="passed = True"),
    _end(
        _OK,
        "print(passed)  # mxfleet: ignore[debug-left] said once",
        "passed = True",
        "return passed, d",
        line="passed = True",
    ),
    _end(_OK, "if not passed:", "    passed = True", "return passed, d", line="passed = True"),
    _end(_OK, "passed, d = True, 0.0", "return passed, d", line="passed, d = True"),
    _end(_OK, "passed = bool(1)", "return passed, d", line="passed = bool(1)"),
    _end(
        "result = self.check_diff(out, out_ref)",
        "result = (True, result[1])",
        "return result",
        line="result = (True",
    ),
    _end(_OK, "self.last = passed", "return bool(1), d"),
    _end(_OK, "self.last = passed", "return 'ok', d"),
    _end(_OK, "return True if passed else 1, d"),
    _end(_OK, "return max(passed, True), d"),
    _end("return 1, 0.0"),
    _end("return self.check_diff(out, out_ref), 0.0"),
    _end("return bool(self.check_diff(out, out_ref)), 0.0"),
    _end("result = self.check_diff(out, out_ref)", "return result, 0.0"),
]


@pytest.mark.parametrize("planted", SEEDS, ids=str)
def test_found(tmp_path: Path, planted: Seed) -> None:
    check_seed(tmp_path, planted)


CLEAN = [
    _end("passed = True", _OK, "return passed, d"),
    _end(_OK, "if not passed:", "    return False, d", "passed = True", "return passed, d"),
    _end(
        "if out.numel():",
        f"    {_OK}",
        "else:",
        "    passed, d = True, 0.0",
        "return passed, d",
    ),
    _end(_OK, "if not passed:", "    return 0, d", "return 1, d"),
    _end(
        "passed = True",
        "for one, other in ((out, out_ref),):",
        "    same, d = self.check_diff(one, other)",
        "    passed = passed and same",
        "return passed, d",
    ),
    _end("result = self.check_diff(out, out_ref)", "return result"),
    _end("result = self.check_diff(out, out_ref)", "return result[0], result[1]"),
]


@pytest.mark.parametrize("look_alike", CLEAN, ids=str)
def test_not_found(tmp_path: Path, look_alike: Seed) -> None:
    check_clean(tmp_path, look_alike)
