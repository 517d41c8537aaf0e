"""The two sides of a comparison as plain tensors: without loops, sorting, lists and arrays."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import replace

from orchestrator.author.trial import compare, ordering
from orchestrator.author.trial.flatten import Step
from orchestrator.author.trial.inline import renamed
from orchestrator.author.trial.scopes import binds, reads
from orchestrator.author.trial.slices import Line


def plain(found: compare.Compared, define: ordering.Define) -> compare.Compared:
    """A comparison without what the test does only to compare: sorting, lists, sets, moving.

    ``define``: what a name was assigned, and which element of it when it was unpacked.
    """
    left, right = ordering.side(found.left, define), ordering.side(found.right, define)
    how = "unordered" if left.ordered or right.ordered else found.how
    sides = [left.value, right.value]
    if left.converted or right.converted or _is_numpy(found.node):
        sides = [s.value if s.converted else _as_tensor(s.value) for s in (left, right)]
    while all(_is_moved(side) for side in sides):
        # Both were brought to the CPU to be compared: they can be where they are.
        sides = [s.func.value for s in sides]  # type: ignore[attr-defined]
    return replace(found, left=sides[0], right=sides[1], how=how)


def out_of_loops(found: compare.Compared, step: Step, line: Line) -> compare.Compared:
    """A comparison inside loops as one of all rounds, with what the rounds compute put in."""
    if not step.loops:
        return found
    inside = [s for s in line.steps if s.loops and s.loops[0] is step.loops[0] and s is not step]
    for other in reversed(inside):
        for name, value, element in assignments(other.node):
            if element is not None:
                value = ast.Subscript(value, ast.Constant(element), ast.Load())
            put = {name: value}
            found = replace(found, left=renamed(found.left, put), right=renamed(found.right, put))
    loops = [copy.deepcopy(loop) for loop in step.loops]
    bound = {name for loop in loops for name in binds(loop.target)}
    for condition in step.when:
        if set(reads(condition)) & bound:
            loops[-1].ifs.append(condition)
    return compare.over(found, loops)


def assignments(node: ast.stmt) -> Iterator[tuple[str, ast.expr, int | None]]:
    """Name, expression and element of it, for each name that a plain assignment gives a value."""
    if isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
        yield node.target.id, node.value, None
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        if isinstance(target, ast.Name):
            yield target.id, node.value, None
        elif isinstance(target, ast.Tuple):
            for index, part in enumerate(target.elts):
                if not isinstance(part, ast.Name):
                    continue
                if isinstance(node.value, ast.Tuple) and len(node.value.elts) == len(target.elts):
                    yield part.id, node.value.elts[index], None
                else:
                    yield part.id, node.value, index


def _is_moved(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("cpu", "detach")
        and not value.args
    )


def _is_numpy(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("np.", "numpy."))


def _as_tensor(value: ast.expr) -> ast.expr:
    if isinstance(value, ast.Constant):
        return value
    function = ast.Attribute(ast.Name("torch", ast.Load()), "as_tensor", ast.Load())
    return ast.copy_location(ast.Call(function, [value], []), value)
