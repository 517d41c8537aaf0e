"""What does `mxfleet gen op` make of source trees? Makes docs/measured/gen.md.

``python bench/gen.py``: for every operator of ``tests/unit/author/trees`` a benchmark is generated
by the command itself, linted, and run as it is with right and damaged kernels. Exit code 1 when a
promise is broken.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.signals import ends_as_interrupt
from common.table import grid
from common.tools import compiled, machine

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "unit" / "author"))

from authored import AUTHORED, Authored  # noqa: E402
from authored_work import Ran, Work  # noqa: E402

from orchestrator.author.locate import find_operators  # noqa: E402

TABLE = ROOT / "docs" / "measured" / "gen.md"
HEAD = (
    "benchmark",
    "kind",
    "framework",
    "arguments",
    "TODOs",
    "inferred",
    "errors",
    "warnings",
    "verified with",
    "passed",
    "damaged caught",
    "gen (s)",
)
HOW = """Small source trees in the layouts that operators are found in: an mcoplib checkout (`op/`,
`op/vllm/`, `op/sglang/`, pybind), vLLM's own, a Triton package, operators of torch.library; each
operator with a unit test in a hand of its own. `mxfleet gen op` runs as a process in a working
folder that lacks the operator; `mxfleet check --source` lints what it wrote. Then the runner is run
as it was written, with parameters small enough for kernels in plain Python: through the harness, on
the CPU, with a kernel that was written independently of the unit test, and with the same kernel
damaged (output untouched, scaled by 2, a NaN, a wrong row, a wrong element, exchanged rows, and
faults of the operator's own, such as a wrong head or a forgotten scale). Arguments: of the
operator; TODOs: what could not be determined, an error of `check` each, told apart from the other
errors; inferred: guesses that are marked as such. Seconds: the whole process, whose modules are
compiled."""


@dataclass
class Seen:
    """What became of one operator."""

    authored: Authored
    arguments: int
    ran: Ran
    todos: int = 0
    inferred: int = 0
    findings: Counter[str] = field(default_factory=Counter)
    verdicts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether the right kernel does."""
        return bool(self.verdicts) and self.verdicts[0]["passed"] is True

    @property
    def damaged(self) -> list[dict[str, Any]]:
        """The verdicts on damaged kernels."""
        return [line for line in self.verdicts if line.get("fault")]

    @property
    def caught(self) -> int:
        """How many of them were refused."""
        return sum(line["passed"] is False for line in self.damaged)

    @property
    def untried(self) -> dict[str, list[str]]:
        """Faults that the unit test cannot show, by why."""
        found: dict[str, list[str]] = {}
        for line in self.verdicts:
            for fault, why in line.get("harmless", {}).items():
                found.setdefault(why, []).append(fault)
        return found

    def broken(self) -> list[str]:
        """The promises that do not hold for it."""
        name, most = self.authored.name, self.authored.most_todos
        missed = [line["fault"] for line in self.damaged if line["passed"] is not False]
        return [
            *([] if self.passed else [f"{name}: the right kernel does not pass"]),
            *([f"{name}: not caught: {', '.join(missed)}"] if missed else []),
            *([f"{name}: {self.todos} TODOs, allowed {most}"] if self.todos > most else []),
            *([f"{name}: {self.findings['error']} errors"] if self.findings["error"] else []),
        ]

    def row(self) -> list[str]:
        """Its line of the table."""
        own = self.authored.tree == "torchlib"
        return [
            self.authored.name,
            self.authored.kind,
            self.authored.framework,
            str(self.arguments),
            str(self.todos),
            str(self.inferred),
            str(self.findings["error"]),
            str(self.findings["warning"]),
            "stand-in and its own code" if own else "stand-in",
            "yes" if self.passed else "**no**",
            f"{self.caught} of {len(self.damaged)}",
            f"{self.ran.seconds:.2f}",
        ]


def measure() -> list[Seen]:
    """Generate, lint and run every operator."""
    with tempfile.TemporaryDirectory(prefix="bench-gen-") as folder:
        work = Work(Path(folder, "work"), compiled(Path(folder, "compiled"))).lay_out()
        seen = []
        for authored in AUTHORED:
            print(authored.name, file=sys.stderr, flush=True)
            work.generate(authored, "--dry-run")  # compiles the modules
            one = Seen(authored, _arguments(authored), work.generate(authored))
            one.todos = len(work.todos(authored))
            one.inferred = work.runner(authored).count("# inferred")
            one.findings = _findings(work, authored)
            one.verdicts = work.judge([authored.name])
            if authored.tree == "torchlib":
                (record,) = work.measure(authored, "--samples", "5")
                one.verdicts[0]["passed"] &= record["status"] == "PASSED"
            seen.append(one)
    return seen


def _arguments(authored: Authored) -> int:
    found = find_operators(authored.operator, [authored.source], authored.test, None)
    own = [operator for operator in found if operator.framework == authored.framework]
    return len(own[0].arguments)


def _findings(work: Work, authored: Authored) -> Counter[str]:
    """Errors and warnings, without the open points: those have a column of their own."""
    words = ["check", authored.name, "--source", str(authored.source), "--output", "json"]
    events = work.mxfleet(*words).events()
    return Counter(e["severity"] for e in events if "severity" in e and e.get("rule") != "todo")


def render(seen: Sequence[Seen]) -> str:
    """The whole file."""
    seconds = [one.ran.seconds for one in seen]
    damaged = sum(len(one.damaged) for one in seen)
    broken = [problem for one in seen for problem in one.broken()]
    lines = [
        "# Generated benchmarks",
        "",
        textwrap.fill(" ".join(HOW.split()), 100, break_long_words=False, break_on_hyphens=False),
        "",
        "Made by `python bench/gen.py`.",
        "",
        f"{len(seen)} benchmarks: {sum(one.passed for one in seen)} pass with the right kernel, "
        f"{sum(one.caught for one in seen)} of {damaged} damaged kernels are caught; "
        f"{statistics.median(seconds):.2f} s each (median), at most {max(seconds):.2f} s.",
        "",
        *grid(HEAD, [one.row() for one in seen]),
        "",
        "Faults that the operator's unit test, and so its runner, cannot show:",
        "",
        *(
            f"- {one.authored.name}: {', '.join(faults)}: {why}"
            for one in seen
            for why, faults in one.untried.items()
        ),
        "",
        *([*(f"- broken: {problem}" for problem in broken), ""] if broken else []),
        *(f"- {line}" for line in machine()),
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    """Measure, write the table, print it."""
    parser = argparse.ArgumentParser(prog="bench/gen.py", description=__doc__)
    parser.add_argument("--table", type=Path, default=TABLE, metavar="FILE")
    options = parser.parse_args()
    try:
        with ends_as_interrupt():
            seen = measure()
    except KeyboardInterrupt:
        print("bench/gen.py: interrupted", file=sys.stderr)
        return 130
    options.table.write_text(render(seen), encoding="utf-8")
    print(options.table.read_text(encoding="utf-8"))
    return 1 if any(one.broken() for one in seen) else 0


if __name__ == "__main__":
    sys.exit(main())
