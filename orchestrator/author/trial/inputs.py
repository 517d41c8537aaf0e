"""A test's line of statements with its inputs as names: sizes, dtypes, device, seed.

Literals that a test assigns (``hidden_size = 4096``), constants of its module and pairs that it
takes apart (``m, n = shape``) become parameters; devices and seeds get one name each.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable
from dataclasses import replace

from orchestrator.author.trial import devices
from orchestrator.author.trial.effects import changes
from orchestrator.author.trial.flatten import Flat, Step, function_of
from orchestrator.author.trial.inline import renamed
from orchestrator.author.trial.literals import (
    Code,
    Lookup,
    NotLiteral,
    Value,
    bind,
    evaluate,
    kind,
)
from orchestrator.author.trial.parameters import Group
from orchestrator.author.trial.records import Fields, field_read, fields_of, whole
from orchestrator.author.trial.scopes import binds, last_name, reads
from orchestrator.author.trial.units import Unit

_SCALARS = ("int", "float", "bool", "str", "dtype")


class Inputs:
    """What a flattened test takes as its inputs; ``steps`` is the line that reads them."""

    def __init__(
        self, unit: Unit, flat: Flat, groups: list[Group], unknown: list[str], lookup: Lookup
    ) -> None:
        self._unit = unit
        self._flat = flat
        self._lookup = lookup
        self.groups = list(groups)
        self.unknown = list(unknown)
        self._steps = list(flat.steps)
        self._used = {
            n.id for s in self._steps for n in ast.walk(s.node) if isinstance(n, ast.Name)
        }
        self._renamed: dict[str, str] = {}
        self._fields: list[Fields] = []
        self._loops()
        self._pairs()
        self._aliases()
        self._constants()
        self._literals()
        self.device = self._device()
        self.seed = next((n for n in self._names() if devices.is_seed(n)), "seed")
        self.groups = [g for g in self.groups if not {self.device, self.seed} >= set(g.names)]
        self.unknown = [n for n in self.unknown if n not in (self.device, self.seed)]

    def _names(self) -> list[str]:
        return [*(n for g in self.groups for n in g.names), *self.unknown]

    def column(self, name: str) -> list[Value]:
        """The values of a parameter; empty for what is none."""
        return [
            row[group.names.index(name)]
            for group in self.groups
            if name in group.names
            for row in group.rows
        ]

    def _device(self) -> str:
        """The test's own name for the device, or ``device``."""
        for name in self._names():
            values = self.column(name)
            if name in ("device", "dev") or (values and all(map(devices.is_device, values))):
                return name
        return "device"

    def steps(self) -> list[Step]:
        """The line, with devices and seeds as names."""
        normal = devices.Normal(
            self.device,
            self.seed,
            self._lookup,
            default_device=self._flat.device is not None,
            default_dtype=self._flat.dtype,
            makes_tensors=self._makes_tensors,
        )
        made: list[Step] = []
        for step in self._steps:
            node = normal.statement(copy.deepcopy(step.node))
            same = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == ast.unparse(
                node.value
            )
            if not same:
                made.append(replace(step, node=node))
        return made

    def _makes_tensors(self, call: ast.Call) -> bool:
        """Whether a call of one of the test's functions makes tensors on the default device."""
        if not isinstance(call.func, ast.Name) or self.device in reads(call):
            return False
        sibling = self._unit.siblings.get(call.func.id)
        found = (
            (sibling, self._unit.source)
            if sibling
            else function_of(call.func.id, self._unit.source)
        )
        if found is None:
            statements: list[ast.AST] = [
                s
                for s in self._unit.source.definitions.get(call.func.id, ())
                if isinstance(s, ast.ClassDef)
            ]
        else:
            statements = [found[0]]
        return any(devices.makes_on_default(s) for s in statements)

    def constant(self, node: ast.expr | None) -> ast.expr | None:
        """``node``, or the number that it always is: a tolerance that the module defines."""
        if node is None or not reads(node):
            return node
        if isinstance(node, ast.BinOp):
            left, right = self.constant(node.left), self.constant(node.right)
            return ast.copy_location(
                ast.BinOp(left or node.left, node.op, right or node.right), node
            )
        try:
            value = evaluate(node, self._literal_lookup)
        except NotLiteral:
            return node
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return node
        return ast.copy_location(ast.Constant(value), node)

    def _literal_lookup(self, name: str) -> ast.expr | None:
        """What a name is that the test gives one value only; its parameters are none."""
        bound = [s.node for s in self._steps if name in {**binds(s.node), **changes(s.node)}]
        if name in self._names() or len(bound) > 1:
            return None
        if not bound:
            return self._lookup(name)
        node = bound[0]
        plain = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
        return node.value if isinstance(node, ast.Assign) and plain else None

    def skips(self, conditions: Iterable[ast.expr]) -> list[ast.expr]:
        """Conditions under which the test skips, in the names of the inputs."""
        names = {old: ast.Name(new, ast.Load()) for old, new in self._renamed.items()}
        found = [copy.deepcopy(condition) for condition in conditions]
        for put in self._fields:
            found = [put.visit(condition) for condition in found]
        return [renamed(condition, dict(names)) for condition in found]

    # -- what becomes an input ------------------------------------------------------------------

    def _loops(self) -> None:
        """Loops around the call over values that are written out are parameters."""
        for target, iterable in self._flat.loops:
            try:
                values = evaluate(iterable, self._local_lookup, opaque=True)
                names: dict[str, Value] = {}
                rows = []
                for value in values:
                    bind(target, value, names)
                    rows.append(tuple(names[n] for n in binds(target)))
            except (NotLiteral, TypeError):
                continue
            if not rows or set(binds(target)) & set(self._names()):
                continue
            place = self._unit.source.place(iterable)
            self.groups.extend(Group(tuple(binds(target)), rows, place).independent())
            self._steps = [s for s in self._steps if not _is_first_round(s.node, target, iterable)]

    def _local_lookup(self, name: str) -> ast.expr | None:
        for step in self._steps:
            node = step.node
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                return node.value
        return self._lookup(name)

    def _pairs(self) -> None:
        """A parameter whose values are tuples or records becomes one for each element or field."""
        groups: list[Group] = []
        for group in self.groups:
            for name in group.names:
                group = self._opened(group, name)
            groups.append(group)
        self.groups = groups

    def _opened(self, group: Group, name: str) -> Group:
        index = group.names.index(name)
        values = [row[index] for row in group.rows]
        fields = fields_of(values)
        if fields and not any(
            isinstance(e, (tuple, list, dict)) for v in values for e in v.values()
        ):
            return self._opened_record(group, name, fields)
        lengths = {len(v) if isinstance(v, (tuple, list)) else 0 for v in values}
        if len(lengths) != 1 or not 0 < (length := lengths.pop()) <= 16:
            return group
        if any(isinstance(e, (tuple, list, dict)) for v in values for e in v):
            return group
        names, step = self._unpacking(name, length)
        if step is not None:
            self._steps.remove(step)
        used = any(name in reads(s.node) for s in self._steps)
        if names is None:
            names = tuple(self._fresh(f"{name}_{i}") for i in range(length))
        if used:
            elements: list[ast.expr] = [ast.Name(n, ast.Load()) for n in names]
            whole = ast.Assign([ast.Name(name, ast.Store())], ast.Tuple(elements, ast.Load()))
            ast.fix_missing_locations(ast.copy_location(whole, self._unit.node))
            self._steps.insert(0, Step(whole, self._unit.source))
        rows = [(*row[:index], *row[index], *row[index + 1 :]) for row in group.rows]
        return Group((*group.names[:index], *names, *group.names[index + 1 :]), rows, group.place)

    def _opened_record(self, group: Group, name: str, fields: list[str]) -> Group:
        """``case["m"]``, ``case.m``: each field is a parameter, together with the others."""
        index = group.names.index(name)
        names: dict[str, str] = {}
        for field in fields:
            step = self._naming(name, field)
            if step is not None and isinstance(step.node, ast.Assign):
                self._steps.remove(step)
                (names[field],) = binds(step.node)
            else:
                names[field] = self._fresh(
                    f"{name}_{field}" if field in {*self._used, *self._names()} else field
                )
        put = Fields(name, names)
        self._fields.append(put)
        self._steps = [
            replace(
                step,
                node=put.visit(copy.deepcopy(step.node)),
                when=tuple(put.visit(copy.deepcopy(condition)) for condition in step.when),
            )
            for step in self._steps
        ]
        if any(name in reads(s.node) for s in self._steps):
            made = ast.Assign([ast.Name(name, ast.Store())], whole(group.rows[0][index], names))
            ast.fix_missing_locations(ast.copy_location(made, self._unit.node))
            self._steps.insert(0, Step(made, self._unit.source))
        rows = [
            (*row[:index], *(row[index][field] for field in fields), *row[index + 1 :])
            for row in group.rows
        ]
        before, after = group.names[:index], group.names[index + 1 :]
        return Group((*before, *names.values(), *after), rows, group.place)

    def _naming(self, record: str, field: str) -> Step | None:
        """``m = case["m"]``: the statement that gives a field a name of its own, for good."""
        for step in self._steps:
            node = step.node
            if not isinstance(node, ast.Assign) or step.when or len(node.targets) != 1:
                continue
            target = node.targets[0]
            named = isinstance(target, ast.Name) and field_read(node.value, record) == field
            if named and not self._bound_again(target.id, step):  # type: ignore[attr-defined]
                return step
        return None

    def _aliases(self) -> None:
        """``torch_dtype = dtype``, ``result = out``: one name is enough."""
        index = 0
        while index < len(self._steps):
            if self._is_alias(index):
                node = self._steps.pop(index).node
                assert isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)
                (old,), new = binds(node), node.value.id
                if "dtype" in old and "dtype" not in new and new in self._names():
                    old, new = new, old  # dtype = kind: the better name of a configuration
                    for group in self.groups:
                        group.names = tuple(new if n == old else n for n in group.names)
                self._rename({old: new})
            else:
                index += 1

    def _is_alias(self, index: int) -> bool:
        """Whether a statement only gives another name to what has one already, for good."""
        step = self._steps[index]
        node = step.node
        if not isinstance(node, ast.Assign) or step.when or len(node.targets) != 1:
            return False
        target, value = node.targets[0], node.value
        if not isinstance(target, ast.Name) or not isinstance(value, ast.Name):
            return False
        made = any(value.id in binds(s.node) for s in self._steps[:index])
        made = made or value.id in self._names()
        again = any(value.id in binds(s.node) for s in self._steps[index:])
        return made and not again and not self._bound_again(target.id, step)

    def _unpacking(self, name: str, length: int) -> tuple[tuple[str, ...] | None, Step | None]:
        """Names that the test itself gives the elements, and the statement that does."""
        for step in self._steps:
            node = step.node
            if not isinstance(node, ast.Assign) or step.when or len(node.targets) != 1:
                continue
            target = node.targets[0]
            if not isinstance(node.value, ast.Name) or node.value.id != name:
                continue
            if not isinstance(target, ast.Tuple) or len(target.elts) != length:
                continue
            names = tuple(e.id for e in target.elts if isinstance(e, ast.Name))
            if len(set(names)) == length and not any(self._bound_again(n, step) for n in names):
                return names, step
        return None, None

    def _bound_again(self, name: str, except_in: Step) -> bool:
        return (
            any(
                name in {**binds(s.node), **changes(s.node)}
                for s in self._steps
                if s is not except_in
            )
            or name in self._names()
        )

    def _fresh(self, wish: str) -> str:
        made, count = wish, 1
        while made in self._used:
            count += 1
            made = f"{wish}_{count}"
        self._used.add(made)
        return made

    def _constants(self) -> None:
        """Scalars of the module that the test reads by names in capitals become parameters."""
        found: dict[str, str] = {}
        names = {
            n.id
            for s in self._steps
            for n in ast.walk(s.node)
            if isinstance(n, ast.Name) and n.id.isupper() and isinstance(n.ctx, ast.Load)
        } & self._sizing()
        for name in sorted(names):
            lower = name.lower()
            node = self._lookup(name)
            if node is None or lower in self._used or lower in self._names():
                continue
            value = self._scalar(node)
            if value is None or kind([value]) not in ("int", "float", "dtype"):
                continue
            if kind([value]) == "dtype" and lower not in ("dtype", "torch_dtype", "data_type"):
                continue  # FP8_DTYPE: what the operator makes of any dtype
            if devices.is_seed(lower) or _is_tolerance(lower):
                continue
            found[name] = lower
            self.groups.append(Group((lower,), [(value,)], self._unit.source.place(node)))
        self._rename(found)

    def _rename(self, names: dict[str, str]) -> None:
        self._renamed.update(names)
        put: dict[str, ast.expr] = {old: ast.Name(new, ast.Load()) for old, new in names.items()}
        if put:
            self._steps = [
                replace(
                    step,
                    node=renamed(step.node, put),
                    when=tuple(renamed(condition, put) for condition in step.when),
                )
                for step in self._steps
            ]

    def _literals(self) -> None:
        """``hidden_size = 4096`` in the test's body is a parameter of one value."""
        kept: list[Step] = []
        used = self._sizing()
        for step in self._steps:
            made = self._literal(step)
            if made and used & set(made):
                self.groups.extend(
                    Group((name,), [(value,)], step.source.place(step.node))
                    for name, value in made.items()
                )
            else:
                kept.append(step)
        self._steps = kept

    def _sizing(self) -> set[str]:
        """Names that are read by more than comparisons."""
        return {n for s in self._steps if not _only_compares(s.node) for n in reads(s.node)}

    def _literal(self, step: Step) -> dict[str, Value]:
        node = step.node
        if not isinstance(node, ast.Assign) or step.when or step.loops or len(node.targets) != 1:
            return {}
        found: dict[str, Value] = {}
        try:
            bind(node.targets[0], evaluate(node.value, self._lookup), found)
        except NotLiteral:
            return {}
        for name, value in found.items():
            scalar = value is not None and kind([value]) in _SCALARS
            text = isinstance(value, str) and not devices.is_device(value)
            if not scalar or text or _is_tolerance(name) or self._bound_again(name, step):
                return {}
        return found

    def _scalar(self, node: ast.expr) -> Value:
        try:
            value = evaluate(node, self._lookup)
        except NotLiteral:
            return None
        return value if isinstance(value, Code) or kind([value]) in _SCALARS else None


def _only_compares(node: ast.stmt) -> bool:
    """Whether a statement asserts, or makes what is asserted: it reads tolerances, no sizes."""
    if isinstance(node, ast.Assert):
        return True
    value = node.value if isinstance(node, (ast.Expr, ast.Assign)) else None
    if isinstance(value, ast.Call):
        name = last_name(value.func)
        return name.startswith("assert") or name in ("allclose", "isclose", "equal")
    return isinstance(node, ast.Assign) and isinstance(value, (ast.Compare, ast.BoolOp))


def _is_tolerance(name: str) -> bool:
    return any(word in name for word in ("tol", "thresh", "tolerance"))


def _is_first_round(node: ast.stmt, target: ast.expr, iterable: ast.expr) -> bool:
    return (
        isinstance(node, ast.Assign)
        and ast.dump(node.targets[0]) == ast.dump(target)
        and ast.unparse(node.value) == f"next(iter({ast.unparse(iterable)}))"
    )


def promoted(groups: Iterable[Group], wanted: set[str]) -> list[Group]:
    """Groups that have any name that is wanted."""
    return [group for group in groups if wanted & set(group.names)]
