"""Python annotations and defaults as those of torch's schemas."""

from __future__ import annotations

import ast

_PLAIN = {
    **{name: name for name in ("Tensor", "int", "float", "bool", "str", "complex")},
    "dtype": "ScalarType",
    "device": "Device",
    "Size": "int[]",
    "Generator": "Generator",
    "SymInt": "SymInt",
    "layout": "Layout",
    "memory_format": "MemoryFormat",
    "Number": "Scalar",
    "object": "Any",
}
_LISTS = frozenset(("list", "List", "Sequence", "Iterable", "tuple", "Tuple"))


def annotated_type(node: ast.expr | None) -> str:
    """The schema's type for an annotation; ``Any`` where there is none, or none that it knows."""
    found = _type(node, 0)
    return found if found is not None else "Any"


def _type(node: ast.expr | None, depth: int) -> str | None:
    if node is None or depth > 10:
        return None
    if isinstance(node, ast.Constant):
        if node.value is None:
            return "None"
        if isinstance(node.value, str) and len(node.value) < 500:
            try:
                return _type(ast.parse(node.value, mode="eval").body, depth + 1)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return None
        return None
    if isinstance(node, (ast.Name, ast.Attribute)):
        return _PLAIN.get(node.id if isinstance(node, ast.Name) else node.attr)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _either([_type(node.left, depth + 1), _type(node.right, depth + 1)])
    if isinstance(node, ast.Subscript):
        return _subscripted(node, depth)
    return None


def _subscripted(node: ast.Subscript, depth: int) -> str | None:
    outer = node.value.attr if isinstance(node.value, ast.Attribute) else None
    outer = node.value.id if isinstance(node.value, ast.Name) else outer
    inside = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    if outer == "Optional":
        return _either([_type(inside[0], depth + 1), "None"])
    if outer == "Union":
        return _either([_type(each, depth + 1) for each in inside])
    if outer in _LISTS and inside:
        element = _type(inside[0], depth + 1)
        return f"{element}[]" if element is not None and element != "None" else None
    if outer == "Annotated" and inside:
        return _type(inside[0], depth + 1)
    return None


def _either(kinds: list[str | None]) -> str | None:
    """One type, or none of it; other unions are anything."""
    others = list(dict.fromkeys(kind for kind in kinds if kind != "None"))
    if len(others) != 1:
        # int | float is what torch calls a Scalar.
        scalar = set(others) <= {"int", "float", "bool"}
        one: str | None = "Scalar" if others and scalar else None
    else:
        one = others[0]
    if one is None:
        return "Any?" if "None" in kinds else None
    return f"{one.removesuffix('?')}?" if "None" in kinds else one


def returned_types(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    """Types of what a function returns, by its annotation, else by its return statements."""
    node = function.returns
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            node = ast.parse(node.value, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            node = None
    if node is not None:
        if isinstance(node, ast.Constant) and node.value is None:
            return ()
        name = node.value if isinstance(node, ast.Subscript) else None
        word = getattr(name, "attr", getattr(name, "id", ""))
        if word in ("tuple", "Tuple") and isinstance(node, ast.Subscript):
            inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if not any(isinstance(each, ast.Constant) and each.value is ... for each in inside):
                return tuple(annotated_type(each) for each in inside)
        return (annotated_type(node),)
    values = [r.value for r in own_nodes(function) if isinstance(r, ast.Return)]
    given = [v for v in values if v is not None and not _is_none(v)]
    if not given:
        return ()
    last = given[-1]
    return ("Any",) * (len(last.elts) if isinstance(last, ast.Tuple) else 1)


def own_nodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.AST]:
    """All nodes of a function's body but those of functions and classes inside it, in order."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = list(reversed(function.body))
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            waiting.extend(reversed(list(ast.iter_child_nodes(node))))
    return found


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
