"""A framework's layer reduced to what a test's reference needs of it: its way without a kernel.

Layers of inference frameworks carry registries, kernels and configuration; the reference in a unit
test calls one plain method, ``forward_native`` say. What is kept is a ``torch.nn.Module`` of that
method, those it calls, and what ``__init__`` gives them.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection

from orchestrator.author.trial.noise import is_noise
from orchestrator.author.trial.scopes import dotted


def bare_layer(node: ast.ClassDef, used: Collection[str]) -> ast.ClassDef | None:
    """``node`` reduced to the methods among ``used``; None where it has none of them.

    ``used``: names of attributes that the test reads of anything.
    """
    methods = {m.name: m for m in node.body if isinstance(m, ast.FunctionDef)}
    wanted = [name for name in methods if name in used and not name.startswith("__")]
    if not wanted or not node.bases:
        return None
    kept = _reached(methods, wanted)
    attributes = {
        n.attr
        for name in kept
        for n in ast.walk(methods[name])
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "self"
    } | set(used)
    made = copy.deepcopy(node)
    made.bases = [ast.Attribute(_torch("nn"), "Module", ast.Load())]
    made.keywords, made.decorator_list = [], []
    body: list[ast.stmt] = []
    for statement in made.body:
        if not isinstance(statement, ast.FunctionDef):
            if isinstance(statement, (ast.Assign, ast.AnnAssign)):
                body.append(statement)
        elif statement.name == "__init__":
            body.append(_plain_init(statement, attributes))
        elif statement.name in kept:
            statement.decorator_list = [
                d for d in statement.decorator_list if dotted(d) in ("staticmethod", "classmethod")
            ]
            body.append(statement)
    made.body = body
    return ast.fix_missing_locations(made)


def _torch(name: str) -> ast.Attribute:
    return ast.Attribute(ast.Name("torch", ast.Load()), name, ast.Load())


def _reached(methods: dict[str, ast.FunctionDef], wanted: list[str]) -> set[str]:
    """Methods that ``wanted`` ones call, themselves included."""
    found: set[str] = set()
    todo = list(wanted)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        for part in ast.walk(methods[name]):
            if isinstance(part, ast.Attribute) and part.attr in methods:
                todo.append(part.attr)
    return found - {"__init__"}


def _plain_init(node: ast.FunctionDef, attributes: set[str]) -> ast.FunctionDef:
    """``__init__`` that sets only ``attributes``, and initialises a plain module."""
    node.body = _setting(node.body, attributes) or [ast.Pass()]
    return node


def _setting(body: list[ast.stmt], attributes: set[str]) -> list[ast.stmt]:
    kept: list[ast.stmt] = []
    for statement in body:
        text = ast.unparse(statement)
        if "super()" in text:
            plain = ast.parse("super().__init__()").body[0]
            kept.append(ast.copy_location(plain, statement))
        elif isinstance(statement, ast.If):
            statement.body = _setting(statement.body, attributes)
            statement.orelse = _setting(statement.orelse, attributes)
            if statement.body or statement.orelse:
                statement.body = statement.body or [ast.Pass()]
                kept.append(statement)
        elif not _sets_other(statement, text, attributes) and not is_noise(statement):
            kept.append(statement)
    return kept


def _sets_other(statement: ast.stmt, text: str, attributes: set[str]) -> bool:
    """Whether a statement sets an attribute that nobody needs, or one to a kernel."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return False
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    own = [path.split(".")[1] for t in targets if (path := dotted(t) or "").startswith("self.")]
    return bool(own) and ("torch.ops" in text or not attributes & set(own))
