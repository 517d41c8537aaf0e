"""How long does ``mxfleet check`` take on 110 operators? Written to docs/measured/check.md.

``python bench/check.py``. The tree is made of the operators of ``benchmark/``, some of them twice
or three times under other names. Exit code 1 when the promise is broken.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common.command import table_command
from common.errors import Failed
from common.table import Promise, Report, median
from common.tools import machine

from orchestrator.suites.mcoplib import SCRIPT, McoplibSuite, files_of

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs" / "measured" / "check.md"
OPERATORS = 110
ALLOWED = 2.0
CHECK, HELP = f"check, {OPERATORS} operators", "--help"

HOW = """A whole process of `mxfleet check`, from its start to its exit, on a tree of 110 operators
with nothing to find, and `mxfleet --help`, which is what any command takes at least. Both take
turns, after one round that does not count."""


def make_tree(folder: Path, count: int) -> list[str]:
    """A tree of ``count`` operators, copies of those of the suite; returns their names."""
    suite = McoplibSuite(ROOT / "benchmark")
    shipped = suite.operators()
    names = []
    for number in range(count):
        op, copy = shipped[number % len(shipped)], number // len(shipped)
        name = f"{op}_{copy + 1}" if copy else op
        for source, target in zip(files_of(op), files_of(name), strict=True):
            (folder / target).parent.mkdir(exist_ok=True)
            (folder / target).write_bytes((suite.folder / source).read_bytes())
        names.append(name)
    rows = "".join(f'    "{name}",\n' for name in sorted(names))
    (folder / SCRIPT).write_text(f"SUPPORTED_OPERATORS = [\n{rows}]\n", encoding="utf-8")
    return names


def measure(rounds: int) -> Report:
    """Alternate both commands, ``rounds`` times after one that does not count."""
    seconds: dict[str, list[float]] = {CHECK: [], HELP: []}
    with tempfile.TemporaryDirectory(prefix="bench-check-") as folder:
        make_tree(Path(folder), OPERATORS)
        for number in range(rounds + 1):
            for way, words in ((CHECK, ["check", "--root", folder]), (HELP, ["--help"])):
                taken = _run(words)
                if number:
                    seconds[way].append(taken)
    return Report(
        title="Linting 110 operators",
        how=" ".join(HOW.split()),
        command="python bench/check.py",
        seconds=seconds,
        reference={CHECK: HELP},
        promises=[Promise("mxfleet check on 110 operators", median(seconds[CHECK]), ALLOWED)],
        foot=machine(),
    )


def _run(words: list[str]) -> float:
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *words], capture_output=True, text=True, cwd=ROOT
    )
    taken = time.monotonic() - begun
    if done.returncode:
        raise Failed(f"mxfleet {' '.join(words)} failed: {(done.stdout + done.stderr)[-2000:]}")
    return taken


if __name__ == "__main__":
    sys.exit(table_command("bench/check.py", __doc__, measure, 5, TABLE))
