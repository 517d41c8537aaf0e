"""What was left out of a trial although what is expected, or passed, comes from it.

A reference is a slice by data flow, and flow through a call of somebody's kernel cannot be seen: a
statement such as ``ops.rms_norm(out, x)`` may write to any of its arguments. Where it stands
between, the slice is none of what the test does, and says so.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from orchestrator.author.trial.calls import Names
from orchestrator.author.trial.flatten import Step
from orchestrator.author.trial.scopes import binds, last_name, reads, root, value_reads
from orchestrator.author.trial.sides import assignments
from orchestrator.author.trial.slices import Line

_KNOWN = frozenset(("torch", "numpy", "np", "math", "random", "pytest", "os", "sys", "copy"))
_BUFFERS = frozenset(("empty", "empty_like", "new_empty", "empty_strided"))
_PLAIN = _BUFFERS | {"zeros", "zeros_like", "new_zeros", "full", "full_like", "ones", "ones_like"}
_SAME = frozenset(
    [
        *("clone", "copy", "deepcopy", "detach", "contiguous", "to", "cpu", "cuda", "float"),
        *("double", "half", "bfloat16", "view", "reshape", "flatten", "squeeze", "unsqueeze"),
    ]
)
_OVERWRITES = frozenset(("zero_", "fill_", "copy_", "normal_", "uniform_", "random_"))


@dataclass(frozen=True)
class Omission:
    """A statement that was left out. ``own``: it calls the operator itself."""

    step: Step
    names: tuple[str, ...]
    own: bool = False

    def __str__(self) -> str:
        names = ", ".join(self.names)
        if self.own:
            return f"{names}: another call of the operator makes it, which no reference can be"
        what = " ".join(ast.unparse(self.step.node).split())
        what = what if len(what) <= 60 else f"{what[:57]}..."
        return f"what {names} should be: {what!r} may write to it and was left out"


class Omissions:
    """Looks through one line for what ``kept``, the statements of a trial, lack."""

    def __init__(self, line: Line, kept: Iterable[int], names: Names) -> None:
        self._line = line
        self._kept = set(kept)
        self._names = names

    def of_expected(self, value: ast.expr, before: int) -> list[Omission]:
        """What an expected value lacks that is compared at index ``before``."""
        return list(self._missing(reads(value), before, lambda name: True))

    def of_arguments(self, values: Iterable[ast.expr]) -> list[Omission]:
        """What the operator's arguments lack: somebody's kernel filled what was made empty."""
        names = {name for value in values for name in reads(value)}
        return list(self._missing(names, self._line.call, self._is_buffer))

    def _missing(
        self, names: Iterable[str], before: int, may: Callable[[str], bool]
    ) -> Iterator[Omission]:
        line, wanted = self._line, set(names)
        for index in range(before - 1, -1, -1):
            step, what = line.steps[index], line.effects[index]
            if index == line.call:
                continue
            if index in self._kept:
                whole = self._overwritten(step.node)
                if not step.when:
                    wanted -= what.replaces | whole
                wanted |= what.reads - whole
                continue
            around = line.sharing.around(wanted)
            if index in line.holding:
                found = set((what.changes | what.binds) & around)
                if before <= line.call:
                    # What is given empty is nothing but written: how often does not matter.
                    found = {name for name in found if not self._is_buffer(name)}
            else:
                found = {n for n in self._unseen(step) & around if may(n)}
                found |= what.changes & wanted if step.loops else set()
            if found:
                yield Omission(step, tuple(sorted(found)), index in line.holding)

    @staticmethod
    def _overwritten(node: ast.stmt) -> set[str]:
        """``x`` of ``x.zero_()``: whatever it was before does not matter."""
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            owner = call.func.value
            if isinstance(owner, ast.Name) and call.func.attr in _OVERWRITES:
                return {owner.id}
        return set()

    def _unseen(self, step: Step) -> set[str]:
        """Names that calls of functions which cannot be looked into may write to."""
        found: set[str] = set()
        for node in ast.walk(step.node):
            call = node.value if isinstance(node, ast.Expr) else None
            if isinstance(call, ast.Call) and self._is_foreign(call, step):
                for value in [*call.args, *(k.value for k in call.keywords)]:
                    found |= value_reads(value)
        return found

    def _is_foreign(self, call: ast.Call, step: Step) -> bool:
        path = self._names.path(call.func) or ""
        if path.startswith("torch.ops."):
            return True
        head = root(call.func)
        imported = head is not None and (head in step.source.imports or head in self._names.imports)
        return imported and path.lstrip(".").partition(".")[0] not in _KNOWN

    def _is_buffer(self, name: str) -> bool:
        """Whether a name is made empty, to be filled."""
        made = [v for _, v in self._made(name)]
        return any(isinstance(v, ast.Call) and last_name(v.func) in _BUFFERS for v in made)

    def _made(self, name: str) -> Iterator[tuple[int, ast.expr]]:
        for index, step in enumerate(self._line.steps):
            for target, value, element in assignments(step.node):
                if target == name and element is None:
                    yield index, value

    def nothing_computed(self, value: ast.expr, before: int, written: set[str]) -> bool:
        """Whether an expected value is a constant, or only what the operator got and overwrites.

        ``written``: names of what the operator writes to.
        """
        if not isinstance(value, ast.Name) and not _is_same(value):
            return False
        line, wanted = self._line, value_reads(value)
        for index in range(before - 1, -1, -1):
            step, what = line.steps[index], line.effects[index]
            if index == line.call or not (what.binds | what.changes) & wanted:
                continue
            if what.changes & wanted - what.binds or step.when:
                return False
            values = {t: v for t, v, e in assignments(step.node) if e is None}
            names = set(binds(step.node)) & wanted
            if not names <= set(values):
                return False
            for name in names:
                wanted.discard(name)
                made = values[name]
                if isinstance(made, ast.Call) and last_name(made.func) in _PLAIN:
                    continue
                if not isinstance(made, ast.Name) and not _is_same(made):
                    if name not in written:
                        return False
                    continue
                wanted |= value_reads(made)
        return not wanted


def _is_same(value: ast.expr) -> bool:
    """``x.clone()``, ``x.float().cpu()``: the elements of one name as they are."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr not in _SAME:
            return False
        inner = value.func.value
        value = value.args[0] if isinstance(inner, ast.Name) and inner.id == "copy" else inner
    return isinstance(value, ast.Name)
