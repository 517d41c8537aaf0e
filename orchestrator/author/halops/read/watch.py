"""What an interpreter's run tells: reads of the config, sweeps, asserts, raises, dtypes.

One ``Watch`` collects of one run; the reader makes facts of it, the checks violations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from orchestrator.author.halops.facts import Place
from orchestrator.author.halops.read.values import Function


@dataclass(frozen=True)
class Read:
    """One read of a field; ``how``: ``[]``, ``get`` or ``in``. ``sure``: certainly reached."""

    name: str
    place: Place
    how: str
    sure: bool
    default: Any = None
    default_source: str | None = None


@dataclass(frozen=True)
class Broken:
    """What fails when it is reached.

    ``kind``: ``assert``, ``raise``, ``dtype`` (no attribute of torch), ``key`` (not in a dict).
    ``outcome``: True holds, False fails, None only a run shows. ``sure``: it is certainly reached.
    ``values``: known names in it. ``functions``: names of the functions it was reached through,
    ``nodes``: the identities of their nodes.
    """

    kind: str
    place: Place
    expression: str
    outcome: bool | None
    sure: bool
    branch: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    fields: frozenset[str] = frozenset()
    values: tuple[tuple[str, Any], ...] = ()
    message: str = ""
    functions: tuple[str, ...] = ()
    nodes: frozenset[int] = frozenset()

    @property
    def refuses(self) -> bool:
        """Whether the code goes no further here: all but an assert that holds or may hold."""
        return self.kind != "assert" or self.outcome is False

    @property
    def in_kernel(self) -> bool:
        """Whether it stands in the code of an op, not of the suite's core."""
        return self.place.path.startswith("kernel/")


@dataclass
class Watch:
    """Everything that one run told, in the order it was met."""

    reads: list[Read] = field(default_factory=list)
    sweeps: dict[str, Place] = field(default_factory=dict)
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    choices: dict[str, dict[str, Place]] = field(default_factory=dict)
    expands: dict[str, tuple[str, Place]] = field(default_factory=dict)
    torch_names: dict[str, Place] = field(default_factory=dict)
    looked_up: dict[str, int] = field(default_factory=dict)  # field to the dict that it indexes
    broken: list[Broken] = field(default_factory=list)
    called: dict[int, Function] = field(default_factory=dict)  # by identity of their nodes
    needed: set[int] = field(default_factory=set)  # those whose result or checks bear on the config
    spent: bool = False  # it ended before its end

    @property
    def aside(self) -> frozenset[int]:
        """Functions of the suite's core that nothing of a config bears on: timing, tables."""
        return frozenset(
            node
            for node, function in self.called.items()
            if node not in self.needed and not function.source.shown.startswith("kernel/")
        )
