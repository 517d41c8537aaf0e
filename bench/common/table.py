"""Measured seconds and promises as a Markdown file, the same lines for the terminal."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Promise:
    """``value`` of ``text`` has to be at most (or, with ``at_least``, at least) ``limit``."""

    text: str
    value: float
    limit: float
    unit: str = "s"
    at_least: bool = False

    @property
    def kept(self) -> bool:
        """Whether the promise holds."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(frozen=True)
class Report:
    """A table of one comparison: what was measured and how, rows of seconds, promises, machine."""

    title: str
    how: str
    command: str
    seconds: Mapping[str, Sequence[float]]  # by row
    reference: Mapping[str, str]  # row to the row that its ratio refers to
    promises: Sequence[Promise]
    foot: Sequence[str]
    unit: str = "Seconds"  # of ``seconds``, as the table says it

    @property
    def kept(self) -> bool:
        """Whether every promise holds."""
        return all(promise.kept for promise in self.promises)

    def markdown(self) -> str:
        """The whole file."""
        how = textwrap.fill(self.how, 100, break_long_words=False, break_on_hyphens=False)
        lines = [f"# {self.title}", "", how, "", f"Made by `{self.command}`.", ""]
        lines += grid(
            ["", "median", "min", "max", "spread", "rounds", "ratio of medians"],
            [self._row(name, values) for name, values in self.seconds.items()],
        )
        lines += [
            "",
            f"{self.unit}; spread is the distance of the quartiles over the median.",
            "",
        ]
        rows = [
            [
                promise.text,
                f"{promise.value:.3g} {promise.unit}".strip(),
                f"{'≥' if promise.at_least else '≤'} {promise.limit:.3g} {promise.unit}".strip(),
                "yes" if promise.kept else "**no**",
            ]
            for promise in self.promises
        ]
        lines += grid(["promise", "measured", "limit", "kept"], rows)
        lines += ["", *(f"- {line}" for line in self.foot), ""]
        return "\n".join(lines)

    def _row(self, name: str, values: Sequence[float]) -> list[str]:
        middle = statistics.median(values)
        several = values if len(values) > 1 else [middle, middle]
        low, _, high = statistics.quantiles(several, n=4, method="inclusive")
        other = self.reference.get(name)
        ratio = f"{middle / median(self.seconds[other]):.2f}× {other}" if other else ""
        spread = f"{(high - low) / middle:.0%}" if len(values) > 1 else ""
        numbers = [f"{value:.3f}" for value in (middle, min(values), max(values))]
        return [name, *numbers, spread, str(len(values)), ratio]

    def write(self, path: Path) -> None:
        """Replace the file at ``path``."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.markdown(), encoding="utf-8")


def median(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table, its columns aligned."""
    cells = [list(head), *(list(row) for row in rows)]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(head))]
    ruled = [cells[0], ["-" * width for width in widths], *cells[1:]]
    return [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in ruled
    ]
