"""What every workflow needs: the inventory, the chosen targets and who hears what happens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.events import Sink
from orchestrator.inventory.model import Inventory, Target
from orchestrator.push.tree import Tree, build
from orchestrator.suites.mcoplib import McoplibSuite


@dataclass(frozen=True)
class Context:
    """A working folder, its inventory, the selected targets, and the sink for events."""

    inventory: Inventory
    targets: tuple[Target, ...]
    sink: Sink

    @property
    def suite(self) -> McoplibSuite:
        """The operator suite of the working folder."""
        return McoplibSuite(self.inventory.folder / "benchmark")

    @property
    def runs(self) -> Path:
        """Where the folders of runs lie."""
        return self.inventory.folder / "runs"

    @property
    def statistics(self) -> Path:
        """Where merged CSVs and records lie."""
        return self.inventory.folder / "benchmark" / "statistics"

    def tree(self) -> Tree:
        """The tree as it is in the working folder now."""
        settings = self.inventory.push
        return build(self.inventory.folder, exclude=settings.exclude, symlinks=settings.symlinks)
