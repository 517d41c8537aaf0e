"""What a test varies: parametrize marks, fixtures, defaults, loops, arguments of its callers.

The result is a list of groups of names; the rows of a group are the values that belong together.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from orchestrator.author.facts import Parameter, Place
from orchestrator.author.trial.callers import MOST_ROWS, calls_of, rows_of
from orchestrator.author.trial.inline import default_values
from orchestrator.author.trial.literals import (
    Code,
    Lookup,
    NotLiteral,
    Value,
    evaluate,
    kind,
    render,
)
from orchestrator.author.trial.records import as_function
from orchestrator.author.trial.scopes import FunctionNode, dotted, parameters
from orchestrator.author.trial.source import Source
from orchestrator.author.trial.units import Unit

_DEPTH = 3


@dataclass
class Group:
    """Names that vary together, and their rows of values."""

    names: tuple[str, ...]
    rows: list[tuple[Value, ...]]
    place: Place

    def independent(self) -> list[Group]:
        """One group a name where the rows are nothing but all combinations."""
        if len(self.names) == 1:
            return [Group(self.names, _unique(self.rows), self.place)]
        columns = [_unique([(row[i],) for row in self.rows]) for i in range(len(self.names))]
        count = 1
        for column in columns:
            count *= len(column)
        rows = _unique(self.rows)
        if count != len(rows):
            return [Group(self.names, rows, self.place)]
        return [Group((n,), c, self.place) for n, c in zip(self.names, columns, strict=True)]


@dataclass
class Given:
    """What the parameters of a test are: groups, and statements of its fixtures."""

    groups: list[Group] = field(default_factory=list)
    before: list[ast.stmt] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def _unique(rows: Iterable[tuple[Value, ...]]) -> list[tuple[Value, ...]]:
    # 1 and True and 1.0 are different values of a test.
    return list({render(row): row for row in rows}.values())


def lookup_in(source: Source, depth: int = 0) -> Lookup:
    """What names stand for at the top of a file, local imports followed."""

    def lookup(name: str) -> ast.expr | None:
        statements = source.definitions.get(name, [])
        if len(statements) > 1:
            return None
        for statement in statements:
            found = _assigned(statement, name, lookup)
            if found is not None:
                return found
        imported = source.imports.get(name)
        if imported is not None and depth < _DEPTH:
            local = source.local(imported)
            if local is not None and local[1]:
                return lookup_in(local[0], depth + 1)(local[1])
        return None

    return lookup


def _assigned(statement: ast.stmt, name: str, lookup: Lookup) -> ast.expr | None:
    """The expression that a top-level statement gives ``name``."""
    record = as_function(statement, name)
    if record is not None:
        return record
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Name) and target.id == name:
                return statement.value
            if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
                for part, value in zip(target.elts, statement.value.elts, strict=False):
                    if isinstance(part, ast.Name) and part.id == name:
                        return value
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.value if statement.target.id == name else None
    if isinstance(statement, ast.If):
        try:
            body = statement.body if evaluate(statement.test, lookup) else statement.orelse
        except NotLiteral:
            body = [*statement.body, *statement.orelse]
        found = [_assigned(inner, name, lookup) for inner in body]
        return next((value for value in found if value is not None), None)
    return None


class Reader:
    """Finds what the parameters of a file's functions are."""

    def __init__(self, source: Source, units: Sequence[Unit]) -> None:
        self._source = source
        self._units = units
        self._lookup = lookup_in(source)

    def given(self, unit: Unit, depth: int = 0) -> Given:
        """What the parameters of ``unit`` are; ``unknown`` names those nobody gives a value."""
        result = Given()
        left = list(parameters(unit.node))
        for mark in [*unit.node.decorator_list, *unit.marks, *self._module_marks()]:
            group = self._parametrized(mark, parameters(unit.node))
            if group is not None:
                result.groups.append(group)
                left = [name for name in left if name not in group.names]
        for name in list(left):
            fixture = self._fixture(name) if unit.is_test else None
            if fixture is not None:
                self._use_fixture(name, fixture, result)
                left.remove(name)
        if left and depth < _DEPTH:
            called = self._from_callers(unit, depth)
            if called:
                result.groups.extend(group for group in called if set(group.names) & set(left))
                for group in called:
                    left = [name for name in left if name not in group.names]
        defaults = default_values(unit.node)
        for name in list(left):
            if name in defaults:
                value = self._value(defaults[name])
                result.groups.append(Group((name,), [(value,)], unit.source.place(unit.node)))
                left.remove(name)
        result.unknown = left
        return result

    def _value(self, node: ast.expr, lookup: Lookup | None = None) -> Value:
        try:
            return evaluate(node, lookup or self._lookup, opaque=True)
        except NotLiteral:
            return Code(ast.unparse(node))

    def _module_marks(self) -> list[ast.expr]:
        """``pytestmark = [...]`` of the module."""
        value = self._lookup("pytestmark")
        if value is None:
            return []
        return value.elts if isinstance(value, (ast.List, ast.Tuple)) else [value]

    # -- pytest ---------------------------------------------------------------------------------

    def _parametrized(self, mark: ast.expr, taken: list[str]) -> Group | None:
        """The group of a mark on a function that takes the parameters ``taken``."""
        if not isinstance(mark, ast.Call):
            return None
        called = (dotted(mark.func) or "").rpartition(".")[2]
        if called not in ("parametrize", "expand"):
            return None
        arguments = {k.arg: k.value for k in mark.keywords}
        names_node = mark.args[0] if mark.args else arguments.get("argnames")
        values_node = mark.args[1] if len(mark.args) > 1 else arguments.get("argvalues")
        if called == "expand":
            # parameterized.expand([(1, 2), ...]) of unittest: all parameters, in their order.
            values_node = names_node
            names_node = ast.Constant(",".join(taken))
        if names_node is None or values_node is None:
            return None
        try:
            names = evaluate(names_node, self._lookup)
            if isinstance(names, str):
                names = [n.strip() for n in names.split(",") if n.strip()]
            rows = evaluate(_Plain().visit(values_node), self._lookup, opaque=True)
        except NotLiteral:
            return None
        if not isinstance(rows, (list, tuple)) or not all(isinstance(n, str) for n in names):
            return None
        place = self._source.place(mark)
        if len(names) == 1:
            return Group(tuple(names), [(row,) for row in rows], place)
        fitting = [
            tuple(row)
            for row in map(self._row, rows)
            if isinstance(row, (list, tuple)) and len(row) == len(names)
        ]
        return Group(tuple(names), fitting, place) if fitting else None

    def _row(self, row: Value) -> Value:
        """A row; one that is a call of ``pytest.param`` gives its values."""
        if not isinstance(row, Code):
            return row
        node = ast.parse(row.text, mode="eval").body
        return self._value(_Plain().visit(node))

    def _fixture(self, name: str) -> FunctionNode | None:
        source: Source | None = self._source
        while source is not None:
            for statement in source.definitions.get(name, ()):
                if isinstance(statement, ast.FunctionDef) and any(
                    "fixture" in (dotted(d.func if isinstance(d, ast.Call) else d) or "")
                    for d in statement.decorator_list
                ):
                    return statement
            source = source.conftest()
        return None

    def _use_fixture(self, name: str, fixture: FunctionNode, result: Given) -> None:
        place = self._source.place(fixture)
        for decorator in fixture.decorator_list:
            for keyword in decorator.keywords if isinstance(decorator, ast.Call) else []:
                if keyword.arg == "params":
                    rows = self._value(_Plain().visit(keyword.value))
                    if isinstance(rows, (list, tuple)):
                        result.groups.append(Group((name,), [(row,) for row in rows], place))
        body = [s for s in fixture.body if not isinstance(s, ast.Expr) or _yielded(s) is not None]
        made: list[ast.stmt] = []
        for statement in body:
            value = statement.value if isinstance(statement, ast.Return) else _yielded(statement)
            if value is None:
                made.append(statement)
                continue
            if dotted(value) != "request.param":
                target = ast.Name(name, ast.Store())
                made.append(ast.copy_location(ast.Assign([target], value), statement))
            break
        result.before.extend(
            ast.fix_missing_locations(_Request(name).visit(statement)) for statement in made
        )

    # -- callers --------------------------------------------------------------------------------

    def is_shared(self, unit: Unit) -> bool:
        """Whether several tests of the file call ``unit``, which is none itself."""
        if unit.is_test:
            return False
        tests = [u for u in self._units if u.is_test and calls_of(unit.name, u.node.body)]
        return len(tests) > 1

    def _from_callers(self, unit: Unit, depth: int) -> list[Group]:
        """Values that the file's other functions, or its script, call ``unit`` with."""
        rows: list[tuple[Value, ...]] = []
        scripts = [
            s for s in self._source.tree.body if not isinstance(s, (ast.ClassDef, ast.FunctionDef))
        ]
        bodies: list[tuple[Unit | None, list[ast.stmt]]] = [(u, u.node.body) for u in self._units]
        bodies.append((None, scripts))
        place = None
        for caller, body in bodies:
            if caller is unit or not any(_names(s, unit.name) for s in body):
                continue
            groups = self.given(caller, depth + 1).groups if caller is not None else []
            given = [(group.names, group.rows) for group in groups]
            for called in calls_of(unit.name, body):
                place = place or self._source.place(called.call)
                rows.extend(rows_of(called, unit.node, given, self._source, self._lookup))
        if not rows or place is None:
            return []
        names = tuple(parameters(unit.node))
        return Group(names, rows[:MOST_ROWS], place).independent()


class _Plain(ast.NodeTransformer):
    """``pytest.param(a, b, marks=...)`` -> ``(a, b)``; with one value ``a``."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if (dotted(node.func) or "").rpartition(".")[2] == "param" and node.args:
            if len(node.args) == 1:
                return node.args[0]
            return ast.copy_location(ast.Tuple(node.args, ast.Load()), node)
        return node


class _Request(ast.NodeTransformer):
    """``request.param`` -> the fixture's name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if dotted(node) == "request.param":
            return ast.copy_location(ast.Name(self._name, ast.Load()), node)
        self.generic_visit(node)
        return node


def _yielded(statement: ast.stmt) -> ast.expr | None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Yield):
        return statement.value.value
    return None


def _names(statement: ast.stmt, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(statement))


def as_parameters(groups: Iterable[Group], wanted: Iterable[str]) -> tuple[Parameter, ...]:
    """The parameters among ``groups`` that are ``wanted``, in order."""
    names = set(wanted)
    found: list[Parameter] = []
    for group in groups:
        kept = [i for i, name in enumerate(group.names) if name in names]
        rows = _unique(tuple(row[i] for i in kept) for row in group.rows)
        shown = tuple(group.names[i] for i in kept)
        for part in Group(shown, rows, group.place).independent() if kept else ():
            for i, name in enumerate(part.names):
                values = [row[i] for row in part.rows]
                others = tuple(n for n in part.names if n != name)
                texts = tuple(render(value) for value in values)
                found.append(Parameter(name, texts, kind(values), group.place, others))
    return tuple(found)
