"""An operator as C++ has it: what is registered, declared and implemented, put together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from orchestrator.author import schema
from orchestrator.author.cpp.checks import Examined, examine
from orchestrator.author.cpp.effects import Effects, Fate
from orchestrator.author.cpp.functions import Function, Functions, walk
from orchestrator.author.cpp.project import Project
from orchestrator.author.cpp.registrations import Registration, is_elsewhere, registrations
from orchestrator.author.cpp.types import default_code, returns_of, schema_type
from orchestrator.author.facts import Argument, Constraint, Place, Todo

Kind = Literal["schema", "pybind", "declaration"]


@dataclass(frozen=True)
class CppOperator:
    """What C++ says of an operator; what it is called by from Python is for others to tell.

    ``namespace``: of the registration, None for a declaration without one; ``assumed`` as there.
    ``path``: of the registration, or of the declaration.
    """

    name: str
    kind: Kind
    namespace: str | None
    assumed: bool
    path: Path
    arguments: tuple[Argument, ...]
    returns: tuple[str, ...]
    dtypes: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    sources: tuple[Place, ...]
    allocates: tuple[Place, ...]
    todos: tuple[Todo, ...]
    overload: str = ""
    doubtful: bool = False  # only some builds have it


class CppReader:
    """Finds operators by name in a project; what was parsed for one is there for the next."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._functions = Functions(project)
        self._effects = Effects(self._functions)

    def find(self, name: str) -> list[CppOperator]:
        """The operators of this name, those registered, else those declared.

        Several of one namespace are overloads, or what different builds have of it.

        Raises ``TreeError`` when a schema of it is none.
        """
        entries = [r for r in registrations(self._project, name) if r.name == name]
        entries.sort(key=lambda entry: entry.elsewhere)
        groups: dict[tuple[str, bool], list[Registration]] = {}
        for entry in entries:
            groups.setdefault((entry.namespace, entry.pybind), []).append(entry)
        found = [one for group in groups.values() for one in self._overloads(name, group)]
        return found or self._declared(name)

    def _overloads(self, name: str, group: list[Registration]) -> list[CppOperator]:
        """One operator for each signature that is registered in a namespace."""
        definitions = [entry for entry in group if entry.kind == "def"]
        # What is for other hardware only is better than nothing.
        definitions = [entry for entry in definitions if not entry.elsewhere] or definitions
        # Torch takes a name once: what some builds register cannot be beside what all do.
        sure = {entry.overload for entry in definitions if entry.schema and not entry.doubtful}
        kept = [e for e in definitions if not (e.doubtful and e.schema and e.overload in sure)]
        found: list[CppOperator] = []
        for entry in kept:
            others = [e for e in group if e.kind != "def" and e.overload == entry.overload]
            shared = group if len(kept) == 1 else [entry, *others]
            found += self._registered(name, entry, shared)
        return _distinct(found)

    def names(self) -> set[str]:
        """All names that are registered anywhere."""
        return {r.name for r in registrations(self._project) if r.kind == "def"}

    def _registered(
        self, name: str, first: Registration, group: list[Registration]
    ) -> Iterator[CppOperator]:
        """The operator of a definition; several where builds differ in its function."""
        read = schema.parse(first.schema, str(first.place)) if first.schema else None
        count = len(read.arguments) if read else len(first.types or first.named) or None
        functions = self._functions_of(name, first, group, count)
        variants = [functions] if read is not None else _variants(functions)
        for variant in variants:
            unsure = len(variants) > 1 and any(f.doubtful or f.local for f in variant)
            yield self._as_registered(name, first, read, variant, unsure)

    def _as_registered(
        self,
        name: str,
        first: Registration,
        read: schema.Schema | None,
        functions: list[Function],
        doubtful: bool,
    ) -> CppOperator:
        implemented, declared = _definition(functions)
        place = implemented.place if implemented else None
        sources = [first.place, *([place] if place else [])]
        if declared is not None and declared.place not in sources:
            sources.append(declared.place)
        todos: list[Todo] = []
        if read is not None:
            arguments = read.arguments
            returns = tuple(returned.type for returned in read.returns)
        else:
            shown = declared or implemented
            if shown is None:
                todos.append(
                    Todo(f"the C++ function of {name} is not in the sources: add them", first.place)
                )
                arguments, returns = self._only_named(first), ()
            else:
                arguments, returns, more = self._from_types(shown, first)
                todos += more
        return self._finished(
            CppOperator(
                name=name,
                kind="pybind" if first.pybind else "schema",
                namespace=first.namespace,
                assumed=first.assumed,
                path=first.source.path,
                arguments=arguments,
                returns=returns,
                dtypes=(),
                constraints=(),
                sources=tuple(sources),
                allocates=(),
                todos=tuple(todos),
                overload=first.overload,
                doubtful=first.doubtful or doubtful,
            ),
            implemented,
        )

    def _functions_of(
        self, name: str, first: Registration, group: list[Registration], count: int | None
    ) -> list[Function]:
        """Definitions and declarations of what implements it, the likeliest first."""
        for entry in [first, *group]:
            if entry.lambda_ is not None:
                found = self._functions.snippet(name, entry.lambda_, entry.source, entry.offset)
                return [found] if found else []
        wanted = [entry.function for entry in group if entry.function]
        functions: list[Function] = []
        for function in dict.fromkeys([*wanted, name]):
            functions = self._functions.named(function, self._project.mentioning(function))
            if functions:
                break
        seen = {path for entry in group for path in self._project.around(entry.source)}
        functions = _without(functions, lambda f: f.local and f.source.path not in seen)
        if first.types is not None:
            wanted_types = tuple(map(_plain, first.types))
            functions = [f for f in functions if _types(f) == wanted_types] or functions
        if count is not None:
            functions = [f for f in functions if len(f.parameters) == count] or functions
        # A device function may have the name, too: the operator's own takes tensors.
        functions = [f for f in functions if _takes_tensors(f)] or functions
        functions.sort(
            key=lambda f: (
                is_elsewhere(Path(f.place.path)),
                _distance(first.source.path, Path(f.place.path)),
            )
        )
        return _settled(functions)

    def _declared(self, name: str) -> list[CppOperator]:
        """Operators that are registered nowhere: functions that take tensors, one a folder."""
        functions = self._functions.named(name, self._project.mentioning(name))
        functions = [f for f in functions if _takes_tensors(f)]
        functions = _without(functions, lambda f: f.local)
        functions = _settled(functions)
        found: dict[tuple[Path, tuple[str, ...]], CppOperator] = {}
        definitions = [f for f in functions if f.body is not None]
        for shown in sorted(functions, key=lambda f: f.body is not None):
            path = Path(shown.place.path)
            near = sorted(definitions, key=lambda f: _distance(path, Path(f.place.path)))
            same = [shown] if shown.body is not None else []
            same = same or [f for f in near if _spelt(f) == _spelt(shown)]
            same = same or [f for f in near if _types(f) == _types(shown)]
            same = same or [f for f in near if len(f.parameters) == len(shown.parameters)]
            implemented = next(iter(same or near), None)
            taken = implemented or shown
            key = Path(taken.place.path), _spelt(taken)
            if key in found:
                continue
            arguments, returns, todos = self._from_types(shown, None)
            places = [shown.place]
            if implemented is not None and implemented.place != shown.place:
                places.append(implemented.place)
            todos.insert(0, Todo(f"{name} is declared, but registered nowhere here", shown.place))
            found[key] = self._finished(
                CppOperator(
                    name=name,
                    kind="declaration",
                    namespace=None,
                    assumed=True,
                    path=path,
                    arguments=arguments,
                    returns=returns,
                    dtypes=(),
                    constraints=(),
                    sources=tuple(places),
                    allocates=(),
                    todos=tuple(todos),
                    doubtful=taken.doubtful,
                ),
                implemented,
            )
        return list(found.values())

    def _from_types(
        self, shown: Function, entry: Registration | None
    ) -> tuple[tuple[Argument, ...], tuple[str, ...], list[Todo]]:
        """Arguments and results of a function that has no schema."""
        todos: list[Todo] = []
        arguments: list[Argument] = []
        named = entry.named if entry is not None else ()
        for index, parameter in enumerate(shown.parameters):
            kind = schema_type(parameter.type)
            if not kind:
                todos.append(
                    Todo(
                        f"what Python passes for `{parameter.type}`: {parameter.name}", shown.place
                    )
                )
                kind = "Any"
            keyword = named[index] if index < len(named) else None
            # Python sees only the defaults that pybind is told of.
            default = keyword.default if keyword else None
            if entry is None:
                default = parameter.default
            code = default_code(default, kind) if default is not None else None
            if default is not None and code is None:
                todos.append(Todo(f"the default of {parameter.name}, `{default}`", shown.place))
            if code == "None" and not kind.endswith("?") and kind != "Any":
                kind = f"{kind}?"
            arguments.append(
                Argument(
                    name=keyword.name if keyword else parameter.name,
                    type=kind,
                    default=code,
                    keyword_only=keyword.keyword_only if keyword else False,
                )
            )
        returns = returns_of(shown.returns)
        if returns is None:
            # auto, or a lambda, which says it by what it returns; else a type of somebody's own.
            deduced = shown.returns in ("", "auto") and shown.body is not None
            returns = () if deduced and not _returns_something(shown) else ("Any",)
            if returns:
                what = f"what {shown.name} returns: `{shown.returns or 'auto'}`"
                todos.append(Todo(what, shown.place))
        return tuple(arguments), returns, todos

    @staticmethod
    def _only_named(entry: Registration) -> tuple[Argument, ...]:
        """What pybind alone tells of the arguments: their names."""
        return tuple(
            Argument(
                each.name,
                "Any",
                default=default_code(each.default, "Any") if each.default else None,
                keyword_only=each.keyword_only,
            )
            for each in entry.named
        )

    def _finished(self, operator: CppOperator, implemented: Function | None) -> CppOperator:
        """With what the implementation tells besides."""
        if implemented is None:
            return operator
        names = {
            parameter.name: argument.name
            for parameter, argument in zip(implemented.parameters, operator.arguments, strict=False)
        }
        arguments = operator.arguments
        todos = list(operator.todos)
        # A schema that marks nothing and returns nothing cannot be the whole truth.
        if operator.kind != "schema" or not (operator.returns or any(a.mutated for a in arguments)):
            arguments, more = self._mutated(operator, implemented)
            todos += more
        found: Examined = examine(self._functions, implemented, names)
        tensors = [a.name for a in arguments if "Tensor" in a.type]
        mutated = frozenset(a.name for a in arguments if a.mutated)
        return replace(
            operator,
            arguments=arguments,
            dtypes=found.dtypes(tensors, mutated),
            constraints=tuple(found.constraints),
            allocates=tuple(found.allocates),
            todos=tuple(todos),
        )

    def _mutated(
        self, operator: CppOperator, implemented: Function
    ) -> tuple[tuple[Argument, ...], list[Todo]]:
        fates: list[Fate] = []
        for index, argument in enumerate(operator.arguments):
            takes_tensor = "Tensor" in argument.type
            fates.append(self._effects.of(implemented, index) if takes_tensor else Fate.READ)
        written = any(fate is Fate.WRITTEN for fate in fates)
        arguments: list[Argument] = []
        todos: list[Todo] = []
        for index, (argument, fate) in enumerate(zip(operator.arguments, fates, strict=True)):
            mutated = fate is Fate.WRITTEN
            if fate is Fate.UNKNOWN and not written and not operator.returns:
                # Something must be written: what is handed out of sight, and not as const.
                parameter = implemented.parameters[min(index, len(implemented.parameters) - 1)]
                mutated = not parameter.is_const
            if "Tensor" in argument.type:
                argument = replace(
                    argument, mutated=mutated, inferred=(*argument.inferred, "mutated")
                )
            arguments.append(argument)
        if not operator.returns and not any(a.mutated for a in arguments):
            todos.append(
                Todo(
                    f"which argument {operator.name} writes to, which returns nothing",
                    implemented.place,
                )
            )
        return tuple(arguments), todos


def _returns_something(function: Function) -> bool:
    nodes = walk(function.body) if function.body is not None else iter(())
    return any(node.type == "return_statement" and node.named_children for node in nodes)


def _definition(functions: list[Function]) -> tuple[Function | None, Function | None]:
    """Of functions the one that is defined, and its declaration."""
    implemented = next((f for f in functions if f.body is not None), None)
    fitting = [f for f in functions if f.body is None]
    if implemented is not None:
        # Another overload's declaration would have other parameters.
        same = len(implemented.parameters)
        fitting = [f for f in fitting if len(f.parameters) == same]
    return implemented, fitting[0] if fitting else implemented


def _settled(functions: list[Function]) -> list[Function]:
    """Without what only some builds have, where all builds have a definition."""
    sure = any(f.body is not None and not f.doubtful for f in functions)
    return [f for f in functions if not (sure and f.doubtful)]


def _variants(functions: list[Function]) -> list[list[Function]]:
    """The functions apart where it may be any of them.

    Builds have different ones, or one file has overloads; which of them is registered without a
    cast, only a compiler can tell.
    """
    choice = [f for f in functions if f.body is not None] or functions
    if choice and not all(f.doubtful for f in choice):
        choice = [f for f in choice if f.source.path == choice[0].source.path]
    spelt = dict.fromkeys(_spelt(f) for f in sorted(choice, key=lambda f: f.local))
    if len(spelt) < 2:
        return [functions]
    known = {_spelt(f) for f in choice}
    shared = [f for f in functions if f.body is None and not f.doubtful and _spelt(f) not in known]
    return [[*(f for f in functions if _spelt(f) == one), *shared] for one in spelt]


def _without(functions: list[Function], unwanted: Callable[[Function], bool]) -> list[Function]:
    """Those that are not unwanted, if there are any."""
    return [f for f in functions if not unwanted(f)] or functions


def _plain(kind: str) -> str:
    """A type without what does not tell overloads apart."""
    return re.sub(r"\bconst\b|\b\w+\s*::|[&\s]", "", kind)


def _types(function: Function) -> tuple[str, ...]:
    return tuple(_plain(parameter.type) for parameter in function.parameters)


def _spelt(function: Function) -> tuple[str, ...]:
    return tuple(f"{_plain(p.type)} {p.name}" for p in function.parameters)


def _distinct(found: list[CppOperator]) -> list[CppOperator]:
    """The first of those that are called alike."""
    kept: list[CppOperator] = []
    for one in found:
        if all((one.arguments, one.returns) != (k.arguments, k.returns) for k in kept):
            kept.append(one)
    return kept


def _takes_tensors(function: Function) -> bool:
    return any("Tensor" in parameter.type for parameter in function.parameters)


def _distance(one: Path, other: Path) -> int:
    """How many folders lie between two files."""
    common = 0
    for mine, theirs in zip(one.parts, other.parts, strict=False):
        if mine != theirs:
            break
        common += 1
    return len(one.parts) + len(other.parts) - 2 * common


def reader(files: Sequence[Path]) -> CppReader:
    """A reader of these files; those that are no C++ are left out."""
    return CppReader(Project(files))
