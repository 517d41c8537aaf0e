"""Which calls of a unit test are calls of the operator, however it spells them.

A spelling is followed through imports, aliases, ``getattr`` and ``functools.partial`` to a dotted
path; the path that fits the operator best counts, so that a reference of the same name from
another module is not taken for it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from orchestrator.author.facts import Operator
from orchestrator.author.trial.scopes import dotted
from orchestrator.author.trial.source import Imported, Source, imported_names

# Overloads of torch.library's: part of the path, not of the name.
_OVERLOADS = frozenset(("default", "out", "Tensor", "op"))
_LIBRARIES = frozenset(("mcoplib", "vllm", "sgl_kernel", "sglang"))
_NOT_OPERATORS = ("torch.", "numpy.", "math.", "np.")
_DEPTH = 8

Aliases = Mapping[str, Sequence[ast.expr]]


def libraries(operator: Operator) -> frozenset[str]:
    """Top-level modules that are the operator's own library, or the framework around it."""
    heads = {
        word.partition(".")[0]
        for statement in operator.imports
        for word in statement.replace(",", " ").split()[1:2]
    }
    return _LIBRARIES | (heads - {"torch"})


@dataclass
class Names:
    """What names mean in one function of the test: imports, aliases, the module's definitions."""

    source: Source
    aliases: Aliases = field(default_factory=dict)
    imports: Mapping[str, Imported] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Source, body: Iterable[ast.stmt]) -> Names:
        """Those of a function with ``body`` in ``source``."""
        aliases: dict[str, list[ast.expr]] = {}
        imports: dict[str, Imported] = {}
        for statement in body:
            imports.update(imported_names(statement))
            for node in ast.walk(statement):
                if isinstance(node, ast.Assign) and len(node.targets) == 1:
                    target = node.targets[0]
                    if isinstance(target, ast.Name):
                        aliases.setdefault(target.id, []).append(node.value)
        return cls(source, aliases, imports)

    def path(self, node: ast.AST, depth: int = 0) -> str | None:
        """The dotted path that an expression leads to: ``torch.ops._C.silu_and_mul``."""
        if depth > _DEPTH:
            return None
        if isinstance(node, ast.Attribute):
            base = self.path(node.value, depth + 1)
            return None if base is None else f"{base}.{node.attr}"
        if isinstance(node, ast.Call):
            return self._looked_up(node, depth)
        if not isinstance(node, ast.Name):
            return None
        if node.id in self.aliases:
            values = self.aliases[node.id]
            return self.path(values[0], depth + 1) if len(values) == 1 else None
        imported = self.imports.get(node.id) or self.source.imports.get(node.id)
        if imported is not None:
            return "." * imported.level + imported.path
        for statement in self.source.definitions.get(node.id, ()):
            if isinstance(statement, ast.Assign):
                return self.path(statement.value, depth + 1) or node.id
        return node.id

    def _looked_up(self, node: ast.Call, depth: int) -> str | None:
        called = dotted(node.func)
        if called == "getattr" and len(node.args) >= 2:
            name = node.args[1]
            base = self.path(node.args[0], depth + 1)
            if base and isinstance(name, ast.Constant) and isinstance(name.value, str):
                return f"{base}.{name.value}"
        return None

    def callee(self, call: ast.Call) -> tuple[str | None, ast.Call]:
        """Path of what ``call`` calls, and the call with what ``functools.partial`` bound."""
        function: ast.expr = call.func
        for _ in range(_DEPTH):
            if isinstance(function, ast.Name) and len(self.aliases.get(function.id, ())) == 1:
                value = self.aliases[function.id][0]
                if isinstance(value, ast.Call) and _is_partial(value):
                    function = value
                    continue
            if isinstance(function, ast.Call) and _is_partial(function) and function.args:
                named = {k.arg for k in call.keywords}
                kept = [k for k in function.keywords if k.arg not in named]
                call = ast.Call(
                    function.args[0],
                    [*function.args[1:], *call.args],
                    [*kept, *call.keywords],
                    lineno=call.lineno,
                    col_offset=call.col_offset,
                )
                function = call.func
                continue
            break
        return self.path(function), call


def _is_partial(node: ast.Call) -> bool:
    return dotted(node.func) in ("functools.partial", "partial")


class OperatorCalls:
    """Tells calls of one operator from other calls."""

    def __init__(self, operator: Operator, source: Source) -> None:
        self.operator = operator
        self._source = source
        self._libraries = libraries(operator)
        self._best = max((self._fit(path) for path in _all_paths(source, operator.name)), default=0)

    def is_call(self, node: ast.AST, names: Names) -> bool:
        """Whether ``node`` calls the operator."""
        return isinstance(node, ast.Call) and self.is_path(names.callee(node)[0])

    def is_path(self, path: str | None) -> bool:
        """Whether a dotted path is the operator's."""
        if path is None:
            return False
        fit = self._fit(path)
        return fit > 0 and fit >= min(self._best, 3)

    def is_import(self, imported: Imported) -> bool:
        """Whether an import is of the operator's own library."""
        return not imported.level and imported.module.partition(".")[0] in self._libraries

    def may_be_reached(self, node: ast.AST, siblings: Mapping[str, ast.AST]) -> bool:
        """A quick look: whether code, or anything of the file that it names, names the operator."""
        seen: set[str] = set()
        todo: list[ast.AST] = [node]
        while todo:
            names, mentions = self._named(todo.pop())
            if mentions or names & self._leading_here:
                return True
            todo.extend(siblings[name] for name in names - seen if name in siblings)
            seen |= names
        return False

    def _named(self, node: ast.AST) -> tuple[set[str], bool]:
        """Names in a piece of code, and whether it says the operator's own."""
        names: set[str] = set()
        mentions = False
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                names.add(part.id)
            elif isinstance(part, ast.Attribute):
                mentions = mentions or part.attr == self.operator.name
            elif isinstance(part, ast.Constant):
                mentions = mentions or part.value == self.operator.name
        return names, mentions or self.operator.name in names

    @cached_property
    def _leading_here(self) -> set[str]:
        """Names at the top of the file that lead to the operator, however many steps away."""
        found: set[str] = set()
        users: dict[str, set[str]] = {}
        for name, statements in self._source.definitions.items():
            for names, mentions in map(self._named, statements):
                if mentions:
                    found.add(name)
                for used in names:
                    users.setdefault(used, set()).add(name)
        for name, imported in self._source.imports.items():
            local = self._source.local(imported)
            helpers: Sequence[ast.AST] = ()
            if local is not None:
                inside, attribute = local
                helpers = inside.definitions.get(attribute, ()) if attribute else [inside.tree]
            if imported.attribute == self.operator.name or any(
                self._named(statement)[1] for statement in helpers
            ):
                found.add(name)
        todo = list(found)
        while todo:
            more = users.get(todo.pop(), set()) - found
            found |= more
            todo.extend(more)
        return found

    def _fit(self, path: str) -> int:
        """How well ``path`` fits: 0 not at all, 4 letter by letter."""
        parts = path.lstrip(".").split(".")
        if parts[-1] in _OVERLOADS and len(parts) > 1 and parts[-1] != self.operator.name:
            parts.pop()
        if parts[-1] != self.operator.name:
            return 0
        plain = ".".join(parts)
        called = self.operator.call
        if plain in (called, f"{self.operator.namespace}.{self.operator.name}"):
            return 4
        if plain.startswith("torch.ops."):
            return 3 if parts[2:-1] == [self.operator.namespace] else 2
        if parts[0] in self._libraries:
            return 3
        if plain.startswith(_NOT_OPERATORS):
            return 0
        own = self.operator.kind in ("triton", "library", "python")
        if len(parts) == 1:
            # Defined in the test's own file: the operator itself, or a wrapper of its name.
            return 1 if own else 0
        return 3 if own else 1


def _all_paths(source: Source, name: str) -> set[str]:
    """Paths of everything in the file that might end in ``name``."""
    found: set[str] = set()
    names = Names.of(source, source.tree.body)
    # Aliases of different functions are different things: each read where it stands alone.
    names = Names(source, {k: v for k, v in names.aliases.items() if len(v) == 1}, names.imports)
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.Attribute, ast.Name, ast.Call)):
            path = names.path(node)
            if path is not None and name in path.split("."):
                found.add(path)
    return found


def operator_like(source: Source) -> set[str]:
    """Names of what the file calls from ``torch.ops`` or an operator library."""
    names = Names.of(source, source.tree.body)
    found: set[str] = set()
    for node in ast.walk(source.tree):
        path = names.path(node.func) if isinstance(node, ast.Call) else None
        if path is not None:
            parts = path.split(".")
            if path.startswith("torch.ops.") or parts[0] in _LIBRARIES:
                found.add(next((p for p in reversed(parts) if p not in _OVERLOADS), parts[-1]))
    return found


def opcheck_as_call(node: ast.Call) -> ast.Call | None:
    """``opcheck(op, (a, b), {"k": c})`` as the call ``op(a, b, k=c)`` that it stands for."""
    if (dotted(node.func) or "").rpartition(".")[2] != "opcheck" or len(node.args) < 2:
        return None
    arguments = node.args[1]
    if not isinstance(arguments, (ast.Tuple, ast.List)):
        return None
    keywords: list[ast.keyword] = []
    if len(node.args) > 2 and isinstance(node.args[2], ast.Dict):
        for key, value in zip(node.args[2].keys, node.args[2].values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                keywords.append(ast.keyword(key.value, value))
    return ast.copy_location(ast.Call(node.args[0], list(arguments.elts), keywords), node)
