"""A benchmark tree to spoil: the real harness and front doors, operators of the test's own."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[3]
BENCHMARK = REPOSITORY / "benchmark"


@dataclass
class Ran:
    """What a front door did."""

    code: int
    out: str
    err: str


@dataclass
class Tree:
    """A benchmark folder with operators of the test's own."""

    root: Path
    env: dict[str, str] = field(default_factory=lambda: {"CUDA_VISIBLE_DEVICES": ""})

    def add(self, op: str, config: dict[str, Any] | str, runner: str) -> None:
        """Write an operator and put it on the whitelist."""
        text = config if isinstance(config, str) else json.dumps(config)
        (self.root / "config" / f"{op}.json").write_text(text)
        (self.root / "runners" / f"mcoplib_mxbenchmark_{op}_runners.py").write_text(runner)
        self.list(op)

    def list(self, op: str) -> None:
        """Put ``op`` on the whitelist only."""
        door = self.root / "mcoplib_mxbenchmark_ops.py"
        start = "SUPPORTED_OPERATORS = ["
        door.write_text(door.read_text().replace(start, f'{start}\n    "{op}",'))

    def run(self, *args: str, script: str = "mcoplib_mxbenchmark_ops.py", before: str = "") -> Ran:
        """Run a front door in a process of its own; ``before`` is Python executed first."""
        command = [sys.executable, script, *args]
        if before:
            start = f"import sys, runpy; sys.argv = {[script, *args]!r}; {before}; "
            start += f"sys.path.insert(0, ''); runpy.run_path({script!r}, run_name='__main__')"
            command = [sys.executable, "-c", start]
        done = subprocess.run(
            command,
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, **self.env, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        return Ran(done.returncode, done.stdout, done.stderr)


def make_tree(root: Path) -> Tree:
    """Lay a tree out: the harness as it is, no operators but the repository's own."""
    root.mkdir()
    for name in ("config", "runners"):
        shutil.copytree(BENCHMARK / name, root / name)
    for script in BENCHMARK.glob("*.py"):
        shutil.copy(script, root)
    (root / "harness").symlink_to(BENCHMARK / "harness")
    return Tree(root)


def records_of(path: Path) -> list[dict[str, Any]]:
    """The records of a file; each line has to be strict JSON."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


def rows_of(path: Path) -> list[list[str]]:
    """The rows of a CSV, header included."""
    with path.open(newline="") as file:
        return list(csv.reader(file))
