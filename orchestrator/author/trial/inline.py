"""A call of one of the test's own functions, replaced by that function's body.

Names of the body that the caller has already are renamed; a ``return`` becomes an assignment, which
is possible where every one of them is the last thing its way through the body does.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable
from typing import TypeVar

from orchestrator.author.trial.scopes import FunctionNode, binds, reads

_Node = TypeVar("_Node", bound=ast.AST)


class _Rename(ast.NodeTransformer):
    def __init__(self, names: dict[str, ast.expr]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        new = self._names.get(node.id)
        if new is None:
            return node
        if isinstance(new, ast.Name):
            return ast.copy_location(ast.Name(new.id, node.ctx), node)
        return ast.copy_location(copy.deepcopy(new), node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        new = self._names.get(node.arg)
        if isinstance(new, ast.Name):
            node.arg = new.id
        self.generic_visit(node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        new = self._names.get(node.name)
        if isinstance(new, ast.Name):
            node.name = new.id
        self.generic_visit(node)
        return node


def renamed(node: _Node, names: dict[str, ast.expr]) -> _Node:
    """A copy of ``node`` with names replaced by other names, or by expressions."""
    made: _Node = _Rename(names).visit(copy.deepcopy(node))
    return made


def inlined(
    function: FunctionNode, call: ast.Call, target: ast.expr | None, used: set[str]
) -> list[ast.stmt] | None:
    """Statements that do what ``target = call`` does; None where that cannot be written so.

    ``used``: names of the caller; grows by those that the body binds.
    """
    given = bound_arguments(function, call)
    if given is None or isinstance(function, ast.AsyncFunctionDef):
        return None
    body = [s for s in function.body if not _is_docstring(s)]
    if any(
        isinstance(n, (ast.Yield, ast.YieldFrom, ast.Global)) for s in body for n in ast.walk(s)
    ):
        return None
    straight = _assigning(copy.deepcopy(body), target)
    if straight is None:
        return None
    names: dict[str, ast.expr] = {}
    first: list[ast.stmt] = []
    own = binds(body)
    # What the call gives a value anyway may have it earlier, unless the call itself reads it.
    taken = used - (set(binds(target) if target is not None else ()) - set(reads(call)))
    for name, value in given.items():
        replaceable = isinstance(value, ast.Name) or (
            isinstance(value, ast.Constant)
            and (value.value is None or isinstance(value.value, (str, bool)))
        )
        if replaceable and name not in own:
            names[name] = value
        else:
            own_name = _fresh(name, taken, used)
            names[name] = ast.Name(own_name, ast.Load())
            made = ast.Assign([ast.Name(own_name, ast.Store())], value)
            first.append(ast.fix_missing_locations(ast.copy_location(made, call)))
    given_back = body[-1].value if body and isinstance(body[-1], ast.Return) else None
    if (
        isinstance(given_back, ast.Name)
        and isinstance(target, ast.Name)
        and given_back.id in own
        and given_back.id not in given
        and target.id not in {**reads(call), **own}
    ):
        names[given_back.id] = target  # what is given back has the caller's name from the start
        used.add(target.id)
    for name in own:
        if name not in names:
            names[name] = ast.Name(_fresh(name, taken, used), ast.Load())
    names = {n: v for n, v in names.items() if not (isinstance(v, ast.Name) and v.id == n)}
    made_body: list[ast.stmt] = []
    for statement in straight:
        # The target is the caller's: what was renamed to it is put back by the marker.
        made_statement = _Unmark(target).visit(renamed(statement, names))
        if not _assigns_itself(made_statement):
            made_body.append(made_statement)
    return _without_handing_over(first, made_body)


def _without_handing_over(first: list[ast.stmt], body: list[ast.stmt]) -> list[ast.stmt]:
    """``x_2 = x; x_2 = x_2.t()`` as ``x_2 = x.t()``."""
    kept: list[ast.stmt] = []
    for given in first:
        assert isinstance(given, ast.Assign)
        (target,) = binds(given)
        readers = [i for i, s in enumerate(body) if target in {**reads(s), **binds(s)}]
        user = body[readers[0]] if readers else None
        again = isinstance(user, ast.Assign) and target in binds(user)
        if isinstance(given.value, ast.Name) and again and isinstance(user, ast.Assign):
            user.value = renamed(user.value, {target: given.value})
        else:
            kept.append(given)
    return [*kept, *body]


_MARK = "__target__"


class _Unmark(ast.NodeTransformer):
    def __init__(self, target: ast.expr | None) -> None:
        self._target = target

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == _MARK and self._target is not None:
            return copy.deepcopy(self._target)
        return node


def _assigns_itself(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == ast.unparse(node.value)


def _fresh(name: str, taken: set[str], used: set[str]) -> str:
    made, count = name, 1
    while made in taken:
        count += 1
        made = f"{name}_{count}"
    used.add(made)
    taken.add(made)
    return made


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def bound_arguments(
    function: FunctionNode | ast.Lambda, call: ast.Call
) -> dict[str, ast.expr] | None:
    """The expression that each parameter of ``function`` gets from ``call``; None: not plain."""
    a = function.args
    if any(isinstance(x, ast.Starred) for x in call.args) or a.vararg or a.kwarg:
        return None
    if any(keyword.arg is None for keyword in call.keywords):
        return None
    positional = [arg.arg for arg in [*a.posonlyargs, *a.args]]
    names = [*positional, *(arg.arg for arg in a.kwonlyargs)]
    if len(call.args) > len(positional):
        return None
    given: dict[str, ast.expr] = dict(zip(positional, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg not in names or keyword.arg in given:
            return None
        given[keyword.arg] = keyword.value
    defaults = default_values(function)
    for name in names:
        if name not in given:
            if name not in defaults:
                return None
            given[name] = defaults[name]
    return {name: given[name] for name in names}


def default_values(function: FunctionNode | ast.Lambda) -> dict[str, ast.expr]:
    """Defaults of a function's parameters."""
    a = function.args
    positional = [arg.arg for arg in [*a.posonlyargs, *a.args]]
    found = dict(zip(positional[len(positional) - len(a.defaults) :], a.defaults, strict=True))
    for arg, value in zip(a.kwonlyargs, a.kw_defaults, strict=True):
        if value is not None:
            found[arg.arg] = value
    return found


def _assigning(body: list[ast.stmt], target: ast.expr | None) -> list[ast.stmt] | None:
    """``body`` with every return as an assignment to the target; None: not all are at its end."""
    if not body:
        return []
    *head, last = body
    for index, statement in enumerate(head):
        if not _returns(statement):
            continue
        if not isinstance(statement, ast.If) or not _always_returns(statement.body):
            return None
        # if c: return a ... rest  ->  if c: a else: rest
        whole = ast.If(statement.test, statement.body, [*statement.orelse, *body[index + 1 :]])
        ast.copy_location(whole, statement)
        rest = _assigning([whole], target)
        return None if rest is None else [*body[:index], *rest]
    ended = _ending(last, target)
    return None if ended is None else [*head, *ended]


def _ending(last: ast.stmt, target: ast.expr | None) -> list[ast.stmt] | None:
    if isinstance(last, ast.Return):
        if last.value is None:
            return []
        mark = ast.Name(_MARK, ast.Store())
        made = ast.Expr(last.value) if target is None else ast.Assign([mark], last.value)
        return [ast.fix_missing_locations(ast.copy_location(made, last))]
    if not _returns(last):
        return [last]
    if isinstance(last, (ast.If, ast.With)):
        arms = [_assigning(last.body, target)]
        if isinstance(last, ast.If):
            arms.append(_assigning(last.orelse, target))
        if any(arm is None for arm in arms):
            return None
        last.body = arms[0] or [ast.copy_location(ast.Pass(), last)]
        if isinstance(last, ast.If):
            last.orelse = arms[1] or []
        return [last]
    return None


def _always_returns(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], (ast.Return, ast.Raise))


def _returns(node: ast.stmt) -> bool:
    """Whether a statement of a function may return from it."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return False
    return isinstance(node, ast.Return) or any(_returns(child) for child in _statements(node))


def _statements(node: ast.stmt) -> Iterable[ast.stmt]:
    for field in ("body", "orelse", "finalbody"):
        yield from getattr(node, field, [])
    for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
        yield from part.body
