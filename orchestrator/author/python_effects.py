"""What a Python function writes to, requires, and whether it waits: from its tree, not by running.

A tensor is written by an assignment to its elements, a method that ends in ``_``, ``out=``, a
function that writes to it, an operator whose schema says so, or a Triton kernel that stores to it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.author.facts import Constraint, Place
from orchestrator.author.python_types import own_nodes

Function = ast.FunctionDef | ast.AsyncFunctionDef
# Which positions an operator of a torch.ops namespace writes to; None where nobody knows.
WrittenBy = Callable[[str, str], "frozenset[int] | None"]

_DEEPEST = 8
# Methods and functions whose result is another view of the same storage.
_VIEWS = frozenset(
    [
        *("view", "view_as", "reshape", "unsqueeze", "squeeze", "transpose", "permute", "flatten"),
        *("unflatten", "narrow", "select", "expand", "detach", "t", "swapaxes", "movedim"),
        *("chunk", "split", "unbind", "data", "T", "mT", "as_strided", "diagonal"),
    ]
)
_POINTERS = frozenset(("make_block_ptr", "advance", "to", "cast", "multiple_of", "max_contiguous"))
_FETCHES = frozenset(("item", "tolist", "cpu", "numpy", "synchronize"))
# In place by name, but no methods of tensors.
_NOT_IN_PLACE = frozenset(("__class__", "requires_grad_"))


@dataclass
class Module:
    """A parsed file: its functions by name."""

    tree: ast.Module
    path: str
    functions: dict[str, Function] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.tree.body:
            # Functions that are defined under a condition count as well.
            inside = [node, *ast.walk(node)] if isinstance(node, (ast.If, ast.Try)) else [node]
            for one in inside:
                if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    self.functions.setdefault(one.name, one)

    def place(self, node: ast.AST) -> Place:
        """Where a node of it is."""
        return Place(self.path, getattr(node, "lineno", 1))


def parameters(function: Function) -> list[ast.arg]:
    """All named parameters, those by keyword only last."""
    given = function.args
    return [*given.posonlyargs, *given.args, *given.kwonlyargs]


def dotted(node: ast.AST) -> str:
    """``a.b.c`` of an expression that is one; empty for another."""
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join(reversed([*words, node.id]))


def is_kernel(function: Function) -> bool:
    """Whether a decorator makes a Triton kernel of it."""
    return any(
        dotted(each.func if isinstance(each, ast.Call) else each).split(".")[-1] == "jit"
        and dotted(each.func if isinstance(each, ast.Call) else each).split(".")[0]
        in ("triton", "jit", "tl")
        for each in function.decorator_list
    )


def kernels_of(module: Module, function: Function) -> list[Function]:
    """The Triton kernels that a function launches, itself or through functions of its module."""
    found: list[Function] = []
    waiting, seen = [function], {function.name}
    while waiting:
        for node in own_nodes(waiting.pop()):
            if not isinstance(node, ast.Call):
                continue
            launched = isinstance(node.func, ast.Subscript)
            name = dotted(node.func.value if isinstance(node.func, ast.Subscript) else node.func)
            callee = module.functions.get(name)
            if callee is None or callee.name in seen:
                continue
            seen.add(callee.name)
            if launched and is_kernel(callee):
                found.append(callee)
            elif not is_kernel(callee):
                waiting.append(callee)
    return found


class Effects:
    """Which parameters the functions of a module write to."""

    def __init__(self, module: Module, written_by: WrittenBy | None = None) -> None:
        self._module = module
        self._written_by = written_by
        self._known: dict[str, frozenset[str]] = {}
        self._replaced: set[ast.Name] = set()  # uses of a parameter's name for something else

    def written(self, function: Function, depth: int = 0) -> frozenset[str]:
        """Names of the parameters that it writes to."""
        if depth > _DEEPEST:
            return frozenset()
        if function.name not in self._known:
            self._known[function.name] = frozenset()  # what a recursive call knows of itself
            names = {each.arg: each.arg for each in parameters(function)}
            nodes = own_nodes(function)
            kernel = is_kernel(function)
            self._replaced |= _replaced(function, set(names))
            for _ in range(2):  # a loop may use above what it assigns below
                for node in nodes:
                    self._alias(node, names, kernel)
            found = set()
            for node in nodes:
                found |= set(self._writes(node, names, kernel, depth))
            self._known[function.name] = frozenset(found)
        return self._known[function.name]

    def _alias(self, node: ast.AST, names: dict[str, str], kernel: bool) -> None:
        if not isinstance(node, ast.Assign) and not isinstance(node, ast.AnnAssign):
            return
        if node.value is None:
            return
        root = self._root(node.value, names, kernel)
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            each = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            values: Sequence[ast.expr | None] = [None] * len(each)
            if isinstance(node.value, ast.Tuple) and len(node.value.elts) == len(each):
                values = node.value.elts
            for name, value in zip(each, values, strict=True):
                own = self._root(value, names, kernel) if value is not None else root
                if isinstance(name, ast.Name) and own is not None:
                    names.setdefault(name.id, own)

    def _root(self, node: ast.AST, names: Mapping[str, str], kernel: bool) -> str | None:
        """The parameter whose storage an expression is a view of, or points into."""
        for _ in range(200):
            if isinstance(node, ast.Name):
                return None if node in self._replaced else names.get(node.id)
            if isinstance(node, ast.Subscript) or (
                isinstance(node, ast.Attribute) and node.attr in _VIEWS
            ):
                node = node.value
            elif isinstance(node, ast.BinOp) and kernel:
                # A pointer and an offset; the sum of tensors is another tensor.
                return self._root(node.left, names, True) or self._root(node.right, names, True)
            elif isinstance(node, ast.IfExp):
                return self._root(node.body, names, kernel) or self._root(
                    node.orelse, names, kernel
                )
            elif isinstance(node, ast.Call):
                function = node.func
                last = function.attr if isinstance(function, ast.Attribute) else ""
                if last in _POINTERS and dotted(function).startswith(("tl.", "triton.")):
                    base = [k.value for k in node.keywords if k.arg == "base"]
                    given = [*node.args[:1], *base]
                    if not given:
                        return None
                    node = given[0]
                elif isinstance(function, ast.Attribute) and last in _VIEWS | {"to"}:
                    node = function.value
                else:
                    return None
            else:
                return None
        return None

    def _writes(
        self, node: ast.AST, names: Mapping[str, str], kernel: bool, depth: int
    ) -> Iterator[str]:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign):
            targets = [node.target]
        for target in targets:
            changed = isinstance(target, ast.Subscript) or (
                isinstance(node, ast.AugAssign) and isinstance(target, ast.Name) and not kernel
            )
            root = self._root(target, names, kernel) if changed else None
            if root is not None:
                yield root
        if isinstance(node, ast.Call):
            yield from self._called(node, names, kernel, depth)

    def _called(
        self, node: ast.Call, names: Mapping[str, str], kernel: bool, depth: int
    ) -> Iterator[str]:
        function = node.func
        written: set[ast.expr] = {k.value for k in node.keywords if k.arg == "out"}
        if isinstance(function, ast.Subscript):  # kernel[grid](...)
            function = function.value
        name = dotted(function)
        last = function.attr if isinstance(function, ast.Attribute) else name
        if isinstance(function, ast.Attribute):
            in_place = last.endswith("_") and not last.startswith("_") and last not in _NOT_IN_PLACE
            if in_place and not name.startswith(("torch.ops.", "tl.")):
                written.add(function.value)
        if kernel and node.args and (last == "store" or last.startswith("atomic_")):
            written.add(node.args[0])
        callee = self._module.functions.get(name)
        if callee is not None:
            inner = self.written(callee, depth + 1)
            order = [each.arg for each in parameters(callee)]
            written |= {a for a, p in zip(node.args, order, strict=False) if p in inner}
            written |= {k.value for k in node.keywords if k.arg in inner}
        elif name.startswith("torch.ops.") and name.count(".") >= 3 and self._written_by:
            _, _, space, operator = name.split(".")[:4]
            positions = self._written_by(space, operator) or frozenset()
            written |= {a for i, a in enumerate(node.args) if i in positions}
        for value in written:
            inside = value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]
            for one in inside:
                root = self._root(one, names, kernel)
                if root is not None:
                    yield root


_FRESH = re.compile(r"(?:empty|zeros|ones|full|rand)\w*|clone|new_\w+|contiguous|arange")


def _replaced(function: Function, names: set[str]) -> set[ast.Name]:
    """Uses of parameters after a new tensor was put in their place, in the same block.

    ``if scale is None: scale = torch.empty(1); fill(scale)`` writes to no argument.
    """
    found: set[ast.Name] = set()
    for node in [function, *own_nodes(function)]:
        for part in ("body", "orelse", "finalbody"):
            block = getattr(node, part, None)
            if not isinstance(block, list):
                continue
            for number, statement in enumerate(block):
                value = statement.value if isinstance(statement, ast.Assign) else None
                called = value.func if isinstance(value, ast.Call) else None
                last = dotted(called).split(".")[-1] if called is not None else ""
                if not isinstance(statement, ast.Assign) or not _FRESH.fullmatch(last):
                    continue
                new = {t.id for t in statement.targets if isinstance(t, ast.Name)} & names
                for later in block[number + 1 :] if new else ():
                    found |= {
                        use
                        for use in ast.walk(later)
                        if isinstance(use, ast.Name) and use.id in new
                    }
    return found


def waits(module: Module, function: Function) -> tuple[Place, ...]:
    """Where it fetches from the device or waits for it."""
    return tuple(
        module.place(node)
        for node in own_nodes(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _FETCHES
        and not node.args
    )


def constraints(module: Module, function: Function) -> tuple[Constraint, ...]:
    """What it requires: ``assert``, ``if …: raise``, ``torch._check``."""
    found = []
    for node in own_nodes(function):
        condition: str | None = None
        message: ast.expr | None = None
        if isinstance(node, ast.Assert):
            condition, message = ast.unparse(node.test), node.msg
        elif (
            isinstance(node, ast.If)
            and len(node.body) == 1
            and isinstance(node.body[0], ast.Raise)
            and not node.orelse
        ):
            raised = node.body[0].exc
            condition = ast.unparse(_negated(node.test))
            message = raised.args[0] if isinstance(raised, ast.Call) and raised.args else None
        elif isinstance(node, ast.Call) and dotted(node.func) == "torch._check" and node.args:
            condition = ast.unparse(node.args[0])
            message = node.args[1] if len(node.args) > 1 else None
            message = message.body if isinstance(message, ast.Lambda) else message
        if condition is not None:
            found.append(Constraint(condition, _text(message), module.place(node)))
    return tuple(found)


_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        opposite = _OPPOSITE[type(test.ops[0])]()
        return ast.Compare(test.left, [opposite], test.comparators)
    return ast.UnaryOp(ast.Not(), test)


def _text(message: ast.expr | None) -> str:
    if isinstance(message, ast.Constant):
        return str(message.value)
    if isinstance(message, ast.JoinedStr):
        return ast.unparse(message)[2:-1]
    return ast.unparse(message) if message is not None else ""
