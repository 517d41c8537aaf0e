"""One candidate: a function of the test's file cut into the parts of a ``Trial``."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from orchestrator.author.facts import Operator, Output, Todo
from orchestrator.author.trial import compare, ordering
from orchestrator.author.trial.calls import Names, OperatorCalls
from orchestrator.author.trial.effects import mutated_parameters
from orchestrator.author.trial.flatten import Flat, Step, function_of
from orchestrator.author.trial.inline import bound_arguments, renamed
from orchestrator.author.trial.scopes import binds, reads, root, value_reads
from orchestrator.author.trial.slices import Line, makes_data
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


@dataclass(frozen=True)
class Compared:
    """A comparison whose sides are told apart."""

    actual: ast.expr
    expected: ast.expr
    found: compare.Compared
    step: Step
    index: int


class Assembly:
    """Cuts one flattened test at one of its calls of the operator.

    ``constant``: a tolerance as the number that it always is, where it is one.
    """

    def __init__(
        self,
        unit: Unit,
        flat: Flat,
        calls: OperatorCalls,
        constant: Callable[[ast.expr | None], ast.expr | None] = lambda node: node,
    ) -> None:
        self._constant = constant
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

    def cut(self, index: int) -> Parts:
        """The parts around the call at ``index``."""
        steps = list(self._flat.steps)
        node = steps[index].node
        call = self._call_in(node)
        assert call is not None
        steps[index : index + 1] = self._plain_target(steps[index])
        line = Line(steps, index, self._mutates)
        arguments, todos = self._arguments(call, steps[index], line)
        node = steps[index].node
        result = node.targets[0] if isinstance(node, ast.Assign) else None
        parts = Parts(line, arguments, result, todos=todos)
        needed = {name for value in arguments.values() for name in reads(value)}
        parts.prepare = line.needed(needed, index)
        self._compare(parts)
        self._refer(parts)
        return parts

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

    # -- arguments ------------------------------------------------------------------------------

    def _arguments(
        self, call: ast.Call, step: Step, line: Line
    ) -> tuple[dict[str, ast.expr], list[Todo]]:
        """The call's arguments by the operator's names, in the order of the call."""
        _, call = self._names.callee(call)
        place = step.source.place(step.node)
        names = [a.name for a in self._operator.arguments if not a.keyword_only]
        found: dict[str, ast.expr] = {}
        todos: list[Todo] = []
        positional: list[ast.expr] = []
        keywords: list[ast.keyword] = []
        for value in call.args:
            opened = self._opened(value, line) if isinstance(value, ast.Starred) else [value]
            if opened is None:
                todos.append(Todo(f"what {ast.unparse(value)} passes to the operator", place))
                opened = []
            positional.extend(opened)
        for keyword in call.keywords:
            if keyword.arg is not None:
                keywords.append(keyword)
                continue
            table = self._defined(keyword.value, line)
            if isinstance(table, ast.Dict) and all(_text(k) for k in table.keys):
                pairs = zip(table.keys, table.values, strict=True)
                keywords.extend(ast.keyword(_text(k), v) for k, v in pairs)
            elif isinstance(table, ast.Call) and ast.unparse(table.func) == "dict":
                keywords.extend(k for k in table.keywords if k.arg is not None)
            else:
                todos.append(Todo(f"what **{ast.unparse(keyword.value)} passes", place))
        if len(positional) > len(names):
            todos.append(
                Todo(
                    f"the test passes {len(positional)} arguments, {self._operator.name} takes "
                    f"{len(names)}: compare the call with the current signature",
                    place,
                )
            )
        found.update(zip(names, positional, strict=False))
        known = {a.name for a in self._operator.arguments}
        for keyword in keywords:
            assert keyword.arg is not None
            if keyword.arg in known and keyword.arg not in found:
                found[keyword.arg] = keyword.value
            else:
                what = "twice" if keyword.arg in found else f"which {self._operator.name} lacks"
                todos.append(Todo(f"the test passes argument {keyword.arg}, {what}", place))
        return found, todos

    def _opened(self, value: ast.Starred, line: Line) -> list[ast.expr] | None:
        """The elements of ``*args`` where they are written out."""
        known = self._defined(value.value, line)
        return known.elts if isinstance(known, (ast.Tuple, ast.List)) else None

    def _defined(self, value: ast.expr, line: Line) -> ast.expr | None:
        if not isinstance(value, ast.Name):
            return value
        return self._definition(line, line.call)(value.id)

    # -- data flow ------------------------------------------------------------------------------

    def _mutates(self, step: Step) -> Callable[[ast.Call], Iterable[ast.expr]]:
        """Which arguments of a call in ``step`` are written."""

        def written(call: ast.Call, depth: int = 0) -> Iterator[ast.expr]:
            if self._calls.is_call(call, self._names):
                given, _ = self._given(call)
                for argument in self._operator.arguments:
                    if argument.mutated and argument.name in given:
                        yield given[argument.name]
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

    def _given(self, call: ast.Call) -> tuple[dict[str, ast.expr], list[Todo]]:
        names = [a.name for a in self._operator.arguments if not a.keyword_only]
        _, call = self._names.callee(call)
        found = dict(zip(names, call.args, strict=False))
        found.update({k.arg: k.value for k in call.keywords if k.arg})
        return found, []

    def _definition(self, line: Line, index: int) -> Callable[[str], ast.expr | None]:
        def define(name: str) -> ast.expr | None:
            for step in reversed(line.steps[:index]):
                for target, value, element in _assignments(step.node):
                    if target == name and element is None:
                        return value
            return None

        return define

    def _unpacked(
        self, line: Line, index: int
    ) -> Callable[[str], tuple[ast.expr, int | None] | None]:
        def define(name: str) -> tuple[ast.expr, int | None] | None:
            for step in reversed(line.steps[:index]):
                for target, value, element in _assignments(step.node):
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
                plain = self._plain(found, line, index)
                raw.append((_out_of_loops(plain, step, line), step, index))
        roots = self._roots(parts)
        raw = [(self._chosen(f, line, roots, parts), step, i) for f, step, i in raw]
        strong = [one for one in raw if one[0].strong]
        for candidates in (strong, raw):
            for found, step, index in candidates:
                told = self._told_apart(found, step, index, line, roots)
                if told is not None and all(_key(told) != _key(o) for o in parts.outputs):
                    parts.outputs.append(told)
            if parts.outputs:
                break

    def _functions(self, step: Step) -> Callable[[str], ast.AST | None]:
        """The test's functions by name, as ``step`` sees them."""

        def function(name: str) -> ast.AST | None:
            found = self._unit.siblings.get(name) or function_of(name, step.source)
            return found[0] if isinstance(found, tuple) else found

        return function

    def _chosen(
        self, found: compare.Compared, line: Line, roots: set[str], parts: Parts
    ) -> compare.Compared:
        """Of a function's arguments the two that it compares: the operator's and one made anew."""
        if not found.among:
            return found
        taint = line.tainted(roots)
        given = {n for v in parts.arguments.values() for n in reads(v)}
        made = {n for e in line.effects for n in e.binds}
        ours = [v for v in found.among if value_reads(v) & taint]
        theirs = [v for v in found.among if v not in ours and value_reads(v) & made - given]
        if ours and theirs:
            return replace(found, left=ours[0], right=theirs[0], among=())
        return found

    def _told_apart(
        self, found: compare.Compared, step: Step, index: int, line: Line, roots: set[str]
    ) -> Compared | None:
        sides = (found.left, found.right)
        taint = line.tainted(roots)
        marks = [bool(value_reads(side) & taint) for side in sides]
        if all(marks):
            direct = roots & (value_reads(found.left) | value_reads(found.right))
            taint = line.tainted(direct) if direct else taint
            marks = [bool(value_reads(side) & taint) for side in sides]
        if all(marks):
            marks = [isinstance(side, ast.Name) and side.id in roots for side in sides]
        if marks[0] == marks[1]:
            return None
        ours, theirs = sides if marks[0] else sides[::-1]
        return Compared(ours, theirs, found, step, index)

    def _plain(self, found: compare.Compared, line: Line, index: int) -> compare.Compared:
        """A comparison without what the test does only to compare: sorting, lists, sets."""
        define = self._unpacked(line, index)
        left, right = ordering.side(found.left, define), ordering.side(found.right, define)
        how = "unordered" if left.ordered or right.ordered else found.how
        sides = [left.value, right.value]
        if left.converted or right.converted or _is_numpy(found.node):
            sides = [s.value if s.converted else _as_tensor(s.value) for s in (left, right)]
        while all(_is_moved(side) for side in sides):
            # Both were brought to the CPU to be compared: they can be where they are.
            sides = [s.func.value for s in sides]  # type: ignore[attr-defined]
        atol, rtol = self._constant(found.atol), self._constant(found.rtol)
        return replace(found, left=sides[0], right=sides[1], how=how, atol=atol, rtol=rtol)

    # -- reference ------------------------------------------------------------------------------

    def _refer(self, parts: Parts) -> None:
        """Divide what the comparisons need into prepare, reference and after."""
        line, call = parts.line, parts.line.call
        roots = self._roots(parts)
        expected_only: set[int] = set()
        for output in parts.outputs:
            own = line.needed(reads(output.actual), output.index)
            names = {*reads(output.expected), *_tolerance_reads(output)}
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
        self._name_expected(parts, roots)
        parts.copied = self._copied(parts, written)

    def _name_expected(self, parts: Parts, roots: set[str]) -> None:
        """Expected values that are computed in the comparison itself get names."""
        taint = parts.line.tainted(roots)
        named: list[Compared] = []
        for output in parts.outputs:
            value = output.expected
            plain = not any(isinstance(n, ast.Call) for n in ast.walk(value))
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


def _assignments(node: ast.stmt) -> Iterator[tuple[str, ast.expr, int | None]]:
    """Name, expression and element of it, for each name that a plain assignment gives a value."""
    if isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
        yield node.target.id, node.value, None
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        if isinstance(target, ast.Name):
            yield target.id, node.value, None
        elif isinstance(target, ast.Tuple):
            for index, part in enumerate(target.elts):
                if not isinstance(part, ast.Name):
                    continue
                if isinstance(node.value, ast.Tuple) and len(node.value.elts) == len(target.elts):
                    yield part.id, node.value.elts[index], None
                else:
                    yield part.id, node.value, index


def _out_of_loops(found: compare.Compared, step: Step, line: Line) -> compare.Compared:
    """A comparison inside loops as one of all rounds, with what the rounds compute put in."""
    if not step.loops:
        return found
    inside = [s for s in line.steps if s.loops and s.loops[0] is step.loops[0] and s is not step]
    for other in reversed(inside):
        for name, value, element in _assignments(other.node):
            if element is not None:
                value = ast.Subscript(value, ast.Constant(element), ast.Load())
            put = {name: value}
            found = replace(found, left=renamed(found.left, put), right=renamed(found.right, put))
    loops = [copy.deepcopy(loop) for loop in step.loops]
    bound = {name for loop in loops for name in binds(loop.target)}
    for condition in step.when:
        if set(reads(condition)) & bound:
            loops[-1].ifs.append(condition)
    return compare.over(found, loops)


def conditions(step: Step) -> list[ast.expr]:
    """Conditions of a step that do not speak of a round of a loop."""
    bound = {name for loop in step.loops for name in binds(loop.target)}
    return [c for c in step.when if not set(reads(c)) & bound]


def _tolerance_reads(output: Compared) -> set[str]:
    parts = [output.found.atol, output.found.rtol, *conditions(output.step)]
    return {name for part in parts if part is not None for name in reads(part)}


def _key(compared: Compared) -> tuple[str, str, str]:
    when = [ast.unparse(c) for c in conditions(compared.step)]
    return ast.unparse(compared.actual), ast.unparse(compared.expected), " and ".join(when)


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _is_moved(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("cpu", "detach")
        and not value.args
    )


def _is_numpy(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("np.", "numpy."))


def _as_tensor(value: ast.expr) -> ast.expr:
    if isinstance(value, ast.Constant):
        return value
    function = ast.Attribute(ast.Name("torch", ast.Load()), "as_tensor", ast.Load())
    return ast.copy_location(ast.Call(function, [value], []), value)


def as_outputs(parts: Parts) -> tuple[Output, ...]:
    """The comparisons as text; tolerances that differ by a condition become one expression."""
    found: dict[tuple[str, str], Output] = {}
    for one in parts.outputs:
        actual, expected = ast.unparse(one.actual), ast.unparse(one.expected)
        when = " and ".join(f"({ast.unparse(c)})" for c in conditions(one.step))
        if len(conditions(one.step)) == 1:
            when = when[1:-1]
        output = Output(
            actual,
            expected,
            one.found.how,
            one.step.source.place(one.step.node),
            _code(one.found.atol),
            _code(one.found.rtol),
            when or None,
        )
        earlier = found.get((actual, expected))
        found[(actual, expected)] = output if earlier is None else _merged(earlier, output)
    return tuple(found.values())


def _code(node: ast.expr | None) -> str | None:
    return None if node is None or ast.unparse(node) == "None" else ast.unparse(node)


def _merged(first: Output, second: Output) -> Output:
    """Two comparisons of the same under different conditions as one."""
    if first.when is None:
        return first
    if second.when is None or (first.atol, first.rtol) == (second.atol, second.rtol):
        return replace(second, when=None)

    def either(a: str | None, b: str | None) -> str | None:
        return a if a == b else f"{a} if {first.when} else {b}"

    complementary = second.when in (f"not {first.when}", f"not ({first.when})")
    return replace(
        first,
        atol=either(first.atol, second.atol),
        rtol=either(first.rtol, second.rtol),
        when=None if complementary else f"({first.when}) or ({second.when})",
    )
