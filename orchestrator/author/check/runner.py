"""A runner as rules see it: its class, its methods, what its attributes hold.

The class is the one the harness loads: the first of the module that derives from the base class.
Methods of helper classes of the same module count as its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from orchestrator.author.check.source import Function, Source, dotted
from orchestrator.suites.mcoplib import BASE_CLASS


class Runner:
    """A parsed runner; ``source`` has the nodes."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @cached_property
    def _foreign_bases(self) -> set[str]:
        """Names of base classes that come from the suite, under which they are used here."""
        found = {BASE_CLASS}
        for statement in self.source.walk(ast.ImportFrom):
            theirs = "mxbenchmark" in (statement.module or "")
            found |= {
                name.asname or name.name
                for name in statement.names
                if theirs or name.name == BASE_CLASS
            }
        return found

    @cached_property
    def _own_classes(self) -> dict[str, ast.ClassDef]:
        """Classes that are names of the module, in the order in which they are made."""
        source = self.source
        return {
            node.name: node
            for node in source.walk(ast.ClassDef)
            if source.scope(node) is source.tree
            and not any(isinstance(found, ast.ClassDef) for found in source.ancestors(node))
        }

    def _derives(self, node: ast.ClassDef) -> bool:
        seen, todo = {node}, [node]
        while todo:
            for base in todo.pop().bases:
                name = dotted(base) or ""
                own = self._own_classes.get(name)
                if own is None and (name in self._foreign_bases or name.endswith(f".{BASE_CLASS}")):
                    return True
                if own is not None and own not in seen:
                    seen.add(own)
                    todo.append(own)
        return False

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        """The classes that the harness may load, in its order."""
        return [node for node in self._own_classes.values() if self._derives(node)]

    @cached_property
    def cls(self) -> ast.ClassDef | None:
        """The class that the harness loads."""
        return self.classes[0] if self.classes else None

    @cached_property
    def lineage(self) -> list[ast.ClassDef]:
        """The loaded class and its bases in this module, nearest first."""
        found: list[ast.ClassDef] = []
        todo = [self.cls] if self.cls is not None else []
        while todo:
            node = todo.pop(0)
            if node not in found:
                found.append(node)
                names = [dotted(base) for base in node.bases]
                todo += [self._own_classes[name] for name in names if name in self._own_classes]
        return found

    @cached_property
    def complete(self) -> bool:
        """Whether all of the class stands in this module: only then something can be missing."""
        if self.cls is None:
            return False
        for node in self.lineage:
            if node.keywords or node.decorator_list:
                return False
            for base in node.bases:
                name = dotted(base) or ""
                known = name.split(".")[-1] == BASE_CLASS or name in self._own_classes
                renamed = self.source.imports.get(name, "").endswith(f".{BASE_CLASS}")
                if not known and not renamed and name != "object":
                    return False
        return True

    @cached_property
    def methods(self) -> dict[str, Function]:
        """Methods by name, those of the loaded class before its bases'."""
        found: dict[str, Function] = {}
        for node in self.lineage:
            own: dict[str, Function] = {}
            for statement in node.body:
                if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                    own[statement.name] = statement
            for name, method in own.items():
                found.setdefault(name, method)
        return found

    def method(self, name: str) -> Function | None:
        """A method of the loaded class."""
        return self.methods.get(name)

    def own_name(self, node: ast.AST) -> str | None:
        """What the method around ``node`` calls its object: ``self``; None outside methods."""
        for found in self.source.ancestors(node):
            if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef) and isinstance(
                self.source.parent(found), ast.ClassDef
            ):
                static = any(
                    dotted(d) in ("staticmethod", "classmethod") for d in found.decorator_list
                )
                arguments = [*found.args.posonlyargs, *found.args.args]
                return arguments[0].arg if arguments and not static else None
        return None

    def attribute(self, node: ast.AST | None) -> str | None:
        """``x`` for ``self.x`` in a method, else None."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return node.attr if node.value.id == self.own_name(node) else None
        return None

    @cached_property
    def attributes(self) -> dict[str, list[ast.expr | None]]:
        """What methods and the class's body give each attribute; None: cannot be told."""
        found: dict[str, list[ast.expr | None]] = {}
        for node in self.lineage:
            for statement in node.body:
                if isinstance(statement, ast.Assign):
                    for target in statement.targets:
                        if isinstance(target, ast.Name):
                            found.setdefault(target.id, []).append(statement.value)
        for attribute in self.source.walk(ast.Attribute):
            if isinstance(attribute.ctx, ast.Load):
                continue
            name = self.attribute(attribute)
            if name is not None:
                found.setdefault(name, []).append(self._given(attribute))
        return found

    def _given(self, target: ast.Attribute) -> ast.expr | None:
        parent = self.source.parent(target)
        if isinstance(parent, ast.Assign) and target in parent.targets:
            return parent.value
        if isinstance(parent, ast.AnnAssign) and parent.target is target:
            return parent.value
        return None

    def value_of(self, node: ast.expr) -> ast.expr | None:
        """The expression behind a name or attribute that is given exactly one; else None."""
        if isinstance(node, ast.Name):
            return self.source.value_of(node)
        name = self.attribute(node)
        values = self.attributes.get(name, []) if name is not None else []
        return values[0] if len(values) == 1 else None

    def callee(self, call: ast.Call) -> Function | None:
        """The function or method of this module that ``call`` calls, when it can be told."""
        return self.function_of(call.func)

    def function_of(self, node: ast.expr) -> Function | None:
        """The function or method of this module that an expression names."""
        if isinstance(node, ast.Name):
            return self.source.functions.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = dotted(node.value)
            if owner == self.own_name(node) or (owner is not None and owner in self._own_classes):
                return self.methods.get(node.attr)
        return None

    def calls(self, within: ast.AST | None = None) -> Iterator[ast.Call]:
        """All calls in the order of the text."""
        return self.source.walk(ast.Call, within)
