"""The modules of a checkout: found by name below its root, parsed once, never imported."""

from __future__ import annotations

import ast
from pathlib import Path

from orchestrator.author.halops.read.values import Source
from orchestrator.errors import TreeError
from orchestrator.suites.whitelist import parse

_LARGEST = 4 << 20  # bytes of one file


class Sources:
    """Modules by dotted name; ``root``, the benchmark folder, is first on Python's path."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._inside = root.resolve()
        self._trees: dict[Path, ast.Module] = {}

    def path_of(self, name: str) -> Path | None:
        """The file of a module below the root, None where there is none."""
        parts = self._parts(name)
        if not parts:
            return None
        folder = self.root.joinpath(*parts)
        for path in (folder / "__init__.py", folder.with_suffix(".py")):
            # A link out of the checkout is not the checkout's.
            if path.is_file() and path.resolve().is_relative_to(self._inside):
                return path
        return None

    def is_package(self, name: str) -> bool:
        """Whether it is a folder below the root, with an ``__init__.py`` or without one."""
        parts = self._parts(name)
        return bool(parts) and self.root.joinpath(*parts).is_dir()

    def _parts(self, name: str) -> list[str]:
        parts = name.split(".")
        if not all(part.isidentifier() for part in parts):
            return []
        # Named from the repository above: "benchmark.core.metrics".
        own = parts[0] == self._inside.name and not (self.root / parts[0]).is_dir()
        return parts[1:] if own and len(parts) > 1 else parts

    def load(self, name: str) -> Source | None:
        """The module, newly made of a tree parsed once; None where it is not the checkout's.

        Raises ``TreeError`` with file and line for one that is no Python.
        """
        path = self.path_of(name)
        if path is None:
            return None
        shown = str(path.relative_to(self.root))
        if path in self._trees:
            return Source(name, shown, self._trees[path])
        try:
            if path.stat().st_size > _LARGEST:
                raise TreeError("too large for a source file", where=shown)
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TreeError(f"cannot be read: {error}", where=shown) from None
        self._trees[path] = parse(text, shown)
        return Source(name, shown, self._trees[path])
