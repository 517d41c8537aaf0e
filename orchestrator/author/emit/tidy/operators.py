"""Python's operators: how they are spelled, how tightly they bind, what stands close to them."""

from __future__ import annotations

import ast

# How tightly a construct binds its operands.
NAMED, TEST, OR, AND, NOT, COMPARE, BIT_OR, BIT_XOR, BIT_AND = range(9)
SHIFT, SUM, TERM, FACTOR, POWER, AWAIT, ATOM = range(9, 16)

BINARY: dict[type[ast.operator], tuple[str, int]] = {
    ast.BitOr: ("|", BIT_OR),
    ast.BitXor: ("^", BIT_XOR),
    ast.BitAnd: ("&", BIT_AND),
    ast.LShift: ("<<", SHIFT),
    ast.RShift: (">>", SHIFT),
    ast.Add: ("+", SUM),
    ast.Sub: ("-", SUM),
    ast.Mult: ("*", TERM),
    ast.MatMult: ("@", TERM),
    ast.Div: ("/", TERM),
    ast.Mod: ("%", TERM),
    ast.FloorDiv: ("//", TERM),
    ast.Pow: ("**", POWER),
}
COMPARISON: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
UNARY: dict[type[ast.unaryop], str] = {ast.UAdd: "+", ast.USub: "-", ast.Invert: "~"}


def operator_of(node: ast.operator) -> str:
    """The operator as it is written: ``+``."""
    return BINARY[type(node)][0]


def takes(given: ast.arguments) -> bool:
    """Whether a function takes anything."""
    return bool(given.posonlyargs or given.args or given.vararg or given.kwonlyargs or given.kwarg)


def simple_operand(node: ast.expr) -> bool:
    """Whether a power's operand stands close to its sign."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Invert, ast.UAdd)):
        return simple_operand(node.operand) and not isinstance(node.operand, ast.UnaryOp)
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, (ast.Name, ast.Attribute)) and simple_operand(node.value)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float, complex))
    return isinstance(node, ast.Name)


def simple_bound(node: ast.expr) -> bool:
    """Whether a slice's bound stands close to its colon."""
    if isinstance(node, ast.UnaryOp):
        return not isinstance(node.op, ast.Not) and isinstance(
            node.operand, (ast.Name, ast.Constant)
        )
    return isinstance(node, (ast.Name, ast.Constant))
