"""Read a unit test: choose the function that tests the operator best, and cut it up."""

from __future__ import annotations

import ast
import copy
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.author.facts import Operator, Parameter, Todo, Trial
from orchestrator.author.trial import compare
from orchestrator.author.trial.assemble import Assembly, Parts
from orchestrator.author.trial.calls import OperatorCalls, opcheck_as_call, operator_like
from orchestrator.author.trial.closure import Closure, text_of
from orchestrator.author.trial.dtypes import named_dtypes
from orchestrator.author.trial.flatten import Flat, Step, flatten
from orchestrator.author.trial.inputs import Inputs, promoted
from orchestrator.author.trial.outputs import as_outputs, conditions
from orchestrator.author.trial.parameters import Reader, as_parameters, lookup_in
from orchestrator.author.trial.scopes import BUILTINS, binds, last_name, reads, unbound
from orchestrator.author.trial.select import selected
from orchestrator.author.trial.source import Source, imported_names, read
from orchestrator.author.trial.units import Unit, units
from orchestrator.errors import TreeError, UsageError
from orchestrator.inventory.spelling import near


def read_trial(path: Path, operator: Operator, sources: Sequence[Path] = ()) -> Trial:
    """How the unit test at ``path`` exercises ``operator``.

    ``sources``: files and folders in which modules that it imports are looked for, besides those
    around it. Nothing of the test is run. Raises ``TreeError`` when the file is no Python text, and
    ``UsageError`` when nothing in it calls the operator.
    """
    source = read(path, sources)
    try:
        with warnings.catch_warnings():
            # What Python thinks of the test's escapes is not our user's news.
            warnings.simplefilter("ignore")
            return _trial(source, operator)
    except RecursionError:
        raise TreeError(
            "nested too deeply to be read", where=source.shown, hint="simplify the unit test"
        ) from None


def _trial(source: Source, operator: Operator) -> Trial:
    calls = OperatorCalls(operator, source)
    every = units(source)
    reader = Reader(source, every)
    found = [c for unit in every if (c := _candidate(unit, reader, calls)) is not None]
    if not found:
        # Some tests call the operator only through torch's own check of it.
        every = units(_with_opchecks_called(source))
        found = [c for unit in every if (c := _candidate(unit, reader, calls, True)) is not None]
    if not found:
        known = operator_like(source)
        guess = near(operator.name, known)
        hint = f'it calls "{guess}"' if guess else "name the test that calls it"
        if guess == operator.name:
            hint = "what it does with it cannot be followed: call it from a test function"
        raise UsageError(
            f"nothing in the unit test calls {operator.name}", where=source.shown, hint=hint
        )
    best = max(found, key=lambda candidate: candidate.score)
    return _Writer(best, calls).trial()


def _with_opchecks_called(source: Source) -> Source:
    class Called(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            self.generic_visit(node)
            return opcheck_as_call(node) or node

    tree = Called().visit(copy.deepcopy(source.tree))
    assert isinstance(tree, ast.Module)
    return replace(source, tree=tree)


@dataclass
class _Candidate:
    operator: str
    shared: bool  # several tests call it, so that its parameters hold the values of all
    unit: Unit
    inputs: Inputs
    flat: Flat
    parts: Parts

    @property
    def score(self) -> tuple[int, ...]:
        """Compared is better; then few open ends, what several tests call, the operator's name;
        then more varied, more compared, a test.
        """
        return (
            min(1, len(self.parts.outputs)),
            -len(self.inputs.unknown) - len(self.parts.todos),
            int(self.shared),
            int(self.operator in self.unit.name),
            min(1, len(self.inputs.groups)),
            len(self.parts.outputs),
            int(self.unit.is_test),
        )


def _candidate(
    unit: Unit, reader: Reader, calls: OperatorCalls, checked_late: bool = False
) -> _Candidate | None:
    """``unit`` as a test of the operator, or None where it does not call it.

    ``checked_late``: the call was torch's check of the operator, which comes after comparisons
    of what a layer did with it.
    """
    if not any(
        calls.may_be_reached(s, unit.siblings)
        for s in [*unit.node.decorator_list, *unit.before, *unit.node.body]
    ):
        return None
    given = reader.given(unit)
    body = [s for s in unit.node.body if not isinstance(s, (ast.Import, ast.ImportFrom))]
    lookup = lookup_in(unit.source)

    def reaches(statements: list[ast.stmt]) -> bool:
        flat = flatten(unit, statements, calls)
        return bool(Assembly(unit, flat, calls).call_indices())

    body = copy.deepcopy([*given.before, *body])
    body, groups = named_dtypes(body, given.groups, lookup)
    body, groups = selected(body, groups, lookup, reaches)
    flat = flatten(unit, body, calls)
    inputs = Inputs(unit, flat, groups, given.unknown, lookup)
    flat.steps = inputs.steps()
    if checked_late:
        flat.steps.sort(key=lambda step: compare.mentions(step.node))
    assembly = Assembly(unit, flat, calls, inputs.constant, inputs.column)
    best: Parts | None = None
    for index in assembly.call_indices():
        parts = assembly.cut(index)
        if best is None or len(parts.outputs) > len(best.outputs):
            best = parts
    if best is not None and best.outputs:
        best.todos.extend(_rounds(flat, best, calls.operator.name))
    return (
        None
        if best is None
        else _Candidate(calls.operator.name, reader.is_shared(unit), unit, inputs, flat, best)
    )


def _rounds(flat: Flat, parts: Parts, name: str) -> list[Todo]:
    """Loops that call the operator for one part after the other of what is compared at the end."""
    at = parts.line.steps[parts.line.call].node.lineno
    return [
        Todo(
            f"the operator's calls for each {ast.unparse(loop.target)} in "
            f"{ast.unparse(loop.iter)}: the test compares what all of them did, the benchmark "
            "calls it once; write out one call and what it does",
            source.place(loop),
        )
        for loop, source in flat.rounds
        if not any(last_name(n) == name for n in ast.walk(loop))
        or loop.lineno <= at <= (loop.end_lineno or at)
    ]


class _Writer:
    """Writes a candidate's parts as text, with all they need."""

    def __init__(self, candidate: _Candidate, calls: OperatorCalls) -> None:
        self._unit = candidate.unit
        self._inputs = candidate.inputs
        self._flat = candidate.flat
        self._parts = candidate.parts
        self._calls = calls
        self._closure = Closure(
            candidate.unit.source,
            calls,
            candidate.unit.definitions,
            {k: v for s in candidate.unit.node.body for k, v in imported_names(s).items()},
        )

    def trial(self) -> Trial:
        """The trial."""
        parts, unit = self._parts, self._unit
        prepare, reference, after = (
            [self._whole(parts.line.steps[i]) for i in sorted(indices)]
            for indices in (parts.prepare, parts.reference, parts.after)
        )
        reference += [self._whole(Step(node, unit.source)) for node in parts.expected]
        prepare, seeded = self._seeded(prepare)
        texts = [[self._text(step) for step in steps] for steps in (prepare, reference, after)]
        free = self._free([*prepare, *reference, *after], len(prepare))
        groups = promoted(self._inputs.groups, free)
        parameters = as_parameters(groups, free - self._roles())
        known = {p.name for p in parameters}
        open_ones = self._open(free - known - self._roles())
        outputs = as_outputs(parts.outputs)
        todos = [*parts.todos, *self._closure.todos, *open_ones, *_unwritten(parameters)]
        if not outputs:
            todos.append(
                Todo(
                    f"what {self._calls.operator.name} should have computed: the test compares "
                    "nothing of it with a reference",
                    unit.source.place(unit.node),
                )
            )
        device, seed = self._inputs.device, self._inputs.seed
        result = parts.result
        return Trial(
            place=unit.source.place(unit.node),
            function=unit.name,
            parameters=parameters,
            prepare=tuple(texts[0]),
            arguments={name: ast.unparse(value) for name, value in parts.arguments.items()},
            outputs=outputs,
            reference=tuple(texts[1]),
            result=None if result is None else ", ".join(binds(result)),
            copied=parts.copied,
            after=tuple(texts[2]),
            skips=self._skips(known),
            helpers=tuple(self._closure.helpers),
            imports=tuple(sorted(self._closure.imports)),
            device_names=(device,) if device in free else (),
            seed_names=(seed,) if seed in free or seeded else (),
            todos=tuple(todos),
        )

    def _roles(self) -> set[str]:
        return {self._inputs.device, self._inputs.seed}

    def _whole(self, step: Step) -> Step:
        """A step with the condition of its block around it, and without modules of the test."""
        node = step.node
        for condition in reversed(step.when):
            made = ast.If(copy.deepcopy(condition), [node], [])
            node = ast.fix_missing_locations(ast.copy_location(made, node))
        return Step(self._closure.flattened(copy.deepcopy(node), step.source, node), step.source)

    def _text(self, step: Step) -> str:
        return text_of(step.node, step.source)

    def _seeded(self, prepare: list[Step]) -> tuple[list[Step], bool]:
        """``prepare`` with Python's and numpy's generators seeded where it draws from them."""
        seeds: list[Step] = []
        for module in ("random", "np.random", "numpy.random"):
            drawn = any(_draws(s.node, module) for s in prepare)
            if drawn:
                text = f"{module}.seed({self._inputs.seed})"
                seeds.append(Step(ast.parse(text).body[0], self._unit.source))
        kept = [s for s in prepare if not _is_seeding(s.node)]
        return [*seeds, *kept], bool(seeds)

    def _free(self, steps: list[Step], before_call: int) -> set[str]:
        """Names that the parts take from outside; helpers among them are collected.

        ``before_call``: how many of ``steps`` come before the operator's call.
        """
        found: set[str] = set()
        bound: set[str] = set()
        parts = self._parts
        groups: list[tuple[Iterable[str], Source]] = []
        results = set(binds(parts.result)) if parts.result is not None else set()
        for index, step in enumerate(steps):
            if index == before_call:
                bound |= results
            groups.append((unbound([step.node], bound), step.source))
            bound |= set(binds(step.node))
        bound |= results
        for value in parts.arguments.values():
            groups.append((set(reads(value)) - bound, self._unit.source))
        for output in parts.outputs:
            values = [output.actual, output.expected, output.found.atol, output.found.rtol]
            for part in [*values, *conditions(output.step)]:
                if part is not None:
                    groups.append((set(reads(part)) - bound, output.step.source))
        inputs = {name for group in self._inputs.groups for name in group.names}
        for names, source in groups:
            for name in names:
                found.add(name)
                if name not in inputs and name not in self._roles():
                    self._closure.need([name], source, self._unit.node)
        return found

    def _open(self, names: set[str]) -> list[Todo]:
        """A ``Todo`` for each name that nothing defines."""
        said = " ".join(todo.what for todo in self._closure.todos)
        place = self._unit.source.place(self._unit.node)
        missing = (names | set(self._closure.missing)) - set(self._closure.defined)
        imported = {i.split()[-1].partition(".")[0] for i in self._closure.imports}
        found: list[Todo] = []
        for name in sorted(missing - imported - BUILTINS):
            if name not in said.split():
                unknown = name in self._inputs.unknown
                what = "values of the test's argument" if unknown else "what the test calls"
                found.append(Todo(f"{what} {name}: nothing at hand defines it", place))
        return found

    def _skips(self, known: set[str]) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for condition in self._inputs.skips(self._flat.skips):
            names = set(reads(condition)) - BUILTINS - {"torch"}
            if names and names <= known:
                found.setdefault(ast.unparse(condition))
        return tuple(found)


def _unwritten(parameters: Iterable[Parameter]) -> list[Todo]:
    """A ``Todo`` for each parameter with values that no configuration can hold: objects, calls."""
    found: list[Todo] = []
    for one in parameters:
        named = (
            set(reads(ast.parse(v, mode="eval").body)) - {"torch", "float"} for v in one.values
        )
        if one.kind == "other" and any(named):
            what = f"values of the test's argument {one.name}: {one.values[0]} is no plain value"
            found.append(Todo(what, one.place))
    return found


def _draws(node: ast.AST, module: str) -> bool:
    return any(
        isinstance(n, ast.Attribute)
        and ast.unparse(n.value) == module
        and n.attr not in ("seed", "default_rng", "RandomState", "Random", "Generator")
        for n in ast.walk(node)
    )


def _is_seeding(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) in ("random.seed", "np.random.seed", "numpy.random.seed")
    )
