"""One Python file of the test's tree: its text, its top-level definitions, the files it imports.

Files are hostile text: bounded in size, decoded as they say they are encoded, parsed, never run.
"""

from __future__ import annotations

import ast
import io
import stat
import sys
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os.path import normpath, relpath
from pathlib import Path

from orchestrator.author.facts import Place
from orchestrator.author.trial.effects import changes
from orchestrator.author.trial.scopes import binds
from orchestrator.author.trial.well_known import Platform
from orchestrator.errors import TreeError
from orchestrator.suites.whitelist import parse

_LARGEST = 4 << 20
_UPWARDS = 4  # how many folders above the test an absolute import is looked for in
# Never looked for in the tree: what a folder of such a name holds is not what `import` means.
NOT_LOCAL = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "triton", "pytest"}


@dataclass(frozen=True)
class Imported:
    """A name that an import statement binds: ``from module import attribute as name``.

    ``attribute`` None: the module itself; ``*``: whatever it defines. ``level``: leading dots.
    """

    module: str
    attribute: str | None
    level: int

    @property
    def path(self) -> str:
        """Dotted: ``mcoplib.op``."""
        return f"{self.module}.{self.attribute}".strip(".") if self.attribute else self.module


@dataclass(eq=False)
class Source:
    """A parsed file. ``shown``: its path as the user named it, or below what the user named."""

    path: Path
    shown: str
    text: str
    tree: ast.Module
    _files: dict[Path, Source | None] = field(repr=False)
    _roots: tuple[Path, ...] = field(default=(), repr=False)  # where packages are looked for, too

    def place(self, node: ast.AST) -> Place:
        """Where ``node`` stands."""
        return Place(self.shown, getattr(node, "lineno", 1))

    @cached_property
    def lines(self) -> list[str]:
        """The text's lines, as ``ast`` numbers them."""
        return io.StringIO(self.text, newline=None).read().split("\n")

    @cached_property
    def definitions(self) -> dict[str, list[ast.stmt]]:
        """Top-level statements by the names they bind, or change in place, in order.

        Of ``if``, ``try`` and ``with`` at the top level the whole statement defines its names.
        """
        found: dict[str, list[ast.stmt]] = {}
        for node in self.tree.body:
            if _is_main(node):
                continue
            whole = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            for name in binds(node) if whole else {**binds(node), **changes(node)}:
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def imports(self) -> dict[str, Imported]:
        """Names that imports bind at the top level, those in ``try`` and ``if`` blocks too."""
        return {
            name: imported
            for node in self.tree.body
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            for name, imported in imported_names(node).items()
        }

    def main(self) -> list[ast.stmt]:
        """Statements below ``if __name__ == "__main__"``."""
        return [
            s
            for node in self.tree.body
            if isinstance(node, ast.If) and _is_main(node)
            for s in node.body
        ]

    def local(self, imported: Imported) -> tuple[Source, str | None] | None:
        """The file an import leads to, and the name to look for in it; None: not in the tree."""
        if not imported.level and imported.module.partition(".")[0] in NOT_LOCAL:
            return None
        if imported.attribute and imported.attribute != "*":
            inside = self._find(imported.path, imported.level)
            if inside is not None:
                return inside, None
        found = self._find(imported.module, imported.level)
        return None if found is None else (found, imported.attribute)

    def _find(self, module: str, level: int) -> Source | None:
        here = self.path.parent
        if level:
            bases = [here.joinpath(*[".."] * (level - 1))]
        else:
            bases = [here, *list(here.parents)[:_UPWARDS], *self._roots]
        parts = [part for part in module.split(".") if part]
        for base in bases:
            stem = base.joinpath(*parts)
            for candidate in (stem.with_name(stem.name + ".py"), stem / "__init__.py"):
                if parts or candidate.name == "__init__.py":
                    found = self._open(candidate)
                    if found is not None:
                        return found
        return None

    def conftest(self) -> Source | None:
        """The nearest ``conftest.py`` beside the file or above it."""
        for base in [self.path.parent, *list(self.path.parents)[1:_UPWARDS]]:
            found = self._open(base / "conftest.py")
            if found is not None and found is not self:
                return found
        return None

    def _open(self, path: Path) -> Source | None:
        try:
            real = path.resolve()
            if real == self.path or not stat.S_ISREG(real.stat().st_mode):
                return None
        except (OSError, RuntimeError, ValueError):
            return None
        if real not in self._files:
            self._files[real] = None  # of a circle of imports only the first way counts
            try:
                self._files[real] = _load(real, _beside(real, self), self._files, self._roots)
            except TreeError:
                return None
        return self._files[real]


def read(path: Path, sources: Sequence[Path] = ()) -> Source:
    """Read and parse the unit test. Raises ``TreeError`` when it is no file of Python text.

    ``sources``: files and folders below which its imports are looked for, too.
    """
    files: dict[Path, Source | None] = {}
    try:
        real = path.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise _unreadable(path, error) from None
    roots = tuple(dict.fromkeys(base for each in sources for base in _bases(each)))
    files[real] = source = _load(real, str(path), files, roots)
    return source


def _bases(source: Path) -> list[Path]:
    """Folders that a package of a source may lie in: the source, and what is around packages."""
    try:
        folder = source.resolve()
        folder = folder if folder.is_dir() else folder.parent
        found = [folder]
        while (folder / "__init__.py").is_file() and len(found) <= 2 * _UPWARDS:
            folder = folder.parent
            found.append(folder)
    except (OSError, RuntimeError, ValueError):
        return []
    return found


def _load(
    path: Path, shown: str, files: dict[Path, Source | None], roots: tuple[Path, ...] = ()
) -> Source:
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise TreeError("not a file", where=shown, hint="name the unit test's .py file")
        if facts.st_size > _LARGEST:
            raise TreeError(
                f"{facts.st_size >> 20} MiB of Python are no unit test",
                where=shown,
                hint="name the file that tests the operator",
            )
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise _unreadable(path, error, shown) from None
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, LookupError, UnicodeDecodeError) as error:
        raise TreeError(
            f"not Python text: {error}", where=shown, hint="save the file as UTF-8"
        ) from None
    text = text.removeprefix("\ufeff")
    tree = Platform().visit(parse(text, shown))
    assert isinstance(tree, ast.Module)
    return Source(path, shown, text, tree, files, roots)


def _unreadable(path: Path, error: Exception, shown: str | None = None) -> TreeError:
    reason = getattr(error, "strerror", None) or str(error)
    return TreeError(f"cannot read: {reason}", where=shown or str(path), hint="check the path")


def _beside(path: Path, origin: Source) -> str:
    """``path`` as the user would name it, who named ``origin``."""
    return normpath(Path(origin.shown).parent / relpath(path, origin.path.parent))


def _is_main(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
    )


def imported_names(node: ast.AST) -> dict[str, Imported]:
    """Names bound by the import statements in ``node``, nested functions included."""
    found: dict[str, Imported] = {}
    for part in ast.walk(node):
        if isinstance(part, ast.Import):
            for alias in part.names:
                if alias.asname:
                    found[alias.asname] = Imported(alias.name, None, 0)
                else:
                    head = alias.name.partition(".")[0]
                    found[head] = Imported(head, None, 0)
        elif isinstance(part, ast.ImportFrom):
            for alias in part.names:
                name = alias.asname or alias.name
                found[name] = Imported(part.module or "", alias.name, part.level)
    return found
