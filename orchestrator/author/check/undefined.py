"""Which names of a module nothing defines, by Python's own rules of scopes.

Silent where that cannot be told: names that come by ``from x import *``, ``exec`` or ``globals()``,
and code that is prepared for a ``NameError``.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

_OF_MODULES = frozenset({"__file__", "__name__", "__doc__", "__package__", "__spec__", "__path__"})
_KNOWN = frozenset(dir(builtins)) | _OF_MODULES | {"__class__", "__builtins__", "__loader__"}
_DYNAMIC = frozenset({"globals", "locals", "vars", "exec", "eval"})
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_LOOPS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class _Scope:
    """Names that a function, a class or the module binds, and the scope around it."""

    outer: _Scope | None
    is_class: bool = False
    bound: set[str] = field(default_factory=set)


def undefined(tree: ast.Module) -> Iterator[tuple[ast.Name, set[str]]]:
    """Each name at the first place that reads it, with the names that are known there."""
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and any(one.name == "*" for one in node.names):
            return
        if isinstance(node, ast.Name) and node.id in _DYNAMIC:
            return
        if isinstance(node, ast.Attribute) and node.attr in ("__globals__", "__dict__"):
            return
    reader = _Reader()
    reader.visit(tree)
    told: set[str] = set()
    for name, scope in sorted(reader.reads, key=lambda one: (one[0].lineno, one[0].col_offset)):
        known = _visible(scope)
        if name.id not in known | _KNOWN and name.id not in told:
            told.add(name.id)
            yield name, known


def _visible(scope: _Scope) -> set[str]:
    found: set[str] = set()
    inner: _Scope | None = scope
    while inner is not None:
        # Methods do not see the names of the class around them.
        if inner is scope or not inner.is_class:
            found |= inner.bound
        inner = inner.outer
    return found


class _Reader:
    """Goes through the code once: what is bound in which scope, and what is read where.

    That a name is read before it is bound is no matter here: loops and calls go in circles.
    """

    def __init__(self) -> None:
        self.module = _Scope(None)
        self.reads: list[tuple[ast.Name, _Scope]] = []

    def bind(self, name: str, scope: _Scope) -> None:
        """Note that ``scope`` binds ``name``."""
        scope.bound.add(name)

    def visit(self, tree: ast.Module) -> None:
        """Go through the module."""
        todo: list[tuple[ast.AST, _Scope]] = [(tree, self.module)]
        while todo:
            node, within = todo.pop()
            inner = self._one(node, within)
            if inner is None:
                inner = [(child, within) for child in ast.iter_child_nodes(node)]
            todo += inner

    def _one(self, node: ast.AST, scope: _Scope) -> list[tuple[ast.AST, _Scope]] | None:
        """Note one node; its children with their scopes where they have another one."""
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                self.reads.append((node, scope))
            else:
                self.bind(node.id, scope)
            return []
        if isinstance(node, ast.Global):
            self.module.bound |= set(node.names)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for one in node.names:
                self.bind(one.asname or one.name.split(".")[0], scope)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            self.bind(node.name, scope)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            self.bind(node.rest, scope)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.bind(node.name, scope)
            return self._function(node, scope)
        elif isinstance(node, ast.Lambda):
            inner = self._with_arguments(node.args, scope)
            return [*((one, scope) for one in _defaults(node.args)), (node.body, inner)]
        elif isinstance(node, ast.ClassDef):
            self.bind(node.name, scope)
            inner = _Scope(scope, is_class=True, bound={"__qualname__", "__module__"})
            outside = [*node.bases, *(k.value for k in node.keywords), *node.decorator_list]
            return [*((one, scope) for one in outside), *((one, inner) for one in node.body)]
        elif isinstance(node, _LOOPS):
            # What a walrus binds in it belongs to the function around; here either will do.
            inner = _Scope(scope)
            for named in ast.walk(node):
                if isinstance(named, ast.NamedExpr) and isinstance(named.target, ast.Name):
                    self.bind(named.target.id, scope)
            loop = node.generators[0]
            rest = [one for one in ast.iter_child_nodes(node) if one is not loop]
            return [
                (loop.iter, scope),
                (loop.target, inner),
                *((one, inner) for one in loop.ifs),
                *((one, inner) for one in rest),
            ]
        elif isinstance(node, ast.Try) and _expects_no_name(node):
            # Reads in it may fail on purpose; what it binds is bound.
            for child in ast.walk(node):
                if not isinstance(child, ast.Name) or not isinstance(child.ctx, ast.Load):
                    self._bind_only(child, scope)
            return []
        return None

    def _bind_only(self, node: ast.AST, scope: _Scope) -> None:
        if isinstance(node, ast.Name):
            self.bind(node.id, scope)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for one in node.names:
                self.bind(one.asname or one.name.split(".")[0], scope)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.bind(node.name, scope)

    def _function(self, node: _Function, scope: _Scope) -> list[tuple[ast.AST, _Scope]]:
        inner = self._with_arguments(node.args, scope)
        # Annotations are left out: under ``from __future__ import annotations`` nobody reads them.
        outside = [*node.decorator_list, *_defaults(node.args)]
        inner.bound |= {one.name for one in getattr(node, "type_params", ())}
        return [*((one, scope) for one in outside), *((one, inner) for one in node.body)]

    def _with_arguments(self, given: ast.arguments, scope: _Scope) -> _Scope:
        every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        return _Scope(scope, bound={one.arg for one in every if one is not None})


def _defaults(given: ast.arguments) -> list[ast.expr]:
    return [*given.defaults, *(one for one in given.kw_defaults if one is not None)]


def _expects_no_name(node: ast.Try) -> bool:
    for handler in node.handlers:
        if handler.type is None:
            return True
        caught = {one.id for one in ast.walk(handler.type) if isinstance(one, ast.Name)}
        if caught & {"NameError", "Exception", "BaseException"}:
            return True
    return False
