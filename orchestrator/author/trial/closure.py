"""The definitions that pieces of a test need to run elsewhere: helpers, constants, imports.

Followed transitively, also into local modules that the test imports; what leads out of the tree is
an import when a runner may have it, and a ``Todo`` when it is of the operator's own library.
"""

from __future__ import annotations

import ast
import copy
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping

from orchestrator.author.facts import Todo
from orchestrator.author.trial import well_known
from orchestrator.author.trial.calls import OperatorCalls
from orchestrator.author.trial.layers import bare_layer
from orchestrator.author.trial.literals import NotLiteral, evaluate
from orchestrator.author.trial.parameters import lookup_in
from orchestrator.author.trial.scopes import BUILTINS, FunctionNode, binds, reads
from orchestrator.author.trial.source import Imported, Source

_MOST_HELPERS = 12  # of a framework's own source: more is no reference but the framework
_DEVICE = re.compile(r"""(["'])cuda(:\d+)?\1""")
_SELF = re.compile(r"\bself\.(?!assert)")
_FIRST = re.compile(r"\(self(, |(?=\)))")
_PLAIN = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "triton", "scipy", "einops"}


def text_of(node: ast.stmt, source: Source) -> str:
    """A statement as the test has it, comments included, or as it has become since."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    lines = source.lines[first - 1 : node.end_lineno]
    text = textwrap.dedent("\n".join(lines)).rstrip()
    wanted = ast.dump(node)
    for made in _spellings(text):
        try:
            there = ast.parse(made).body
        except (SyntaxError, ValueError):
            continue
        if len(there) == 1 and ast.dump(there[0]) == wanted:
            return made
    return ast.unparse(node)


def _spellings(text: str) -> Iterator[str]:
    """``text``, and what it may have become by the rewriting of devices and methods."""
    yield text
    device = _DEVICE.sub("device", text).replace(".cuda()", ".to(device)")
    yield device
    yield _SELF.sub("", _FIRST.sub("(", text))


class Closure:
    """Collects what is needed; ``helpers`` can be defined in their order."""

    def __init__(
        self,
        source: Source,
        calls: OperatorCalls,
        siblings: Mapping[str, ast.stmt],
        imports: Mapping[str, Imported],
    ) -> None:
        self.helpers: list[str] = []
        self.imports: dict[str, None] = {}
        self.defined: dict[str, str] = {}  # and whose definition it is
        self.missing: dict[str, None] = {}
        self.todos: list[Todo] = []
        self._source = source
        self._calls = calls
        self._siblings = siblings
        self._local_imports = imports

    def need(self, names: Iterable[str], source: Source, place: ast.AST) -> None:
        """Collect what defines ``names`` as ``source`` sees them. ``place``: who needs them."""
        for name in names:
            self._need(name, source, place)

    def _need(self, name: str, source: Source, place: ast.AST) -> None:
        if name in self.missing:
            return
        if name in self.defined:
            own = name in source.definitions or name in source.imports or name in self._siblings
            if own and self.defined[name] != self._owner(name, source):
                self._todo(f"two different {name} are used: rename one of them", source, place)
            return
        if name in BUILTINS and name not in source.definitions:
            return
        if name in self._siblings and source is self._source:
            self.defined[name] = _key(name, source)
            self.define([self._siblings[name]], source)
            return
        imported = source.imports.get(name)
        if source is self._source and name in self._local_imports:
            imported = self._local_imports[name]
        if imported is not None:
            self._import(name, imported, source, place)
            return
        statements = source.definitions.get(name)
        if statements:
            self.defined[name] = _key(name, source)
            self.define(statements, source)
            return
        for star in (i for i in source.imports.values() if i.attribute == "*"):
            local = source.local(star)
            if local is not None and name in {**local[0].definitions, **local[0].imports}:
                self._need(name, local[0], place)
                return
        if source is not self._source:
            # Put into a helper's body from where the test calls it.
            self._need(name, self._source, place)
            return
        self.missing.setdefault(name)

    def _owner(self, name: str, source: Source) -> str:
        """Whose definition of ``name`` it is that ``source`` sees."""
        imported = source.imports.get(name)
        if imported is None or name in self._siblings:
            return _key(name, source)
        local = source.local(imported)
        if local is not None:
            return _key(local[1] or name, local[0])
        return imported.path

    # -- definitions ----------------------------------------------------------------------------

    def define(self, statements: list[ast.stmt], source: Source) -> None:
        for statement in statements:
            for part in self._run(statement, source):
                made = _Bare(self._resolvable(source)).visit(copy.deepcopy(part))
                made = self.flattened(made, source, part)
                for bound in binds(made):
                    self.defined.setdefault(bound, _key(bound, source))
                self.need(reads(made), source, part)
                text = text_of(made, source)
                if text not in self.helpers:
                    self.helpers.append(text)

    def _run(self, statement: ast.stmt, source: Source) -> list[ast.stmt]:
        """The statements of a top-level block that are run."""
        if isinstance(statement, ast.If):
            try:
                known = evaluate(statement.test, lookup_in(source))
            except NotLiteral:
                return [statement]
            return statement.body if known else statement.orelse
        return [statement]

    def flattened(self, node: ast.stmt, source: Source, place: ast.AST) -> ast.stmt:
        """``utils.reference(x)`` of a local module -> ``reference(x)``, which is then defined."""
        made = _Modules(self, source, place).visit(node)
        assert isinstance(made, ast.stmt)
        return made

    def module(self, name: str, source: Source) -> Source | None:
        """The file of the tree that ``name`` is imported as, in ``source`` or in the test."""
        for seen in dict.fromkeys((source, self._source)):
            imported = seen.imports.get(name)
            if imported is not None and not self._calls.is_import(imported):
                local = seen.local(imported)
                return local[0] if local is not None and local[1] is None else None
        return None

    def of_framework(self, module: str, name: str, source: Source) -> bool:
        """Take ``name`` of a module of the framework's own source, as ``module.name`` is used."""
        imported = source.imports.get(module) or self._source.imports.get(module)
        if imported is None or not self._calls.is_import(imported):
            return False
        local = source.local(imported)
        if local is None or local[1] is not None or name in self.missing:
            return False
        inside, known = local[0], self.defined.get(name)
        if known is not None:
            return known == _key(name, inside)
        return self._from_library(name, imported, (inside, name))

    def _resolvable(self, source: Source) -> frozenset[str]:
        """Names whose meaning a runner can have without the operator's framework."""
        imported = {
            name
            for name, what in source.imports.items()
            if what.module.partition(".")[0] in _PLAIN and not what.level
        }
        return frozenset(imported) | BUILTINS

    # -- imports --------------------------------------------------------------------------------

    def _import(self, name: str, imported: Imported, source: Source, place: ast.AST) -> None:
        local = source.local(imported)
        if local is not None and not self._calls.is_import(imported):
            found, attribute = local
            if attribute is None:
                self.missing.setdefault(name)
                self._todo(f"module {imported.path} is used as a value", source, place)
                return
            self._need(attribute, found, place)
            if attribute != name and attribute in self.defined:
                self.defined[name] = self.defined[attribute]
                self.helpers.append(f"{name} = {attribute}")
            return
        if local is not None and self._from_library(name, imported, local):
            return
        known = well_known.definition(imported.attribute or name)
        head = imported.module.partition(".")[0]
        if head not in _PLAIN and known is not None and imported.attribute:
            self.defined[name] = imported.path
            self.need(reads(known), self._source, place)
            self.helpers.append(ast.unparse(known))
            if imported.attribute != name:
                self.helpers.append(f"{name} = {imported.attribute}")
            return
        if (
            imported.level
            or head in ("tests", "test", "unit_test")
            or (self._calls.is_import(imported))
        ):
            self.missing.setdefault(name)
            dots = "." * imported.level
            why = "which is not at hand" if local is None else "which needs more of the framework"
            self._todo(
                f"{name} comes from {dots}{imported.module}, {why}: write out what it does",
                source,
                place,
            )
            return
        self.defined[name] = imported.path
        self.imports.setdefault(_statement(name, imported))

    def _from_library(
        self, name: str, imported: Imported, local: tuple[Source, str | None]
    ) -> bool:
        """Take a definition from the framework's own source, if it needs nothing more of it."""
        found, attribute = local
        if attribute is None or attribute not in found.definitions:
            return False
        trial = Closure(found, self._calls, {}, {})
        statements = found.definitions[attribute]
        layer = None
        if len(statements) == 1 and isinstance(statements[0], ast.ClassDef):
            layer = bare_layer(statements[0], self._attributes())
        if layer is not None:
            trial.defined[attribute] = _key(attribute, found)
            trial.define([layer], found)
            trial.need(["torch"], found, found.tree)
        else:
            trial.need([attribute], found, found.tree)
        if trial.todos or trial.missing or len(trial.helpers) > _MOST_HELPERS:
            return False
        self.defined.update(trial.defined)
        self.defined[name] = _key(attribute, found)
        self.imports.update(trial.imports)
        self.helpers.extend(h for h in trial.helpers if h not in self.helpers)
        if attribute != name:
            self.helpers.append(f"{name} = {attribute}")
        return True

    def _attributes(self) -> set[str]:
        """Names of all attributes that the test reads of anything."""
        return {n.attr for n in ast.walk(self._source.tree) if isinstance(n, ast.Attribute)}

    def _todo(self, what: str, source: Source, place: ast.AST) -> None:
        todo = Todo(what, source.place(place))
        if all(known.what != what for known in self.todos):
            self.todos.append(todo)


def _key(name: str, source: Source) -> str:
    return f"{source.path}:{name}"


def _statement(name: str, imported: Imported) -> str:
    if imported.attribute is None:
        as_name = f" as {name}" if name != imported.module else ""
        return f"import {imported.module}{as_name}"
    as_name = f" as {name}" if name != imported.attribute else ""
    return f"from {imported.module} import {imported.attribute}{as_name}"


class _Bare(ast.NodeTransformer):
    """Drops decorators of pytest and compilers, and annotations that need what is not at hand."""

    def __init__(self, resolvable: frozenset[str]) -> None:
        self._resolvable = resolvable

    def _visit_function(self, node: FunctionNode) -> ast.AST:
        node.decorator_list = [d for d in node.decorator_list if not _is_dropped(d)]
        if node.returns is not None and not self._known(node.returns):
            node.returns = None
        return self.generic_visit(node)

    visit_FunctionDef = _visit_function
    visit_AsyncFunctionDef = _visit_function

    def visit_arg(self, node: ast.arg) -> ast.AST:
        if node.annotation is not None and not self._known(node.annotation):
            node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if self._known(node.annotation) or node.value is None:
            return node
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def _known(self, annotation: ast.expr) -> bool:
        return set(reads(annotation)) <= self._resolvable


def _is_dropped(decorator: ast.expr) -> bool:
    text = ast.unparse(decorator)
    return text.startswith(("pytest.", "torch.compile", "unittest.", "torch._dynamo", "large_gpu"))


class _Modules(ast.NodeTransformer):
    def __init__(self, closure: Closure, source: Source, place: ast.AST) -> None:
        self._closure = closure
        self._source = source
        self._place = place

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name):
            module = self._closure.module(node.value.id, self._source)
            if module is not None:
                self._closure.need([node.attr], module, self._place)
                return ast.copy_location(ast.Name(node.attr, node.ctx), node)
            if self._closure.of_framework(node.value.id, node.attr, self._source):
                return ast.copy_location(ast.Name(node.attr, node.ctx), node)
        self.generic_visit(node)
        return node
