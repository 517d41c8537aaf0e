"""The operator's call in a unit test: which expression each of the operator's arguments gets.

A test may call something that only has the operator's name, a framework's wrapper that is not at
hand: its arguments are others. What cannot be a call of this signature is told, and only what has
the name of an argument is taken for it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Sequence

from orchestrator.author.facts import Argument, Operator, Place, Todo
from orchestrator.author.trial.literals import NotLiteral, Value, evaluate, kind
from orchestrator.author.trial.scopes import last_name

Define = Callable[[str], ast.expr | None]
Column = Callable[[str], Sequence[Value]]
_COMPILED = ("schema", "declaration", "pybind")
_MAKES_TENSORS = frozenset(
    ["rand", "randn", "randint", "empty", "zeros", "ones", "empty_like", "zeros_like", "randn_like"]
)
_DEPTH = 4


def given(call: ast.Call, operator: Operator) -> dict[str, ast.expr]:
    """What of ``call`` can be told at a glance: its plain arguments by the operator's names."""
    names = [a.name for a in operator.arguments if not a.keyword_only]
    found = dict(zip(names, call.args, strict=False))
    found.update({k.arg: k.value for k in call.keywords if k.arg})
    return found


def read_arguments(
    call: ast.Call,
    operator: Operator,
    define: Define,
    place: Place,
    *,
    column: Column = lambda _: (),
    single: Define = lambda _: None,
    used: bool = False,
) -> tuple[dict[str, ast.expr], list[Todo]]:
    """The call's arguments by the operator's names, in the order of the call.

    ``define``: the expression that a name was assigned, for ``*args`` and ``**kwargs``.
    ``column``: the values of a parameter of the test. ``single``: as ``define``, of names that are
    assigned once. ``used``: what the call returns is read.
    """
    todos: list[Todo] = []
    positional: list[ast.expr] = []
    for value in call.args:
        opened = [value]
        if isinstance(value, ast.Starred):
            written = _defined(value.value, define)
            if not isinstance(written, (ast.Tuple, ast.List)):
                todos.append(Todo(f"what {ast.unparse(value)} passes to the operator", place))
                continue
            opened = written.elts
        positional.extend(opened)
    keywords: list[tuple[str, ast.expr]] = []
    for keyword in call.keywords:
        named = _named(keyword, define)
        if named is None:
            todos.append(Todo(f"what **{ast.unparse(keyword.value)} passes", place))
        else:
            keywords.extend(named)
    names = [a.name for a in operator.arguments if not a.keyword_only]
    found = dict(zip(names, positional, strict=False))
    known = {a.name for a in operator.arguments}
    for name, value in keywords:
        if name in known and name not in found:
            found[name] = value
        else:
            what = "twice" if name in found else f"which {operator.name} lacks"
            todos.append(Todo(f"the test passes argument {name}, {what}", place))
    if len(positional) > len(names):
        wrong = f"it passes {len(positional)} arguments, of which the operator has {len(names)}"
    else:
        wrong = _misfit(found, operator, single, column) or ""
    if used and operator.kind in _COMPILED and not operator.returns:
        wrong = wrong or "it uses what the call gives back, and the operator gives nothing back"
    if not wrong:
        return found, todos
    called = ast.unparse(call.func)
    hint = (
        "compare the call with the current signature"
        if called.startswith("torch.ops.")
        else "give the source of that function with --source, or pass what the operator takes"
    )
    what = f"how the test calls {operator.name}: {called} has another signature, {wrong}; {hint}"
    return _alike(positional, dict(keywords), operator), [Todo(what, place)]


def _misfit(
    found: dict[str, ast.expr], operator: Operator, define: Define, column: Column
) -> str | None:
    """What the operator cannot take of the arguments that a call would pass by position."""
    for argument in operator.arguments:
        value = found.get(argument.name)
        sorts = set() if value is None else _sorts(value, define, column)
        wrong = sorts - _taken(argument)
        if sorts and wrong == sorts and value is not None:
            which = {"dtype": "a dtype", "none": "None", "tensor": "a tensor"}.get(min(wrong))
            said = f"{ast.unparse(value)} is {which or 'a ' + min(wrong)}"
            return f"{said}, and {argument.name} of the operator a {argument.type}"
    return None


_SCALARS: dict[str, frozenset[str]] = {
    "int": frozenset(("int", "bool", "dtype")),  # ScalarType of older bindings is an int
    "SymInt": frozenset(("int", "bool")),
    "float": frozenset(("int", "float", "bool")),
    "bool": frozenset(("int", "bool")),
    "str": frozenset(("str",)),
    "Tensor": frozenset(("tensor",)),
    "ScalarType": frozenset(("dtype", "int")),
}
_ALL = frozenset(("int", "float", "bool", "str", "dtype", "none", "tensor"))


def _taken(argument: Argument) -> frozenset[str]:
    """Sorts of values that an argument takes; all where its type says nothing."""
    plain = _SCALARS.get(argument.type.removesuffix("?"))
    if plain is None:
        return _ALL
    return plain | {"none"} if argument.optional or argument.default == "None" else plain


def _sorts(value: ast.expr, define: Define, column: Column, depth: int = 0) -> set[str]:
    """What sorts of value an expression has for certain; empty where that is not known."""
    if isinstance(value, ast.Name) and depth < _DEPTH:
        rows = list(column(value.id))
        if rows:
            return _known({"none" if row is None else kind([row]) for row in rows})
        known = define(value.id)
        return set() if known is None else _sorts(known, define, column, depth + 1)
    if isinstance(value, ast.Call):
        made = last_name(value.func)
        library = ast.unparse(value.func).startswith("torch.")
        return {"tensor"} if library and made in _MAKES_TENSORS else set()
    try:
        literal = evaluate(value, lambda _: None)
    except NotLiteral:
        return set()
    return _known({"none" if literal is None else kind([literal])})


def _known(sorts: set[str]) -> set[str]:
    return sorts if sorts <= _ALL else set()


def _alike(
    positional: Collection[ast.expr], keywords: dict[str, ast.expr], operator: Operator
) -> dict[str, ast.expr]:
    """The operator's arguments that variables of their own names, or keywords, are passed for."""
    values = {v.id: v for v in positional if isinstance(v, ast.Name)} | keywords
    return {a.name: values[a.name] for a in operator.arguments if a.name in values}


def _defined(value: ast.expr, define: Define) -> ast.expr | None:
    return define(value.id) if isinstance(value, ast.Name) else value


def _named(keyword: ast.keyword, define: Define) -> list[tuple[str, ast.expr]] | None:
    """Names and values that a keyword, or ``**table``, passes; None where that is not written."""
    if keyword.arg is not None:
        return [(keyword.arg, keyword.value)]
    table = _defined(keyword.value, define)
    if isinstance(table, ast.Call) and ast.unparse(table.func) == "dict":
        return [(k.arg, k.value) for k in table.keywords if k.arg is not None]
    if not isinstance(table, ast.Dict):
        return None
    found: list[tuple[str, ast.expr]] = []
    for key, value in zip(table.keys, table.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return None
        found.append((key.value, value))
    return found
