"""``--fix``: make the edits that findings bring along, as far as they are proven harmless.

Edits of one round that touch the same characters wait for the next, which looks anew. A file whose
text would no longer parse, or has changed since it was read, stays as it is, as does one that lies
elsewhere, behind a link out of the tree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.author.check.finding import Edit, Finding
from orchestrator.author.check.reading import UnreadableError, out_of_place, read
from orchestrator.errors import TreeError
from orchestrator.results.files import replace
from orchestrator.suites import whitelist
from orchestrator.suites.mcoplib import SCRIPT

_MOST_ROUNDS = 10


@dataclass
class Mended:
    """What was changed: the findings that are gone, those that are left, the files."""

    left: list[Finding]
    mended: list[Finding] = field(default_factory=list)
    files: tuple[Path, ...] = ()

    @property
    def kept(self) -> dict[Path, str]:
        """Files whose edits were not made since they are not the tree's own, and why."""
        paths = dict.fromkeys(one.edit.path for one in self.left if one.edit is not None)
        reasons = {path: out_of_place(path, _tree_of(path)) for path in paths}
        return {path: why for path, why in reasons.items() if why is not None}


def mend(findings: list[Finding], again: Callable[[], list[Finding]]) -> Mended:
    """Make the edits of ``findings``; ``again`` looks at the tree anew.

    Raises ``TreeError`` when a file cannot be written.
    """
    done = Mended(findings)
    files: dict[Path, None] = {}
    for _ in range(_MOST_ROUNDS):
        by_file: dict[Path, list[Edit]] = {}
        for finding in done.left:
            if finding.edit is not None:
                by_file.setdefault(finding.edit.path, []).append(finding.edit)
        made: set[Edit] = set()
        for path, edits in by_file.items():
            some = _edit_file(path, edits)
            made |= some
            if some:
                files[path] = None
        if not made:
            break
        done.mended += [one for one in done.left if one.edit in made]
        done.left = again()
    done.files = tuple(files)
    return done


def _edit_file(path: Path, edits: Sequence[Edit]) -> set[Edit]:
    """Make those edits of one file that do not touch each other; returns them."""
    if out_of_place(path, _tree_of(path)) is not None:
        return set()
    try:
        text = read(path, str(path))
    except UnreadableError:
        return set()
    chosen: list[Edit] = []
    for edit in sorted(set(edits), key=lambda one: (one.start, one.end, one.after)):
        behind = not chosen or edit.start > chosen[-1].end
        if behind and text[edit.start : edit.end] == edit.before:
            chosen.append(edit)
    changed = text
    for edit in reversed(chosen):
        changed = changed[: edit.start] + edit.after + changed[edit.end :]
    if not chosen or not _parses(path, changed):
        return set()
    replace(path, changed.encode("utf-8"))
    return set(chosen)


def _tree_of(path: Path) -> Path:
    """The whitelist is in the tree itself, all else one folder below."""
    return path.parent if path.name == SCRIPT else path.parents[1]


def _parses(path: Path, text: str) -> bool:
    try:
        if path.suffix == ".json":
            return isinstance(json.loads(text), dict)
        whitelist.parse(text, str(path))
    except (TreeError, ValueError, RecursionError):
        return False
    return True
