"""One candidate: a function of the test's file cut into the parts of a ``Trial``."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from orchestrator.author.facts import Operator, Todo
from orchestrator.author.trial import compare
from orchestrator.author.trial.arguments import Column, given, read_arguments
from orchestrator.author.trial.calls import Names, OperatorCalls
from orchestrator.author.trial.effects import mutated_parameters
from orchestrator.author.trial.flatten import Flat, Step, function_of
from orchestrator.author.trial.inline import bound_arguments
from orchestrator.author.trial.omissions import Omissions
from orchestrator.author.trial.outputs import Compared, key, tolerance_reads
from orchestrator.author.trial.scopes import binds, reads, root, value_reads
from orchestrator.author.trial.sides import assignments, out_of_loops, plain
from orchestrator.author.trial.slices import Line, makes_data
from orchestrator.author.trial.source import Source
from orchestrator.author.trial.units import Unit

_DEPTH = 3


@dataclass
class Parts:
    """Indices into ``line`` and expressions; what ``Trial`` holds as text."""

    line: Line
    arguments: dict[str, ast.expr]
    result: ast.expr | None
    prepare: set[int] = field(default_factory=set)
    reference: set[int] = field(default_factory=set)
    after: set[int] = field(default_factory=set)
    expected: list[ast.stmt] = field(default_factory=list)  # names given to expected values
    outputs: list[Compared] = field(default_factory=list)
    copied: tuple[str, ...] = ()
    todos: list[Todo] = field(default_factory=list)


class Assembly:
    """Cuts one flattened test at one of its calls of the operator.

    ``constant``: a tolerance as the number that it always is, where it is one. ``column``: the
    values of a parameter of the test.
    """

    def __init__(
        self,
        unit: Unit,
        flat: Flat,
        calls: OperatorCalls,
        constant: Callable[[ast.expr | None], ast.expr | None] = lambda node: node,
        column: Column = lambda _: (),
    ) -> None:
        self._constant = constant
        self._column = column
        self._looked: set[int] = set()  # functions that do not call the operator
        self._unit = unit
        self._flat = flat
        self._calls = calls
        self._names = flat.names or Names(unit.source)
        self._used = {n.id for s in flat.steps for n in ast.walk(s.node) if isinstance(n, ast.Name)}

    @property
    def _operator(self) -> Operator:
        return self._calls.operator

    def call_indices(self) -> list[int]:
        """Where the operator is called."""
        return [i for i, step in enumerate(self._flat.steps) if self._call_in(step.node)]

    def _call_in(self, node: ast.stmt) -> ast.Call | None:
        """The operator's call that a statement consists of."""
        if not isinstance(node, (ast.Expr, ast.Assign, ast.AnnAssign)):
            return None
        value = node.value
        if value is not None and self._calls.is_call(value, self._names):
            assert isinstance(value, ast.Call)
            return value
        return None

    def _holds_call(self, step: Step) -> bool:
        """Whether a statement calls the operator, be it deep inside or by a function."""
        return self._holds(step.node, self._names, step.source, 0)

    def _holds(self, node: ast.AST, names: Names, source: Source, depth: int) -> bool:
        for part in ast.walk(node):
            if not isinstance(part, ast.Call):
                continue
            if self._calls.is_call(part, names):
                return True
            if depth < _DEPTH and isinstance(part.func, ast.Name):
                sibling = self._unit.siblings.get(part.func.id)
                found = (sibling, source) if sibling else function_of(part.func.id, source)
                if found is None or id(found[0]) in self._looked:
                    continue
                self._looked.add(id(found[0]))
                inner = Names.of(found[1], found[0].body)
                if self._holds(ast.Module(found[0].body, []), inner, found[1], depth + 1):
                    self._looked.discard(id(found[0]))
                    return True
        return False

    def cut(self, index: int) -> Parts:
        """The parts around the call at ``index``."""
        steps = list(self._flat.steps)
        node = steps[index].node
        call = self._call_in(node)
        assert call is not None
        steps[index : index + 1] = self._plain_target(steps[index])
        line = Line(
            steps,
            index,
            self._mutates,
            lambda step: self._call_in(step.node) is not None,
            self._holds_call,
        )
        made = steps[index].node
        result = made.targets[0] if isinstance(made, ast.Assign) else None
        arguments, todos = read_arguments(
            self._names.callee(call)[1],
            self._operator,
            self._definition(line, index),
            steps[index].source.place(node),
            column=self._values(line),
            single=self._single(line),
            used=self._reads_later(line, result),
        )
        parts = Parts(line, arguments, result, todos=todos)
        needed = {name for value in arguments.values() for name in reads(value)}
        parts.prepare = line.needed(needed, index)
        self._compare(parts)
        self._refer(parts)
        return parts

    @staticmethod
    def _reads_later(line: Line, result: ast.expr | None) -> bool:
        names = set(binds(result)) if result is not None else set()
        return any(names & what.reads for what in line.effects[line.call + 1 :])

    def _plain_target(self, step: Step) -> list[Step]:
        """``x.y = op(...)`` as ``result = op(...)`` and ``x.y = result``."""
        node = step.node
        if isinstance(node, ast.AnnAssign):
            made = ast.Assign([node.target], node.value or ast.Constant(None))
            return self._plain_target(replace(step, node=ast.copy_location(made, node)))
        if not isinstance(node, ast.Assign):
            return [step]
        targets = node.targets
        elements = targets[0].elts if isinstance(targets[0], ast.Tuple) else targets[:1]
        if len(targets) == 1 and all(isinstance(e, ast.Name) for e in elements):
            return [step]
        name = self.fresh("result")
        first = ast.Assign([ast.Name(name, ast.Store())], node.value)
        second = ast.Assign(targets, ast.Name(name, ast.Load()))
        return [
            replace(step, node=ast.fix_missing_locations(ast.copy_location(made, node)))
            for made in (first, second)
        ]

    def fresh(self, wish: str) -> str:
        """A name that the test does not use."""
        made, count = wish, 1
        while made in self._used:
            count += 1
            made = f"{wish}_{count}"
        self._used.add(made)
        return made

    # -- data flow ------------------------------------------------------------------------------

    def _mutates(self, step: Step) -> Callable[[ast.Call], Iterable[ast.expr]]:
        """Which arguments of a call in ``step`` are written."""

        def written(call: ast.Call, depth: int = 0) -> Iterator[ast.expr]:
            if self._calls.is_call(call, self._names):
                passed = given(self._names.callee(call)[1], self._operator)
                for argument in self._operator.arguments:
                    if argument.mutated and argument.name in passed:
                        yield passed[argument.name]
                return
            if not isinstance(call.func, ast.Name) or depth > _DEPTH:
                return
            sibling = self._unit.siblings.get(call.func.id)
            found = (sibling, step.source) if sibling else function_of(call.func.id, step.source)
            if found is None:
                return
            values = bound_arguments(found[0], call)
            if values is not None:
                inner = lambda part: written(part, depth + 1)  # noqa: E731
                for name in mutated_parameters(found[0], inner):
                    if name in values:
                        yield values[name]

        return lambda call: list(written(call))

    def _definition(self, line: Line, index: int) -> Callable[[str], ast.expr | None]:
        def define(name: str) -> ast.expr | None:
            for step in reversed(line.steps[:index]):
                for target, value, element in assignments(step.node):
                    if target == name and element is None:
                        return value
            return None

        return define

    def _values(self, line: Line) -> Column:
        """The values of a parameter that the test gives no other one."""
        bound = {name for what in line.effects for name in what.binds}
        return lambda name: () if name in bound else self._column(name)

    @staticmethod
    def _single(line: Line) -> Callable[[str], ast.expr | None]:
        """What a name is that is assigned once, whatever the condition."""

        def define(name: str) -> ast.expr | None:
            steps = [
                step
                for step, what in zip(line.steps, line.effects, strict=True)
                if name in what.binds
            ]
            if len(steps) != 1 or steps[0].when or steps[0].loops:
                return None
            made = [v for t, v, e in assignments(steps[0].node) if t == name and e is None]
            return made[0] if len(made) == 1 else None

        return define

    def _unpacked(
        self, line: Line, index: int
    ) -> Callable[[str], tuple[ast.expr, int | None] | None]:
        def define(name: str) -> tuple[ast.expr, int | None] | None:
            for step in reversed(line.steps[:index]):
                for target, value, element in assignments(step.node):
                    if target == name:
                        return value, element
            return None

        return define

    # -- comparisons ----------------------------------------------------------------------------

    def _roots(self, parts: Parts) -> set[str]:
        """Names that the operator writes, and those of its result."""
        mutated = {a.name for a in self._operator.arguments if a.mutated}
        written = {root(v) for n, v in parts.arguments.items() if n in mutated}
        found = {name for name in written if name}
        if parts.result is not None:
            found |= set(binds(parts.result))
        if not found:
            # Nobody says what is written: then it is what the test compares.
            found = {n for v in parts.arguments.values() if (n := root(v)) is not None}
        return found

    def _compare(self, parts: Parts) -> None:
        """Find the comparisons, and which side of each is the operator's."""
        line = parts.line
        raw: list[tuple[compare.Compared, Step, int]] = []
        for index in range(line.call + 1, len(line.steps)):
            step = line.steps[index]
            function = self._functions(step)
            for found in compare.found_in(step.node, self._definition(line, index), function):
                simple = plain(found, self._unpacked(line, index))
                atol, rtol = self._constant(found.atol), self._constant(found.rtol)
                simple = replace(simple, atol=atol, rtol=rtol)
                raw.append((out_of_loops(simple, step, line), step, index))
        roots = self._roots(parts)
        raw = [(self._chosen(f, line.tainted(roots, i), parts), s, i) for f, s, i in raw]
        strong = [one for one in raw if one[0].strong]
        for candidates in (strong, raw):
            for found, step, index in candidates:
                told = self._told_apart(found, step, index, line, roots)
                if told is not None and self._called_again(told, line):
                    continue
                if told is not None and all(key(told) != key(o) for o in parts.outputs):
                    parts.outputs.append(told)
            if parts.outputs:
                break

    @staticmethod
    def _called_again(told: Compared, line: Line) -> bool:
        """Whether what is compared is not this call's, but a later one's."""
        family = line.sharing.family(reads(told.actual))
        later = (line.effects[k] for k in line.calls if line.call < k < told.index)
        return any((what.changes | what.binds) & family for what in later)

    def _functions(self, step: Step) -> Callable[[str], ast.AST | None]:
        """The test's functions by name, as ``step`` sees them."""

        def function(name: str) -> ast.AST | None:
            found = self._unit.siblings.get(name) or function_of(name, step.source)
            return found[0] if isinstance(found, tuple) else found

        return function

    def _chosen(self, found: compare.Compared, taint: set[str], parts: Parts) -> compare.Compared:
        """Of a function's arguments the two that it compares: the operator's and one made anew."""
        if not found.among:
            return found
        given = {n for v in parts.arguments.values() for n in reads(v)}
        made = {n for e in parts.line.effects for n in e.binds}
        ours = [v for v in found.among if value_reads(v) & taint]
        theirs = [v for v in found.among if v not in ours and value_reads(v) & made - given]
        if ours and theirs:
            return replace(found, left=ours[0], right=theirs[0], among=())
        return found

    def _told_apart(
        self, found: compare.Compared, step: Step, index: int, line: Line, roots: set[str]
    ) -> Compared | None:
        sides = (found.left, found.right)
        taint = line.tainted(roots, index)
        marks = [bool(value_reads(side) & taint) for side in sides]
        if all(marks):
            direct = roots & (value_reads(found.left) | value_reads(found.right))
            taint = line.tainted(direct, index) if direct else taint
            marks = [bool(value_reads(side) & taint) for side in sides]
        if all(marks):
            marks = [isinstance(side, ast.Name) and side.id in roots for side in sides]
        if marks[0] == marks[1]:
            return None
        ours, theirs = sides if marks[0] else sides[::-1]
        return Compared(ours, theirs, found, step, index)

    # -- reference ------------------------------------------------------------------------------

    def _refer(self, parts: Parts) -> None:
        """Divide what the comparisons need into prepare, reference and after."""
        line, call = parts.line, parts.line.call
        roots = self._roots(parts)
        expected_only: set[int] = set()
        for output in parts.outputs:
            own = line.needed(reads(output.actual), output.index)
            names = {*reads(output.expected), *tolerance_reads(output)}
            theirs = line.needed(names, output.index)
            parts.prepare |= {index for index in own if index < call}
            expected_only |= theirs | {index for index in own if index > call}
        expected_only -= parts.prepare
        written = line.sharing.family(roots)
        for index in expected_only:
            if index > call and index not in parts.after:
                if line.reads_taint(index, roots):
                    parts.after.add(index)
                else:
                    parts.reference.add(index)
            elif index < call:
                parts.reference.add(index)
        for index in sorted(parts.reference):
            step = line.steps[index]
            if index < call and makes_data(step.node):
                parts.prepare |= {index, *line.needed(line.effects[index].reads, index)}
        parts.reference -= parts.prepare | parts.after
        self._follow(parts)
        self._look_for_omissions(parts, roots)
        self._name_expected(parts, roots)
        parts.copied = self._copied(parts, written)

    def _look_for_omissions(self, parts: Parts, roots: set[str]) -> None:
        """Tell where the slices are not all that the test does to what it expects, and passes."""
        kept = parts.prepare | parts.reference | parts.after
        omissions = Omissions(parts.line, kept, self._names)
        lacking = [omissions.of_expected(o.expected, o.index) for o in parts.outputs]
        # A second call of the operator is no reference where the test has one besides.
        of_another = [bool(found) and all(one.own for one in found) for found in lacking]
        if not all(of_another):
            chosen = [n for n, alone in enumerate(of_another) if not alone]
            parts.outputs = [parts.outputs[n] for n in chosen]
            lacking = [lacking[n] for n in chosen]
        found = [one for each in lacking for one in each]
        found += omissions.of_arguments(parts.arguments.values())
        for text, step in {str(one): one.step for one in found}.items():
            parts.todos.append(Todo(text, step.source.place(step.node)))
        written = parts.line.sharing.family(roots)
        for output, missing in zip(parts.outputs, lacking, strict=True):
            if not missing and omissions.nothing_computed(output.expected, output.index, written):
                what = (
                    f"what {ast.unparse(output.expected)} should be: it depends on nothing but "
                    "constants, or on what the operator overwrites, as it was before"
                )
                parts.todos.append(Todo(what, output.step.source.place(output.step.node)))

    def _follow(self, parts: Parts) -> None:
        """Move what must come later behind ``after``.

        It reads names of it, or of the result: their shapes, say; or it gives a name that ``after``
        reads to something else.
        """
        effects = parts.line.effects
        result = set(binds(parts.result)) if parts.result is not None else set()
        for index in sorted(parts.reference):
            earlier = {n for i in parts.after if i < index for n in effects[i].binds}
            own = {n for i in parts.reference if i < index for n in effects[i].replaces}
            read = {n for i in parts.after if i < index for n in effects[i].reads}
            late = effects[index].reads & (earlier | result) - own
            late |= (effects[index].binds | effects[index].changes) & read
            if index > parts.line.call and late:
                parts.reference.discard(index)
                parts.after.add(index)

    def _name_expected(self, parts: Parts, roots: set[str]) -> None:
        """Expected values that are computed in the comparison itself get names."""
        named: list[Compared] = []
        passed = {name for value in parts.arguments.values() for name in reads(value)}
        for output in parts.outputs:
            taint = parts.line.tainted(roots, output.index)
            value = output.expected
            # An element of what was computed has a name; x[:, perm] and x * 2 are computed here.
            plain = not any(isinstance(n, ast.Call) for n in ast.walk(value))
            plain = plain and (isinstance(value, ast.Name) or root(value) not in {None, *passed})
            plain = plain or not reads(value)
            if plain or value_reads(value) & taint or output.step.when:
                named.append(output)
                continue
            name = self.fresh("expected")
            made = ast.Assign([ast.Name(name, ast.Store())], value)
            parts.expected.append(
                ast.fix_missing_locations(ast.copy_location(made, output.step.node))
            )
            named.append(replace(output, expected=ast.Name(name, ast.Load())))
        parts.outputs = named

    def _copied(self, parts: Parts, written: set[str]) -> tuple[str, ...]:
        """Names that the reference must read as they were before the call."""
        line = parts.line
        made_before = {n for i in parts.prepare for n in line.effects[i].binds}
        passed = {n for v in parts.arguments.values() for n in value_reads(v)}
        own: set[str] = set()
        found: dict[str, None] = {}
        for index in sorted(parts.reference):
            step, what = line.steps[index], line.effects[index]
            wanted = value_reads(step.node) & written if index < line.call else set()
            # A reference that works in place must leave the operator's arguments alone.
            wanted |= what.changes & line.sharing.family(passed)
            for name in sorted(wanted & made_before - own):
                found.setdefault(name)
            own |= what.replaces
        return tuple(found)
