"""The tree that is checked: its whitelist, the names its files have, what is known of operators."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.author.check.finding import At, Edit
from orchestrator.author.check.known import KnownOperators
from orchestrator.author.check.reading import UnreadableError, read
from orchestrator.errors import TreeError
from orchestrator.inventory.spelling import near
from orchestrator.suites import whitelist
from orchestrator.suites.mcoplib import SCRIPT, SYNC_FOLDERS

if TYPE_CHECKING:
    from orchestrator.author.facts import Operator

RUNNER_FILE = re.compile(r"mcoplib_mxbenchmark_(.+)_runners\.py")
Known = Callable[[str], Sequence["Operator"]]


class CheckedTree:
    """``folder`` holds the front door, ``config/`` and ``runners/``.

    ``known`` gives what sources and libraries say of an operator's name; None: none were given.
    """

    def __init__(self, folder: Path, known: Known | None = None) -> None:
        self.folder = folder
        self.script = folder / SCRIPT
        self.sourced = known is not None
        self.asked: frozenset[str] | None = None  # None: all there are
        self._known = known
        self._memory: dict[str, Sequence[Operator]] = {}
        self._here = Path.cwd()

    def shown(self, path: Path) -> str:
        """``path`` as it is told: from the current folder where it lies below it."""
        try:
            return str(path.absolute().relative_to(self._here))
        except ValueError:
            return str(path)

    def known(self, name: str) -> Sequence[Operator]:
        """What is known of operators called ``name``, of whatever namespace."""
        if self._known is None:
            return ()
        if name not in self._memory:
            self._memory[name] = self._known(name)
        return self._memory[name]

    @cached_property
    def known_names(self) -> Sequence[str]:
        """The names of all operators that sources and libraries have."""
        return sorted(self._known.names()) if isinstance(self._known, KnownOperators) else ()

    @cached_property
    def _script_text(self) -> str | UnreadableError:
        try:
            return read(self.script, self.shown(self.script))
        except UnreadableError as error:
            return error

    @property
    def script_text(self) -> str:
        """The front door's text; empty where it cannot be read."""
        return self._script_text if isinstance(self._script_text, str) else ""

    @cached_property
    def _listed(self) -> list[tuple[str, At]] | UnreadableError:
        if isinstance(self._script_text, UnreadableError):
            return self._script_text
        shown = self.shown(self.script)
        try:
            elements = whitelist.literal(self._script_text, shown).elts
            names = whitelist.names(self._script_text, shown)
        except TreeError as error:
            return UnreadableError.of(error, shown)
        return [
            (name, At(shown, element.lineno, element.col_offset + 1))
            for name, element in zip(names, elements, strict=True)
        ]

    @property
    def problem(self) -> UnreadableError | None:
        """Why there is no whitelist that can be read."""
        return self._listed if isinstance(self._listed, UnreadableError) else None

    @property
    def listed(self) -> list[tuple[str, At]]:
        """The whitelist's entries in its order, each with its place."""
        return self._listed if isinstance(self._listed, list) else []

    @cached_property
    def listed_names(self) -> set[str]:
        """The names in the whitelist."""
        return {name for name, _ in self.listed}

    @cached_property
    def listing_all(self) -> Edit | None:
        """The edit that lists every operator with config and runner; None where it is not safe.

        Of those that were not ``asked`` for none is listed.
        """
        both = self.configured & self.running
        if self.asked is not None:
            both &= self.asked
        ghosts = self.listed_names - self.configured - self.running
        new = [name for name in both - self.listed_names if near(name, ghosts) is None]
        try:
            grown = whitelist.add(self.script_text, new, self.shown(self.script))
        except TreeError:
            return None
        return Edit.between(self.script, self.script_text, grown)

    @cached_property
    def configured(self) -> set[str]:
        """Names that have a config."""
        found = _children(self.folder / SYNC_FOLDERS[0])
        return {path.name[: -len(".json")] for path in found if path.name.endswith(".json")}

    @cached_property
    def running(self) -> set[str]:
        """Names that have a runner."""
        matches = (RUNNER_FILE.fullmatch(path.name) for path in self.runner_files)
        return {match[1] for match in matches if match}

    @cached_property
    def runner_files(self) -> list[Path]:
        """Everything in the folder of runners, in order."""
        return _children(self.folder / SYNC_FOLDERS[1])

    @cached_property
    def names(self) -> list[str]:
        """All operators of which there is anything."""
        return sorted(self.listed_names | self.configured | self.running)


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:  # told by the files that are missing in it
        return []
