"""How a unit test makes the tensors that it passes: shape, dtype, whether they hold anything."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.author.emit import code
from orchestrator.author.trial.literals import canonical
from orchestrator.author.trial.scopes import dotted

Made = Literal["empty", "filled", "data"]
_EMPTY = frozenset({"empty", "empty_like", "new_empty", "empty_strided"})
_FILLED = frozenset({"zeros", "zeros_like", "ones", "ones_like", "full", "full_like"})
_FILLED_NEW = frozenset({"new_zeros", "new_ones", "new_full"})
# Behind how many arguments the dimensions of a factory begin.
_SIZES_AT = {"randint": 1, "full": 0, "normal": 2, "new_full": 0}
_LIKE = "_like"


@dataclass(frozen=True)
class Tensor:
    """``shape``: its dimensions as the test writes them, None where it does not say.

    ``dtype``: the expression of its dtype, None where torch's default or another tensor decides.
    ``made``: ``empty`` holds nothing yet, ``filled`` one value, ``data`` what it was given.
    """

    name: str
    shape: tuple[str, ...] | None = None
    dtype: str | None = None
    made: Made = "data"


def tensor(name: str, statements: Sequence[str], depth: int = 0) -> Tensor:
    """What the statements make under ``name``."""
    value: ast.expr | None = None
    touched = False
    for text in statements:
        found = _assigned(text, name)
        if found is not None:
            value, touched = found, False
        elif name in code.changes(text):
            touched = True
    if value is None:
        return Tensor(name)
    made = _described(name, value, statements, depth)
    if touched and made.made != "data":
        return Tensor(name, made.shape, made.dtype, "data")
    return made


def from_helper(name: str, statements: Sequence[str], helpers: Sequence[str]) -> Tensor:
    """What a function of the test's returns under ``name``, where it is one that makes it."""
    for text in statements:
        value = _assigned(text, name)
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name):
            continue
        for helper in helpers:
            for node in code.parsed(helper):
                if isinstance(node, ast.FunctionDef) and node.name == value.func.id:
                    return _returned(name, node)
    return Tensor(name)


def _returned(name: str, function: ast.FunctionDef) -> Tensor:
    last = function.body[-1]
    if not isinstance(last, ast.Return) or not isinstance(last.value, ast.Name):
        return Tensor(name)
    body = [ast.unparse(node) for node in function.body[:-1]]
    return Tensor(name, None, tensor(last.value.id, body).dtype)


def _assigned(text: str, name: str) -> ast.expr | None:
    """The expression that a plain assignment of ``name`` gives it."""
    for node in code.parsed(text):
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            pairs: list[tuple[ast.expr, ast.expr]] = [(node.target, node.value)]
        elif isinstance(node, ast.Assign):
            pairs = [pair for target in node.targets for pair in _pairs(target, node.value)]
        else:
            continue
        for target, value in pairs:
            if isinstance(target, ast.Name) and target.id == name:
                return value
    return None


def _pairs(target: ast.expr, value: ast.expr) -> Sequence[tuple[ast.expr, ast.expr]]:
    """What is assigned to what: ``a, b = c, d`` is two assignments."""
    several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
    if several and len(target.elts) == len(value.elts):  # type: ignore[attr-defined]
        return list(zip(target.elts, value.elts, strict=True))  # type: ignore[attr-defined]
    return [(target, value)]


def _described(name: str, value: ast.expr, statements: Sequence[str], depth: int) -> Tensor:
    plain = True
    dtype: str | None = None
    node: ast.expr = value
    # x.to(dtype), x * 2 and -x are as long as x.
    while not _is_factory(node):
        if isinstance(node, ast.IfExp):
            # What it is where it is anything at all.
            none = isinstance(node.body, ast.Constant) and node.body.value is None
            node = node.orelse if none else node.body
        elif isinstance(node, ast.BinOp):
            node, plain = node.left, False
        elif isinstance(node, ast.UnaryOp):
            node, plain = node.operand, False
        elif isinstance(node, ast.Name) and depth < 4 and node.id != name:
            other = tensor(node.id, statements, depth + 1)
            made: Made = other.made if plain else "data"
            return Tensor(name, other.shape, dtype or other.dtype, made)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method = node.func.attr
            if method in ("to", "type"):
                dtype = dtype or _dtype_of(node)
            elif method in ("half", "float", "double", "bfloat16", "int", "long"):
                dtype = dtype or canonical(f"torch.{method}")
            elif method not in ("cuda", "contiguous", "clone", "requires_grad_", "detach", "abs"):
                return Tensor(name)
            plain = plain and method != "clone"
            node = node.func.value
        else:
            return Tensor(name)
    assert isinstance(node, ast.Call)
    maker = _called(node)
    if maker.endswith(_LIKE):
        model = node.args[0] if node.args else None
        other = Tensor(name)
        if isinstance(model, ast.Name) and depth < 4:
            other = tensor(model.id, statements, depth + 1)
        shape, like_dtype = other.shape, other.dtype
    else:
        shape, like_dtype = _shape(maker, node), None
    dtype = dtype or _dtype_of(node) or like_dtype
    return Tensor(name, shape, dtype, _made(maker) if plain else "data")


def _made(maker: str) -> Made:
    if maker in _EMPTY:
        return "empty"
    return "filled" if maker in _FILLED | _FILLED_NEW else "data"


def _is_factory(node: ast.expr) -> bool:
    maker = _called(node) if isinstance(node, ast.Call) else ""
    known = maker.removesuffix(_LIKE) in (
        *("empty", "zeros", "ones", "full", "rand", "randn", "randint", "normal", "randperm"),
        *("arange", "tensor", "new_empty", "new_zeros", "new_ones", "new_full"),
    )
    return known and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def _dtype_of(call: ast.Call) -> str | None:
    for keyword in call.keywords:
        if keyword.arg == "dtype":
            return _spelled(keyword.value)
    if _called(call) in ("to", "type"):
        for argument in call.args:
            text = _spelled(argument)
            if text.startswith("torch.") or "dtype" in text:
                return text
    return None


def _spelled(node: ast.expr) -> str:
    path = dotted(node)
    return canonical(path) if path is not None and path.startswith("torch.") else ast.unparse(node)


def _shape(maker: str, call: ast.Call) -> tuple[str, ...] | None:
    """The dimensions that a factory is given, one by one or as a tuple."""
    if maker == "tensor":
        first = call.args[0] if call.args else None
        if isinstance(first, ast.Constant):
            return ()
        if isinstance(first, (ast.List, ast.Tuple)):
            return (str(len(first.elts)),)
        return None
    if maker in ("arange", "randperm"):
        return (ast.unparse(call.args[0]),) if len(call.args) == 1 else None
    for argument in call.args[_SIZES_AT.get(maker, 0) :]:
        if isinstance(argument, (ast.Tuple, ast.List)):
            return _dimensions(argument.elts)
    sizes = [k.value for k in call.keywords if k.arg == "size"]
    if sizes and isinstance(sizes[0], (ast.Tuple, ast.List)):
        return _dimensions(sizes[0].elts)
    if maker in ("randint", "full", "new_full", "normal"):
        return None
    if len(call.args) == 1 and not isinstance(call.args[0], (ast.Constant, ast.Name, ast.BinOp)):
        return None  # x.shape, say
    return _dimensions(call.args) if call.args else None


def _dimensions(nodes: Sequence[ast.expr]) -> tuple[str, ...] | None:
    if any(isinstance(node, ast.Starred) for node in nodes):
        return None
    return tuple(ast.unparse(node) for node in nodes)
