"""Backward slices of a straight line of statements around one call.

The line is read by data flow only: what binds or changes a name that is needed is kept, with all
that it reads. Order of the statements is that of the test.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from orchestrator.author.trial.effects import Effect, Sharing, effect
from orchestrator.author.trial.flatten import Step
from orchestrator.author.trial.scopes import value_reads

_RANDOM = frozenset(
    [
        "rand",
        "randn",
        "randint",
        "randperm",
        "rand_like",
        "randn_like",
        "randint_like",
        "uniform_",
        "normal_",
        "random_",
        "bernoulli",
        "exponential_",
        "multinomial",
        "normal",
        "choice",
        "sample",
        "shuffle",
        "uniform",
        "randrange",
        "permutation",
        "random",
    ]
)
_COPIES = frozenset(("clone", "copy", "deepcopy"))


class Line:
    """Statements of a test in order.

    ``call``: index of the call of the operator that the trial is of. ``calls``: of all its calls.
    ``holding``: of all statements that have one anywhere inside, or in a function that they call.
    """

    def __init__(
        self,
        steps: list[Step],
        call: int,
        mutates: Callable[[Step], Callable[[ast.Call], Iterable[ast.expr]]],
        calls: Callable[[Step], bool],
        holds: Callable[[Step], bool],
    ) -> None:
        self.steps = steps
        self.call = call
        self.calls = {index for index, step in enumerate(steps) if calls(step)}
        self.holding = {index for index, step in enumerate(steps) if holds(step)}
        self.sharing = Sharing()
        self.effects: list[Effect] = []
        for step in steps:
            self.sharing.note(step.node)
            self.effects.append(effect(step.node, mutates(step)))

    def needed(self, names: Iterable[str], before: int) -> set[int]:
        """Indices of the statements that make ``names`` what they are at index ``before``.

        What calls the operator and rounds of a loop are never among them.
        """
        wanted = set(names)
        found: set[int] = set()
        for index in range(before - 1, -1, -1):
            step, what = self.steps[index], self.effects[index]
            if index in self.holding or step.loops:
                continue
            if not (what.binds & wanted or what.changes & self.sharing.around(wanted)):
                continue
            found.add(index)
            if not step.when:
                wanted -= what.replaces
            wanted |= what.reads
            for condition in step.when:
                wanted |= value_reads(condition)
        return found

    def tainted(self, roots: Iterable[str], before: int) -> set[str]:
        """Names that hold, before index ``before``, what the operator wrote to ``roots``."""
        taint = self.sharing.family(roots)
        for index in range(self.call + 1, before):
            what = self.effects[index]
            pairs = _pairs(self.steps[index].node)
            if pairs:
                held = [name for name, value in pairs if value_reads(value) & taint]
                taint = (taint - what.replaces) | set(held) | (what.changes & taint)
            elif value_reads(self.steps[index].node) & taint:
                taint |= what.binds | what.changes
            else:
                # Bound anew from something else: the operator's no more.
                taint -= what.replaces
        return taint

    def reads_taint(self, index: int, roots: Iterable[str]) -> bool:
        """Whether a statement after the call reads what the operator left."""
        return index > self.call and bool(
            value_reads(self.steps[index].node) & self.tainted(roots, index)
        )


def _pairs(node: ast.stmt) -> list[tuple[str, ast.expr]]:
    """Names and values of ``a, b = x, y``."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return []
    target, value = node.targets[0], node.value
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return []
    plain = [e.id for e in target.elts if isinstance(e, ast.Name)]
    return list(zip(plain, value.elts, strict=True)) if len(plain) == len(value.elts) else []


def makes_data(node: ast.stmt) -> bool:
    """Whether a statement makes what cannot be made again: random numbers, a copy."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            function = part.func
            name = function.attr if isinstance(function, ast.Attribute) else ""
            name = function.id if isinstance(function, ast.Name) else name
            if name in _RANDOM:
                return True
    if not isinstance(node, ast.Assign):
        return False
    values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    return all(_is_copy(value) for value in values)


def _is_copy(value: ast.expr) -> bool:
    """``x.clone()``, ``x.detach().clone().float()``, ``copy.deepcopy(x)``; a literal also."""
    if isinstance(value, ast.Constant):
        return True
    copied = False
    while isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else ""
        name = value.func.id if isinstance(value.func, ast.Name) else name
        copied = copied or name in _COPIES
        if name in ("copy", "deepcopy") and value.args:
            value = value.args[0]
        elif isinstance(value.func, ast.Attribute):
            value = value.func.value
        else:
            return False
    return copied and isinstance(value, (ast.Name, ast.Attribute, ast.Subscript))
