"""Which of several signatures of an operator is meant: the one that the unit test's calls fit.

They are overloads, or what different builds have; nothing but a call tells them apart. Where it
does not, the choice is left open in words.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator.author.facts import Operator, Place, Todo
from orchestrator.author.python_effects import dotted

_MOST_TOLD = 4  # signatures in a sentence


@dataclass(frozen=True)
class Candidate:
    """One signature. ``overload``: its name; ``doubtful``: only some builds have it."""

    operator: Operator
    overload: str = ""
    doubtful: bool = False


def chosen(candidates: Sequence[Candidate], unit_test: ast.Module | None) -> Operator:
    """The operator that is meant, with a ``Todo`` where that cannot be told."""
    if len(candidates) == 1:
        return candidates[0].operator
    calls = [] if unit_test is None else list(_calls(unit_test, candidates[0].operator.name))
    left = list(candidates)
    if calls:
        for score in (_named, _fits, _alike):
            points = [sum(score(one, call, unit_test) for call in calls) for one in left]
            left = [one for one, point in zip(left, points, strict=True) if point == max(points)]
    left = [one for one in left if not one.doubtful] or left
    if len(left) == 1 and (not calls or any(_fits(left[0], call, unit_test) for call in calls)):
        # What all builds have is meant where the test has no say.
        return left[0].operator if calls or not left[0].overload else _open(left, candidates)
    return _open(left, candidates)


def _open(left: Sequence[Candidate], candidates: Sequence[Candidate]) -> Operator:
    first = left[0].operator
    shown = "; ".join(_signature(one.operator) for one in candidates[:_MOST_TOLD])
    what = (
        f"which signature of {first.name} is called: the sources have {len(candidates)}, and no "
        f"call of the unit test decides between {shown}; this takes the first that may be meant"
    )
    return replace(first, todos=(*first.todos, Todo(what, next(iter(first.sources), None))))


def _signature(operator: Operator) -> str:
    words = ", ".join(
        f"{one.type.removesuffix('?')}{'!' if one.mutated else ''} {one.name}"
        for one in operator.arguments
    )
    place = f" ({operator.sources[0]})" if operator.sources else ""
    return f"({words}){place}"


def _calls(unit_test: ast.Module, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(unit_test):
        if isinstance(node, ast.Call) and name in dotted(node.func).split(".")[-2:]:
            yield node


def _named(one: Candidate, call: ast.Call, _: ast.Module | None) -> bool:
    """Whether the call names this overload: ``torch.ops.ns.f.out(...)``."""
    words = dotted(call.func).split(".")
    return words[-1] == (one.overload or "default") and words[-2:-1] == [one.operator.name]


def _fits(one: Candidate, call: ast.Call, unit_test: ast.Module | None) -> bool:
    """Whether count and kinds of what is passed are those of the signature."""
    from orchestrator.author.trial.arguments import read_arguments

    def define(name: str) -> ast.expr | None:
        return _assigned(name, call, unit_test)

    found, todos = read_arguments(call, one.operator, define, Place("", 1), single=define)
    needed = (a.name for a in one.operator.arguments if a.default is None)
    return not todos and all(name in found for name in needed)


def _alike(one: Candidate, call: ast.Call, _: ast.Module | None) -> int:
    """How many arguments the test has variables for that are called like them."""
    pairs = zip(one.operator.arguments, call.args, strict=False)
    return sum(isinstance(value, ast.Name) and value.id == a.name for a, value in pairs)


def _assigned(name: str, call: ast.Call, unit_test: ast.Module | None) -> ast.expr | None:
    """What a name is assigned, once, in the function around the call, or in the module."""
    if unit_test is None:
        return None
    functions = [
        node
        for node in ast.walk(unit_test)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(inner is call for inner in ast.walk(node))
    ]
    for scope in (*reversed(functions), unit_test):
        bound = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id == name]
        stored = [node for node in bound if isinstance(node.ctx, ast.Store)]
        values = [
            node.value
            for node in ast.walk(scope)
            if isinstance(node, ast.Assign) and node.targets == stored[:1]
        ]
        if stored:
            return values[0] if len(stored) == len(values) == 1 else None
        if not isinstance(scope, ast.Module) and any(a.arg == name for a in _parameters(scope)):
            return None
    return None


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    given = function.args
    return [*given.posonlyargs, *given.args, *given.kwonlyargs]
