"""The functions of a unit test's file, methods of test classes among them, as plain functions.

A method becomes a function without ``self``; what ``setUp`` and the class body assign comes before
the body of each of its tests, as names of their own.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.author.trial.inline import renamed
from orchestrator.author.trial.scopes import FunctionNode, dotted, parameters
from orchestrator.author.trial.source import Source

_SET_UP = ("setUpClass", "setup_class", "setUp", "setup_method", "setup")


@dataclass(frozen=True)
class Unit:
    """One function that may test the operator.

    ``before``: statements that its class has run before. ``siblings``: the methods beside it.
    ``marks``: decorators of its class.
    """

    node: FunctionNode
    source: Source
    before: tuple[ast.stmt, ...] = ()
    siblings: Mapping[str, FunctionNode] = field(default_factory=dict)
    marks: tuple[ast.expr, ...] = ()
    in_testcase: bool = False

    @property
    def definitions(self) -> dict[str, ast.stmt]:
        """What its class defines for it: methods, and names that the class body assigns."""
        constants = {
            target.id: statement
            for statement in self.before
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Name)
        }
        return {**constants, **self.siblings}

    @property
    def name(self) -> str:
        """The function's name."""
        return self.node.name

    @property
    def is_test(self) -> bool:
        """Whether pytest or unittest would run it."""
        return self.name.startswith("test")


def units(source: Source) -> list[Unit]:
    """All functions at the top level of a file, and all methods of its classes, in order."""
    found: list[Unit] = []
    for node in source.tree.body:
        found.extend(_units(node, source))
    main = source.main()
    if main:
        found.append(Unit(_script(main, "__main__"), source))
    return found


def _units(node: ast.stmt, source: Source) -> list[Unit]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [Unit(node, source)]
    if isinstance(node, (ast.If, ast.Try)) and "__name__" not in ast.unparse(
        node.test if isinstance(node, ast.If) else ast.Constant(0)
    ):
        return [unit for inner in node.body for unit in _units(inner, source)]
    if isinstance(node, ast.ClassDef) and not _is_module(node):
        return _methods(node, source)
    return []


def _is_module(node: ast.ClassDef) -> bool:
    """Whether a class is a layer: its ``forward`` is no test."""
    return any((dotted(base) or "").endswith("Module") for base in node.bases)


def _script(body: list[ast.stmt], name: str) -> ast.FunctionDef:
    nothing = ast.arguments([], [], None, [], [], None, [])
    return ast.copy_location(ast.FunctionDef(name, nothing, body, [], None), body[0])


def _methods(node: ast.ClassDef, source: Source) -> list[Unit]:
    unbind = _Unbind(node)
    methods: dict[str, FunctionNode] = {}
    before: list[ast.stmt] = []
    for statement in node.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            methods[statement.name] = unbind.function(statement)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            before.append(unbind.visit(copy.deepcopy(statement)))
    for name in _SET_UP:
        if name in methods:
            before.extend(s for s in methods[name].body if not _calls_super(s))
    return [
        Unit(
            method,
            source,
            tuple(before),
            methods,
            tuple(node.decorator_list),
            any("TestCase" in (dotted(base) or "") for base in node.bases),
        )
        for name, method in methods.items()
        if name not in _SET_UP
    ]


def _calls_super(statement: ast.stmt) -> bool:
    return "super()" in ast.unparse(statement)


def forwards(node: ast.stmt, source: Source) -> dict[str, ast.FunctionDef]:
    """``model = Model(...)`` of a class of the test's file: what ``model(x)`` calls, by name."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return {}
    made, name = node.value, node.targets[0].id
    while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute):
        made = made.func.value  # Model(...).cuda().eval()
    if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Name):
        return {}
    for statement in source.definitions.get(made.func.id, ()):
        for method in statement.body if isinstance(statement, ast.ClassDef) else ():
            if isinstance(method, ast.FunctionDef) and method.name in ("forward", "__call__"):
                function = renamed(method, {"self": ast.Name(name, ast.Load())})
                function.args.args = function.args.args[1:]
                return {name: function}
    return {}


class _Unbind(ast.NodeTransformer):
    """Writes ``self.x`` as ``x``."""

    def __init__(self, owner: ast.ClassDef) -> None:
        self._owners = {"self", "cls", owner.name}

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """``self.x`` -> ``x``; assertions of unittest keep their receiver."""
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self._owners:
            testing = node.attr.startswith("assert") or node.attr in ("subTest", "skipTest", "fail")
            if not testing:
                return ast.copy_location(ast.Name(node.attr, node.ctx), node)
        return node

    def function(self, node: FunctionNode) -> FunctionNode:
        """A method as a function that is not bound to anything."""
        made: FunctionNode = self.visit(copy.deepcopy(node))
        names = parameters(made)
        static = any(dotted(d) == "staticmethod" for d in made.decorator_list)
        if names and names[0] in ("self", "cls") and not static:
            first = made.args.posonlyargs or made.args.args
            first.pop(0)
        made.decorator_list = [
            d for d in made.decorator_list if dotted(d) not in ("staticmethod", "classmethod")
        ]
        return made
