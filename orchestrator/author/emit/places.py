"""Where something was read, as a runner may say it: from the sources' own folder.

A runner is shared; paths of the machine that it was written on say nothing elsewhere, and the same
operator has to come out the same wherever its sources lie.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.author.facts import Operator, Place, Trial


def from_roots(operator: Operator, trial: Trial, roots: Sequence[Path]) -> tuple[Operator, Trial]:
    """Both with all their places relative to the root that holds them."""

    def moved(place: Place) -> Place:
        return Place(shown(place.path, roots), place.line)

    return _operator(operator, moved), _trial(trial, moved)


def shown(path: str, roots: Sequence[Path]) -> str:
    """``path`` from the innermost of ``roots`` that holds it.

    Where none does: as it is when it leads downwards, else the file and its folder.
    """
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - of links, the path that was named
    inner = [Path(os.path.abspath(root)) for root in roots]  # noqa: PTH100
    holding = [root for root in inner if root in absolute.parents]
    if holding:
        return absolute.relative_to(max(holding, key=lambda root: len(root.parts))).as_posix()
    if not Path(path).is_absolute() and ".." not in Path(path).parts:
        return Path(path).as_posix()
    return "/".join(absolute.parts[-2:]).lstrip("/")


def _operator(operator: Operator, moved: Callable[[Place], Place]) -> Operator:
    return replace(
        operator,
        constraints=tuple(replace(c, place=moved(c.place)) for c in operator.constraints),
        sources=tuple(map(moved, operator.sources)),
        allocates=tuple(map(moved, operator.allocates)),
        todos=tuple(replace(t, place=t.place and moved(t.place)) for t in operator.todos),
    )


def _trial(trial: Trial, moved: Callable[[Place], Place]) -> Trial:
    return replace(
        trial,
        place=moved(trial.place),
        parameters=tuple(replace(p, place=moved(p.place)) for p in trial.parameters),
        outputs=tuple(replace(o, place=moved(o.place)) for o in trial.outputs),
        todos=tuple(replace(t, place=t.place and moved(t.place)) for t in trial.todos),
    )
