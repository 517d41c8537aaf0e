"""References one step at a time: what unpacks, dequantises and multiplies in one line is split.

The working description wants it so, for a wrong nibble order or a scale of the wrong group is then
seen where it happens. Statements that do one thing stay as the unit test has them.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection

from orchestrator.author.emit import code

_UNPACKS = frozenset(
    {"bitwise_and", "bitwise_right_shift", "bitwise_left_shift", "bitwise_or", "bitwise_xor"}
)
_MULTIPLIES = frozenset(
    {"matmul", "mm", "bmm", "einsum", "linear", "dot", "addmm", "baddbmm", "mv", "tensordot"}
)
_NAMES = {"unpack": "unpacked", "scale": "dequantised", "multiply": "product"}
# Where an expression may not be evaluated at all, or several times.
_CLOSED = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp)


def stepwise(text: str) -> str:
    """``text`` with every statement that does several of these things split into its steps."""
    edit = code.Edit(text)
    taken = set(code.bound_within([text])) | {
        node.id for node in ast.walk(edit.tree) if isinstance(node, ast.Name)
    }
    for node in ast.walk(edit.tree):
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.Return)) and node.value is not None:
            lines = _split(node, taken)
            if lines is not None:
                edit.replace(node, f"\n{' ' * node.col_offset}".join(lines))
    return edit.done()


def _split(node: ast.Assign | ast.AugAssign | ast.Return, taken: set[str]) -> list[str] | None:
    """The statements that ``node`` becomes; None where it is one step already."""
    assert node.value is not None
    kinds = {kind for inner in ast.walk(node.value) for kind in [_kind(inner)] if kind is not None}
    if "unpack" not in kinds or len(kinds) == 1:
        return None
    hoister = _Hoister(taken)
    changed = copy.deepcopy(node)
    value = hoister.visit(changed.value)  # type: ignore[arg-type]
    assert isinstance(value, ast.expr)
    changed.value = value
    if not hoister.made:
        return None
    return [*hoister.made, ast.unparse(ast.fix_missing_locations(changed))]


class _Hoister(ast.NodeTransformer):
    """Gives a name to every part that does something else than what stands around it."""

    def __init__(self, taken: set[str]) -> None:
        self.made: list[str] = []
        self._taken = taken

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, _CLOSED):
            return node
        kind = _kind(node)
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(node, field, self._part(value, kind))
            elif isinstance(value, list):
                setattr(node, field, [self._item(one, kind) for one in value])
        return node

    def _item(self, value: object, kind: str | None) -> object:
        if isinstance(value, ast.expr):
            return self._part(value, kind)
        if isinstance(value, ast.keyword):
            value.value = self._part(value.value, kind)
        return value

    def _part(self, value: ast.expr, kind: str | None) -> ast.expr:
        inner = self.visit(value)
        assert isinstance(inner, ast.expr)
        own = _outermost(inner)
        if kind is None or own is None or own == kind:
            return inner
        name = self._name(_NAMES[own])
        self.made.append(f"{name} = {ast.unparse(ast.fix_missing_locations(inner))}")
        return ast.Name(name, ast.Load())

    def _name(self, stem: str) -> str:
        name, number = stem, 2
        while name in self._taken:
            name, number = f"{stem}_{number}", number + 1
        self._taken.add(name)
        return name


def _outermost(node: ast.expr) -> str | None:
    """What an expression does last, methods that only convert or reshape aside."""
    while True:
        kind = _kind(node)
        if kind is not None:
            return kind
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        elif isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        elif isinstance(node, ast.UnaryOp):
            node = node.operand
        else:
            return None


def _kind(node: ast.AST) -> str | None:
    """``unpack``, ``scale`` or ``multiply``; None for anything else."""
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, (ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr, ast.BitXor)):
            return None if _constant(node.left) and _constant(node.right) else "unpack"
        if isinstance(node.op, ast.MatMult):
            return "multiply"
        arithmetic = isinstance(node.op, (ast.Mult, ast.Sub, ast.Div))
        return "scale" if arithmetic and not _small(node) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in _UNPACKS:
            return "unpack"
        return "multiply" if node.func.attr in _MULTIPLIES else None
    return None


def _small(node: ast.BinOp) -> bool:
    """Whether it is arithmetic of indices and sizes: with a constant in it."""
    return _constant(node.left) or _constant(node.right)


def _constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def several(texts: Collection[str]) -> list[str]:
    """All of ``texts``, each in its steps."""
    return [stepwise(text) for text in texts]
