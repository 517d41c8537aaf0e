"""The values that a file's other functions, or its script, call one of its functions with."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.author.trial.inline import bound_arguments
from orchestrator.author.trial.literals import (
    Code,
    Lookup,
    NotLiteral,
    Value,
    bind,
    evaluate,
    render,
)
from orchestrator.author.trial.scopes import FunctionNode, dotted
from orchestrator.author.trial.source import Source

MOST_ROWS = 512

Loop = tuple[ast.expr, ast.expr]
Rows = Sequence[tuple[tuple[str, ...], Sequence[tuple[Value, ...]]]]


@dataclass(frozen=True)
class Called:
    """One call. ``loops``: target and iterable of each loop around it; ``local``: what names of
    its function were assigned before.
    """

    call: ast.Call
    loops: tuple[Loop, ...]
    local: dict[str, ast.expr]


def calls_of(name: str, body: list[ast.stmt]) -> list[Called]:
    """Calls of the function ``name`` in ``body``, in order."""
    found: list[Called] = []
    local: dict[str, ast.expr] = {}

    def walk(nodes: Iterable[ast.AST], loops: tuple[Loop, ...]) -> None:
        for node in nodes:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                local[node.targets[0].id] = node.value
            if isinstance(node, ast.Call) and dotted(node.func) == name:
                found.append(Called(node, loops, dict(local)))
            inner = (*loops, (node.target, node.iter)) if isinstance(node, ast.For) else loops
            walk(ast.iter_child_nodes(node), inner)

    walk(body, ())
    return found


def rows_of(
    called: Called, function: FunctionNode, groups: Rows, source: Source, lookup: Lookup
) -> list[tuple[Value, ...]]:
    """Values of all parameters of ``function``, a row for each time that the call is made.

    ``groups``: what the parameters of the caller are. Empty where any value is not known.
    """
    given = bound_arguments(function, called.call)
    if given is None:
        return []
    read = {n.id for v in given.values() for n in ast.walk(v) if isinstance(n, ast.Name)}
    combined: list[dict[str, Value]] = [{}]
    for names, rows in groups:
        if set(names) & read:
            pairs = itertools.islice(itertools.product(combined, rows), MOST_ROWS)
            combined = [{**one, **dict(zip(names, row, strict=True))} for one, row in pairs]
    reader = _Reader(called, source, lookup)
    found: list[tuple[Value, ...]] = []
    try:
        for known in combined:
            for names_here in reader.rounds(called.loops, known):
                found.append(tuple(reader.value(v, names_here) for v in given.values()))
                if len(found) >= MOST_ROWS:
                    return found
    except NotLiteral:
        return []
    return found


class _Reader:
    def __init__(self, called: Called, source: Source, lookup: Lookup) -> None:
        self._local = called.local
        self._source = source
        self._lookup = lookup

    def value(self, node: ast.expr, names: dict[str, Value]) -> Value:
        """What an argument is where ``names`` are known. Raises ``NotLiteral``."""

        def lookup(name: str) -> ast.expr | None:
            if name in names:
                return ast.parse(render(names[name]), mode="eval").body
            return self._local.get(name) or self._lookup(name)

        if isinstance(node, ast.Name) and isinstance(names.get(node.id), Code):
            return names[node.id]
        try:
            return evaluate(node, lookup, opaque=True)
        except NotLiteral:
            # A function or a class of the module is a value of its own; a local is not known.
            if isinstance(node, ast.Name) and node.id in self._source.definitions:
                return Code(node.id)
            if dotted(node) is not None and not isinstance(node, ast.Name):
                return Code(ast.unparse(node))
            raise

    def rounds(self, loops: Sequence[Loop], known: dict[str, Value]) -> Iterable[dict[str, Value]]:
        """What names are in each round of nested loops. Raises ``NotLiteral``."""
        if not loops:
            yield known
            return
        (target, iterable), *inner = loops
        values = self.value(iterable, known)
        if not isinstance(values, (list, tuple)):
            raise NotLiteral("loop")
        for value in values:
            names = dict(known)
            bind(target, value, names)
            yield from self.rounds(inner, names)
