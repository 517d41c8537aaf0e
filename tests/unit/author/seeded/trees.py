"""Trees of benchmarks to damage: the shipped ones, established ones, the skeleton."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from check_kit import CONFIG, SKELETON
from seeded.established import CONFIGS, RUNNERS

from orchestrator.author.check import Finding, check_tree

SHIPPED = Path(__file__).resolve().parents[4] / "benchmark"
Change = tuple[str, str]
_MARK = "\0"


@dataclass(frozen=True)
class Seed:
    """A fault: ``changes`` of an operator's runner, and the line on which ``rule`` finds it.

    ``line``: a piece of text of that line, whose first occurrence counts; by default the first
    line of what the first change puts in. ``config``: keys of the config that are changed.
    """

    rule: str
    operator: str
    changes: tuple[Change, ...]
    line: str | None = None
    config: tuple[tuple[str, object], ...] = ()

    def __str__(self) -> str:
        new = (self.line or self.changes[0][1]).strip().replace("\n", " ")
        return f"{self.operator}: {new[:60]}"


def seed(
    rule: str,
    operator: str,
    *changes: Change,
    line: str | None = None,
    config: dict[str, object] | None = None,
) -> Seed:
    """A seed, written shortly."""
    return Seed(rule, operator, changes, line, tuple((config or {}).items()))


def runner_of(operator: str) -> str:
    """The clean runner: ``shipped:x`` is the shipped one where an established one has its name."""
    if operator == "my_op":
        return SKELETON
    if operator in RUNNERS:
        return RUNNERS[operator]
    name = operator.removeprefix("shipped:")
    path = SHIPPED / "runners" / f"mcoplib_mxbenchmark_{name}_runners.py"
    return path.read_text(encoding="utf-8")


def config_of(operator: str) -> dict[str, object]:
    """Its config."""
    if operator == "my_op":
        return dict(CONFIG)
    if operator in CONFIGS:
        return dict(CONFIGS[operator])
    path = SHIPPED / "config" / f"{operator.removeprefix('shipped:')}.json"
    found: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    return found


def damaged(operator: str, changes: tuple[Change, ...]) -> str:
    """The runner with its changes; each old text must be there exactly once."""
    return _damaged(operator, changes).replace(_MARK, "")


def _damaged(operator: str, changes: tuple[Change, ...]) -> str:
    """The same with a mark where the first change begins."""
    text = runner_of(operator)
    for number, (old, new) in enumerate(changes):
        assert text.count(old) == 1, f"{operator}: {old!r} stands {text.count(old)} times"
        text = text.replace(old, new if number else _MARK + new)
    return text


def plant(
    folder: Path,
    operator: str,
    changes: tuple[Change, ...] = (),
    config: tuple[tuple[str, object], ...] = (),
) -> Path:
    """Write a tree with the one benchmark; returns its folder."""
    name = operator.removeprefix("shipped:")
    for part in ("config", "runners"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    values = {**config_of(operator), **dict(config)}
    (folder / "config" / f"{name}.json").write_text(json.dumps(values, indent=4) + "\n")
    runner = folder / "runners" / f"mcoplib_mxbenchmark_{name}_runners.py"
    runner.write_text(damaged(operator, changes), encoding="utf-8")
    script = folder / "mcoplib_mxbenchmark_ops.py"
    script.write_text(f'SUPPORTED_OPERATORS = [\n    "{name}",\n]\n')
    return folder


def line_of(planted: Seed) -> int:
    """The number of the line, from 1, that a fault is to be found on."""
    text, piece = _damaged(planted.operator, planted.changes), planted.line
    if piece is None:
        at, piece = text.index(_MARK), planted.changes[0][1]
    else:
        text = text.replace(_MARK, "")
        at = text.index(piece)
    at += len(piece) - len(piece.lstrip())
    return text.count("\n", 0, at) + 1


def check_seed(folder: Path, planted: Seed) -> list[Finding]:
    """Plant a fault and assert that its rule, and no other one, finds it on its line."""
    plant(folder, planted.operator, planted.changes, planted.config)
    findings = check_tree(folder)
    line = line_of(planted)
    told = [f"{finding.at.line} {finding.rule}: {finding.message}" for finding in findings]
    assert [(finding.rule, finding.at.line) for finding in findings] == [(planted.rule, line)], told
    return findings


def check_clean(folder: Path, look_alike: Seed) -> None:
    """Plant what only looks like a fault of ``rule``, and assert that nothing is found."""
    plant(folder, look_alike.operator, look_alike.changes, look_alike.config)
    assert [str(finding) for finding in check_tree(folder)] == []
