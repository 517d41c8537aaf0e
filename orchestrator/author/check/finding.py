"""What a rule says: a place, a sentence, what to do, and sometimes the edit that does it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, order=True)
class At:
    """A place in a file: its path as shown to the user, line and column from 1."""

    path: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Edit:
    """Characters ``start`` to ``end`` of ``path``'s text (as read, without a change of line ends).

    ``before`` is what stands there, so that an edit never lands in a text that has changed.
    """

    path: Path
    start: int
    end: int
    before: str
    after: str

    @classmethod
    def between(cls, path: Path, old: str, new: str) -> Edit:
        """The smallest edit that turns the text ``old`` of ``path`` into ``new``."""
        shortest = min(len(old), len(new))
        head = 0
        while head < shortest and old[head] == new[head]:
            head += 1
        tail = 0
        while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
            tail += 1
        end = len(old) - tail
        return cls(path, head, end, old[head:end], new[head : len(new) - tail])


@dataclass(frozen=True)
class Hit:
    """One thing that a rule found: ``message`` is one sentence without a full stop.

    ``fix``: what to do here, where that is more than the rule's own sentence. ``anchors``: lines of
    the runner at which an ignore comment silences it as well, for what stands in a JSON file.
    """

    at: At
    message: str
    fix: str | None = None
    edit: Edit | None = None
    anchors: tuple[int, ...] = ()


@dataclass(frozen=True)
class Finding:
    """A hit with the rule that it breaks; ``operator`` is None for the tree as a whole."""

    at: At
    rule: str
    severity: Severity
    message: str
    why: str
    fix: str
    operator: str | None = None
    edit: Edit | None = None
    anchors: tuple[int, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"{self.at}: {self.severity}[{self.rule}]: {self.message}; {self.fix}"
