"""Calls against sources: names that nothing registers, results that no operator returns."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeded.trees import Seed, line_of, plant, seed

from orchestrator.author.check import check_tree
from orchestrator.author.check.known import known_operators

UNKNOWN, NOTHING = "unknown-operator", "returns-nothing"
_CALL = "        torch.ops._C.my_op(x, y, out)\n"
_LAUNCH = "dev_id, torch.ops._C.my_op, x"
_SOURCE = """TORCH_LIBRARY(_C, ops) {
  ops.def("my_op(Tensor x, Tensor y, Tensor! out) -> ()");
  ops.def("another(Tensor x) -> Tensor");
}
"""


def _used(text: str) -> Seed:
    return seed(NOTHING, "my_op", (_CALL, f"        {text.format(_CALL.strip())}\n"))


SEEDS = [
    seed(UNKNOWN, "my_op", (_CALL, _CALL.replace("my_op", "my_opp"))),
    seed(UNKNOWN, "my_op", (_LAUNCH, _LAUNCH.replace("my_op", "my_ops"))),
    seed(UNKNOWN, "my_op", (_LAUNCH, 'dev_id, getattr(torch.ops._C, "my_po"), x')),
    _used("out = {}"),
    _used("self.out, _ = {}"),
    _used("out.copy_({})"),
    _used("first = {}[0]"),
]
CLEAN = [
    _used("{}"),
    seed(UNKNOWN, "my_op", (_CALL, _CALL.replace("my_op", "quite_other"))),
    seed(UNKNOWN, "my_op", (_CALL, _CALL.replace("_C.my_op", "other_library.my_opp"))),
    seed(UNKNOWN, "my_op", (_CALL, "        out = torch.ops._C.another(x)\n")),
]


def _found(folder: Path, planted: Seed) -> list[tuple[str, int, str]]:
    source = folder / "ops.cpp"
    source.write_text(_SOURCE)
    tree = plant(folder / "benchmark", planted.operator, planted.changes)
    found = check_tree(tree, known=known_operators([source], []))
    return [(f.rule, f.at.line, f.fix) for f in found if f.rule in (UNKNOWN, NOTHING)]


@pytest.mark.parametrize("planted", SEEDS, ids=str)
def test_found(tmp_path: Path, planted: Seed) -> None:
    (found,) = _found(tmp_path, planted)
    assert found[:2] == (planted.rule, line_of(planted))
    assert "my_op" in found[2]


@pytest.mark.parametrize("look_alike", CLEAN, ids=str)
def test_not_found(tmp_path: Path, look_alike: Seed) -> None:
    assert _found(tmp_path, look_alike) == []
