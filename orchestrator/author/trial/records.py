"""Cases of a test as records: dicts, dataclasses, named tuples; and reads of their fields."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from orchestrator.author.trial.literals import Record, Value
from orchestrator.author.trial.scopes import dotted, last_name


def as_function(statement: ast.stmt, name: str) -> ast.Lambda | None:
    """A class of plain fields as the function of a dict that its name stands for, else None."""
    if isinstance(statement, ast.ClassDef) and statement.name == name:
        decorators = [d.func if isinstance(d, ast.Call) else d for d in statement.decorator_list]
        bases = {last_name(base) for base in statement.bases}
        if "NamedTuple" in bases or any(last_name(d) == "dataclass" for d in decorators):
            fields = [s for s in statement.body if isinstance(s, ast.AnnAssign)]
            named = [
                (s.target.id, _default(s.value)) for s in fields if isinstance(s.target, ast.Name)
            ]
            return _function(named)
    if isinstance(statement, ast.Assign) and dotted(statement.targets[0]) == name:
        made = statement.value
        if isinstance(made, ast.Call) and last_name(made.func) == "namedtuple":
            words = _words(made.args[1]) if len(made.args) > 1 else []
            return _function([(word, None) for word in words]) if words else None
    return None


def _default(value: ast.expr | None) -> ast.expr | None:
    """What a field is where it is not given: ``1`` of ``field(default=1)``."""
    if isinstance(value, ast.Call) and last_name(value.func) == "field":
        return next((k.value for k in value.keywords if k.arg == "default"), value)
    return value


def _words(node: ast.expr) -> list[str]:
    """Names that a namedtuple is given: in one string, or in a list of them."""
    parts = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
    texts = [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]
    return [word for text in texts for word in text.replace(",", " ").split()]


def _function(fields: Sequence[tuple[str, ast.expr | None]]) -> ast.Lambda:
    given = [ast.arg(name) for name, _ in fields]
    defaults = [value for _, value in fields if value is not None]
    arguments = ast.arguments([], given, None, [], [], None, defaults)
    same = [ast.keyword(name, ast.Name(name, ast.Load())) for name, _ in fields]
    return ast.Lambda(arguments, ast.Call(ast.Name("dict", ast.Load()), [], same))


def fields_of(values: Sequence[Value]) -> list[str]:
    """Fields that all of ``values`` have, if they are records of the same ones, else none."""
    if not values or not all(isinstance(value, dict) for value in values):
        return []
    names = list(values[0])
    plain = all(isinstance(name, str) and name.isidentifier() for name in names)
    same = all(set(value) == set(names) for value in values)
    return names if plain and same else []


def whole(value: Value, names: Mapping[str, str]) -> ast.expr:
    """The record itself, of the names that its fields have become."""
    if isinstance(value, Record):
        given = [ast.keyword(field, ast.Name(name, ast.Load())) for field, name in names.items()]
        return ast.Call(ast.Name(value.made_by, ast.Load()), [], given)
    keys: list[ast.expr | None] = [ast.Constant(field) for field in names]
    return ast.Dict(keys, [ast.Name(name, ast.Load()) for name in names.values()])


def field_read(node: ast.AST, record: str) -> str | None:
    """The field that ``case["m"]`` or ``case.m`` reads of ``record``."""
    if not isinstance(node, (ast.Subscript, ast.Attribute)):
        return None
    if not isinstance(node.value, ast.Name) or node.value.id != record:
        return None
    if isinstance(node, ast.Attribute):
        return node.attr
    key = node.slice
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


class Fields(ast.NodeTransformer):
    """Reads of the fields of ``record`` as reads of the names that they have become."""

    def __init__(self, record: str, names: Mapping[str, str]) -> None:
        self._record = record
        self._names = names

    def _read(self, node: ast.Subscript | ast.Attribute) -> ast.AST:
        field = field_read(node, self._record)
        if field is not None and field in self._names and isinstance(node.ctx, ast.Load):
            return ast.copy_location(ast.Name(self._names[field], ast.Load()), node)
        return self.generic_visit(node)

    visit_Subscript = _read
    visit_Attribute = _read
