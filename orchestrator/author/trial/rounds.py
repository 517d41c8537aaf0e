"""Loops of a test over what is written out, and comparisons that a loop makes round by round."""

from __future__ import annotations

import ast
import copy

from orchestrator.author.trial.scopes import dotted, last_name, reads

_MOST = 16


def rounds(target: ast.expr, every: ast.expr) -> list[dict[str, ast.expr]] | None:
    """What each name of a loop's target is in each round; None where that is not written out.

    ``for a, b in zip((x, y), z)``: ``x`` and ``z[0]``, then ``y`` and ``z[1]``.
    """
    parts = [every]
    zipped = isinstance(every, ast.Call) and last_name(every.func) == "zip"
    if isinstance(every, ast.Call) and zipped:
        parts = [a for a in every.args if not isinstance(a, ast.Starred)]
    written = [p for p in parts if isinstance(p, (ast.Tuple, ast.List))]
    if not written or len({len(p.elts) for p in written}) != 1 or len(written[0].elts) > _MOST:
        return None
    found: list[dict[str, ast.expr]] = []
    for index in range(len(written[0].elts)):
        values = [
            p.elts[index]
            if isinstance(p, (ast.Tuple, ast.List))
            else ast.Subscript(p, ast.Constant(index), ast.Load())
            for p in parts
        ]
        names: dict[str, ast.expr] = {}
        if not _paired(target, ast.Tuple(values, ast.Load()) if zipped else values[0], names):
            return None
        found.append(names)
    return found


def _paired(target: ast.expr, value: ast.expr, names: dict[str, ast.expr]) -> bool:
    """Put what each name of ``target`` is in ``target = value`` into ``names``."""
    if isinstance(target, ast.Name):
        names[target.id] = value
        return True
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return False
    return len(target.elts) == len(value.elts) and all(
        _paired(t, v, names) for t, v in zip(target.elts, value.elts, strict=True)
    )


def joined(side: ast.expr, loops: list[ast.comprehension], as_rows: bool) -> ast.expr:
    """One tensor of what ``side`` is in all rounds: rows, or all elements one after the other."""
    rows = _rows(side, loops)
    if rows is not None:
        return rows
    flat = side if as_rows else ast.Call(ast.Attribute(side, "flatten", ast.Load()), [], [])
    every = ast.ListComp(flat, [_narrowed(copy.deepcopy(loop), side) for loop in loops])
    name = "stack" if as_rows else "cat"
    function = ast.Attribute(ast.Name("torch", ast.Load()), name, ast.Load())
    return ast.copy_location(ast.Call(function, [every], []), side)


def _rows(side: ast.expr, loops: list[ast.comprehension]) -> ast.expr | None:
    """``x[:n]`` for ``x[i]`` with ``i`` in ``range(n)``, else None."""
    if len(loops) != 1 or loops[0].ifs or not isinstance(loops[0].target, ast.Name):
        return None
    name, every = loops[0].target.id, loops[0].iter
    if not isinstance(every, ast.Call) or len(every.args) != 1 or dotted(every.func) != "range":
        return None
    if not isinstance(side, ast.Subscript) or name in reads(side.value):
        return None
    if not isinstance(side.slice, ast.Name) or side.slice.id != name:
        return None
    return ast.copy_location(
        ast.Subscript(side.value, ast.Slice(None, every.args[0], None), ast.Load()), side
    )


def _narrowed(loop: ast.comprehension, side: ast.expr) -> ast.comprehension:
    """``for a in outs`` instead of ``for a, b in zip(outs, refs)`` where only ``a`` is read."""
    every = loop.iter
    if loop.ifs or not isinstance(every, ast.Call) or dotted(every.func) != "zip":
        return loop
    if not isinstance(loop.target, ast.Tuple) or len(loop.target.elts) != len(every.args):
        return loop
    read = reads(side)
    pairs = zip(loop.target.elts, every.args, strict=True)
    kept = [(t, a) for t, a in pairs if isinstance(t, ast.Name) and t.id in read]
    if len(kept) == 1:
        loop.target, loop.iter = kept[0]
    return loop
