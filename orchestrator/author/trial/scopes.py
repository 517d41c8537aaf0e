"""Names in Python code: what it reads from outside, what it binds, which of its uses are of values.

All by ``ast``, with Python's own scoping: comprehensions, lambdas, nested functions and classes
read from around them, and bind nothing there.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Sequence

BUILTINS = frozenset(dir(builtins)) | {"__file__", "__name__"}

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Reading these of a tensor tells nothing of what it holds.
_METADATA = frozenset(
    [
        "shape",
        "dtype",
        "device",
        "size",
        "dim",
        "ndim",
        "numel",
        "stride",
        "is_cuda",
        "layout",
        "is_contiguous",
        "element_size",
        "get_device",
        "itemsize",
    ]
)
_LIKE = frozenset(["empty_like", "zeros_like", "ones_like", "rand_like", "randn_like", "full_like"])
_NEW = frozenset(["new_empty", "new_zeros", "new_ones", "new_full", "new_tensor"])


def parameters(function: FunctionNode | ast.Lambda) -> list[str]:
    """Names of a function's parameters, in order, starred ones included."""
    a = function.args
    plain = [arg.arg for arg in [*a.posonlyargs, *a.args, *a.kwonlyargs]]
    return plain + [arg.arg for arg in (a.vararg, a.kwarg) if arg is not None]


def binds(nodes: ast.AST | Sequence[ast.AST]) -> dict[str, None]:
    """Names that the code binds in the scope that it stands in, in order."""
    found: dict[str, None] = {}
    for node in nodes if isinstance(nodes, Sequence) else [nodes]:
        _collect_binds(node, found)
    return found


def _collect_binds(node: ast.AST, found: dict[str, None]) -> None:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        found.setdefault(node.name)
        return
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, _COMPREHENSIONS):
        # Its targets are its own; a walrus within it is not.
        for inner in ast.walk(node):
            if isinstance(inner, ast.NamedExpr):
                found.setdefault(inner.target.id)
        return
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            found.setdefault(node.id)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            found.setdefault(alias.asname or alias.name.partition(".")[0])
    elif (isinstance(node, ast.ExceptHandler) and node.name) or (
        isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name
    ):
        found.setdefault(node.name)
    for child in ast.iter_child_nodes(node):
        _collect_binds(child, found)


def reads(node: ast.AST | None) -> dict[str, None]:
    """Names that a piece of code reads from around it, in order.

    A statement's own bindings count: ``x = x + 1`` reads ``x``; a block reads what it uses before
    it binds it.
    """
    found: dict[str, None] = {}
    if isinstance(node, ast.stmt):
        _flow([node], set(), found)
    elif node is not None:
        _expression(node, frozenset(), found)
    return found


def unbound(statements: Iterable[ast.stmt], known: Iterable[str] = ()) -> dict[str, None]:
    """Names that a sequence of statements reads before it binds them, ``known`` ones aside."""
    found: dict[str, None] = {}
    _flow(statements, set(known), found)
    return found


def _flow(statements: Iterable[ast.stmt], bound: set[str], found: dict[str, None]) -> None:
    """Note reads of names not ``bound``, which grows by what each statement binds."""
    for node in statements:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if not isinstance(node, ast.ClassDef):
                bound.add(node.name)
            _expression(node, frozenset(bound), found)
            bound.add(node.name)
            continue
        for part in _heads(node):
            _expression(part, frozenset(bound), found)
        own: set[str] = set()
        for part in _targets(node):
            own.update(binds(part))
        bound |= own
        arms = list(_arms(node))
        grown = set(bound)
        for arm in arms:
            inside = set(bound) if isinstance(node, (ast.If, ast.Match)) else grown
            _flow(arm, inside, found)
            grown |= inside
        bound |= grown
        if not arms:
            bound.update(binds(node))


def _heads(node: ast.stmt) -> Iterator[ast.AST]:
    """What a statement evaluates before it binds anything; for a simple one all of it."""
    if isinstance(node, (ast.For, ast.AsyncFor)):
        yield node.iter
        yield node.target
    elif isinstance(node, (ast.While, ast.If)):
        yield node.test
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        yield from node.items
    elif isinstance(node, ast.Match):
        yield node.subject
        for case in node.cases:
            yield case.pattern
            if case.guard is not None:
                # A guard reads what its own pattern binds: close enough to call it bound.
                yield ast.Lambda(args=_captures(case.pattern), body=case.guard)
    elif isinstance(node, ast.Try):
        for handler in node.handlers:
            if handler.type is not None:
                yield handler.type
    elif isinstance(node, ast.AugAssign):
        yield node.value
        target = node.target
        # It reads what it writes.
        yield ast.Name(target.id, ast.Load()) if isinstance(target, ast.Name) else target
    else:
        yield node


def _captures(pattern: ast.pattern) -> ast.arguments:
    names = [ast.arg(name) for name in binds(pattern)]
    return ast.arguments([], names, None, [], [], None, [])


def _targets(node: ast.stmt) -> Iterator[ast.AST]:
    if isinstance(node, (ast.For, ast.AsyncFor)):
        yield node.target
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        yield from node.items
    elif isinstance(node, ast.Match):
        yield from (case.pattern for case in node.cases)
    elif isinstance(node, (ast.While, ast.If)):
        yield node.test


def _arms(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse"):
        arm = getattr(node, field, None)
        if arm:
            yield arm
    for handler in getattr(node, "handlers", []):
        name = [ast.Pass()] if handler.name is None else [_assignment(handler.name)]
        yield [*name, *handler.body]
    if getattr(node, "finalbody", None):
        yield node.finalbody  # type: ignore[attr-defined]
    for case in getattr(node, "cases", []):
        yield case.body


def _assignment(name: str) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None))


def _expression(node: ast.AST, bound: frozenset[str], found: dict[str, None]) -> None:
    """Note the names that an expression, or a definition, reads from around it."""
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load) and node.id not in bound:
            found.setdefault(node.id)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        for part in [*node.decorator_list, node.args, *([node.returns] if node.returns else [])]:
            _expression(part, bound, found)
        own = {*parameters(node), *binds(node.body)} - _outer(node.body)
        _flow(node.body, set(bound | own), found)
    elif isinstance(node, ast.Lambda):
        _expression(node.args, bound, found)
        _expression(node.body, bound | set(parameters(node)), found)
    elif isinstance(node, ast.ClassDef):
        for part in [*node.decorator_list, *node.bases, *node.keywords]:
            _expression(part, bound, found)
        _class_body(node, bound, found)
    elif isinstance(node, _COMPREHENSIONS):
        inner = bound
        for generator in node.generators:
            _expression(generator.iter, inner, found)
            inner = inner | set(binds(generator.target))
            for part in [generator.target, *generator.ifs]:
                _expression(part, inner, found)
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        for part in results:
            _expression(part, inner, found)
    else:
        for child in ast.iter_child_nodes(node):
            _expression(child, bound, found)


def _class_body(node: ast.ClassDef, bound: frozenset[str], found: dict[str, None]) -> None:
    """Its names are seen by its own statements, but not inside its methods."""
    seen = set(bound)
    for statement in node.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for decorator in statement.decorator_list:
                _expression(decorator, frozenset(seen), found)
            _expression(statement.args, frozenset(seen), found)
            inside = {*parameters(statement), *binds(statement.body)}
            _flow(statement.body, {*bound, *inside, "super", "__class__"}, found)
            seen.add(statement.name)
        else:
            _flow([statement], seen, found)


def _outer(body: Sequence[ast.stmt]) -> set[str]:
    """Names that a function's body takes from outside by ``global`` or ``nonlocal``."""
    return {
        name
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, (ast.Global, ast.Nonlocal))
        for name in node.names
    }


def value_reads(node: ast.AST) -> set[str]:
    """Names whose values the code reads: not ``x`` in ``x.shape[0]`` or ``torch.empty_like(x)``."""
    if isinstance(node, ast.Attribute) and node.attr in _METADATA:
        return set()
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in _METADATA | _NEW or name in _LIKE:
            parts: list[ast.AST] = [*node.args[1 if name in _LIKE else 0 :], *node.keywords]
            return set().union(*(value_reads(part) for part in parts)) & set(reads(node))
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Load) else set()
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return {node.target.id} | value_reads(node.value)
    return set().union(*(value_reads(child) for child in ast.iter_child_nodes(node)))


def root(node: ast.AST) -> str | None:
    """The name that a chain of attributes, items and calls starts from: ``x`` of ``x[0].t()``."""
    while True:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func
        else:
            return None


def last_name(node: ast.AST) -> str:
    """``c`` of ``a.b.c``, whatever ``a.b`` is; empty when the code is no name or attribute."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def dotted(node: ast.AST) -> str | None:
    """``a.b.c`` of a chain of plain attributes, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])
