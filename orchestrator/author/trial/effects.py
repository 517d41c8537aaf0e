"""What a statement does to names: which it binds, which it changes in place, what shares memory.

Where it cannot be told, the answer is the one that keeps more of the test: a method called for its
effect changes the object it is called on.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from orchestrator.author.trial.scopes import FunctionNode, binds, dotted, parameters, reads, root

# Methods and functions whose result shows the memory of what they are called on.
_VIEWS = frozenset(
    [
        "view",
        "view_as",
        "reshape",
        "reshape_as",
        "split",
        "chunk",
        "unbind",
        "transpose",
        "permute",
        "swapaxes",
        "movedim",
        "t",
        "mT",
        "T",
        "squeeze",
        "unsqueeze",
        "expand",
        "expand_as",
        "narrow",
        "select",
        "flatten",
        "unflatten",
        "ravel",
        "data",
        "detach",
        "contiguous",
        "to",
        "cuda",
        "cpu",
        "numpy",
        "from_numpy",
        "as_strided",
        "diagonal",
        "tensor_split",
        "type",
        "unfold",
        "requires_grad_",
        "real",
        "items",
        "values",
        "keys",
        "zip",
        "enumerate",
        "reversed",
        "list",
        "tuple",
        "dict",
    ]
)
# Methods that change what they are called on, and give something back besides.
_MUTATORS = frozenset(("pop", "popitem", "setdefault", "shuffle"))
# Receivers that are modules or settings, not data of the test.
_MODULES = frozenset(
    [
        "torch",
        "np",
        "numpy",
        "random",
        "math",
        "pytest",
        "itertools",
        "functools",
        "F",
        "nn",
        "os",
        "sys",
    ]
)

Mutates = Callable[[ast.Call], Iterable[ast.expr]]


def _none(_: ast.Call) -> Iterable[ast.expr]:
    return ()


def changes(node: ast.AST, mutates: Mutates = _none) -> dict[str, None]:
    """Names whose objects the code changes in place, in order.

    ``mutates``: which arguments of a call to one of the test's functions, or to the operator, are
    written.
    """
    found: dict[str, None] = {}

    def note(target: ast.AST) -> None:
        name = _owner(target)
        if name is not None and name not in _MODULES:
            found.setdefault(name)

    for part in ast.walk(node):
        if isinstance(part, (ast.Subscript, ast.Attribute)) and isinstance(
            part.ctx, (ast.Store, ast.Del)
        ):
            note(part)
        elif isinstance(part, ast.AugAssign):
            note(part.target)
        elif (
            isinstance(part, ast.Expr)
            and isinstance(part.value, ast.Call)
            and isinstance(part.value.func, ast.Attribute)
        ):
            note(part.value.func)
        if isinstance(part, ast.Call):
            for target in [*_written(part), *mutates(part)]:
                note(target)
    return found


def _owner(node: ast.AST) -> str | None:
    """The name whose memory an expression shows: ``x`` of ``x[0].view(-1)``, none of a clone."""
    while not isinstance(node, ast.Name):
        if isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method = node.func.attr
            if method not in _VIEWS and not method.endswith("_"):
                return None
            node = node.func.value
        else:
            return None
    return node.id


def _written(call: ast.Call) -> Iterable[ast.expr]:
    for keyword in call.keywords:
        if keyword.arg == "out":
            yield from (
                keyword.value.elts if isinstance(keyword.value, ast.Tuple) else [keyword.value]
            )
    if not isinstance(call.func, ast.Attribute):
        return
    name = call.func.attr
    in_place = name.endswith("_") and not name.endswith("__")
    of_module = root(call.func) in _MODULES and dotted(call.func) is not None
    if of_module:
        # torch.nn.init.normal_(w), random.shuffle(x)
        if (in_place or name == "shuffle") and call.args:
            yield call.args[0]
    elif in_place or name in _MUTATORS:
        yield call.func


def mutated_parameters(function: FunctionNode, mutates: Mutates = _none) -> set[str]:
    """Parameters whose objects a function of the test changes, also through views it makes."""
    written: dict[str, None] = {}
    shared = Sharing()
    rebound: set[str] = set()
    for statement in function.body:
        shared.note(statement)
        for name in changes(statement, mutates):
            if name not in rebound:
                written.setdefault(name)
        if isinstance(statement, ast.Assign):
            # x = x.clone(): from here on it is the function's own.
            rebound.update(
                t.id
                for t in statement.targets
                if isinstance(t, ast.Name) and t.id not in _shown(statement.value)
            )
    return {name for name in parameters(function) if shared.around(written) & {name}}


@dataclass
class Sharing:
    """Which names may show the same memory: views point to what they are views of."""

    bases: dict[str, set[str]] = field(default_factory=dict)

    def note(self, node: ast.AST) -> None:
        """Learn from the assignments and loops of a statement."""
        for part in ast.walk(node):
            if isinstance(part, ast.Assign):
                for target in part.targets:
                    self._pair(target, part.value)
            elif isinstance(part, (ast.AnnAssign, ast.NamedExpr)) and part.value is not None:
                self._pair(part.target, part.value)
            elif isinstance(part, (ast.For, ast.comprehension)):
                self._pair(part.target, part.iter)

    def _pair(self, target: ast.expr, value: ast.expr) -> None:
        if (
            isinstance(target, ast.Tuple)
            and isinstance(value, ast.Tuple)
            and len(target.elts) == len(value.elts)
        ):
            for left, right in zip(target.elts, value.elts, strict=True):
                self._pair(left, right)
            return
        names = binds(target)
        if isinstance(target, ast.Attribute) or _is_entry(target):
            names = {name: None for name in [root(target)] if name}
        for name in names:
            self.bases.setdefault(name, set()).update(_shown(value) - {name})

    def family(self, names: Iterable[str]) -> set[str]:
        """``names`` with what they are views of and the views of them; siblings not."""
        return self._up(names) | self._down(names)

    def around(self, names: Iterable[str]) -> set[str]:
        """All names that may show any memory of ``names``, siblings too."""
        return self._down(self._up(names))

    def _up(self, names: Iterable[str]) -> set[str]:
        seen: set[str] = set()
        todo = list(names)
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo.extend(self.bases.get(name, ()))
        return seen

    def _down(self, names: Iterable[str]) -> set[str]:
        seen = set(names)
        grown = True
        while grown:
            more = {name for name, bases in self.bases.items() if bases & seen} - seen
            seen |= more
            grown = bool(more)
        return seen


def _is_entry(target: ast.expr) -> bool:
    """Whether a target is an entry of a dict: other items are of tensors, which copy."""
    return (
        isinstance(target, ast.Subscript)
        and isinstance(target.slice, ast.Constant)
        and isinstance(target.slice.value, str)
    )


def _shown(value: ast.AST) -> set[str]:
    """Names whose memory the value of an expression may show."""
    if isinstance(value, ast.Name):
        return {value.id}
    if isinstance(value, (ast.Tuple, ast.List, ast.Set)):
        return set().union(*(_shown(e) for e in value.elts))
    if isinstance(value, ast.Dict):
        return set().union(*(_shown(e) for e in value.values))
    if isinstance(value, ast.IfExp):
        return _shown(value.body) | _shown(value.orelse)
    if isinstance(value, (ast.Subscript, ast.Starred)):
        return _shown(value.value)
    if isinstance(value, ast.Attribute):
        return _shown(value.value) if value.attr in _VIEWS else set()
    if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
        return set().union(_shown(value.elt), *(_shown(g.iter) for g in value.generators))
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else ""
        if isinstance(value.func, ast.Name):
            name = value.func.id
        if name in _VIEWS:
            parts = [*value.args]
            if isinstance(value.func, ast.Attribute) and root(value.func) not in _MODULES:
                parts = [value.func.value]
            return set().union(*(_shown(part) for part in parts))
    return set()


@dataclass(frozen=True)
class Effect:
    """``replaces``: names that a statement gives another object whatever they were before."""

    reads: frozenset[str]
    binds: frozenset[str]
    changes: frozenset[str]
    replaces: frozenset[str]


def effect(node: ast.stmt, mutates: Mutates = _none) -> Effect:
    """What ``node`` does to the names of the function that it stands in."""
    bound = binds(node)
    simple = isinstance(
        node, (ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.Import, ast.ImportFrom)
    )
    return Effect(
        frozenset(reads(node)),
        frozenset(bound),
        frozenset(changes(node, mutates)),
        frozenset(bound if simple else ()),
    )
