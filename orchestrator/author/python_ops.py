"""Operators that Python has: functions, wrappers of Triton kernels, ``torch.library`` operators.

Files are parsed, never imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from orchestrator.author import schema
from orchestrator.author.facts import Argument, Constraint, Place, Todo
from orchestrator.author.python_effects import (
    Effects,
    Function,
    Module,
    WrittenBy,
    constraints,
    dotted,
    is_kernel,
    kernels_of,
    parameters,
    waits,
)
from orchestrator.author.python_types import annotated_type, own_nodes, returned_types
from orchestrator.errors import TreeError
from orchestrator.suites import whitelist

Kind = Literal["triton", "library", "python"]
_REGISTERING = frozenset(("custom_op", "triton_op"))
_LONGEST_DEFAULT = 200


@dataclass(frozen=True)
class PythonOperator:
    """What a Python file says of an operator.

    ``namespace``: of ``torch.ops`` for ``kind`` ``library``, empty otherwise.
    ``wraps``: it calls an operator of its own name; ``forwards``: with its arguments as they are.
    """

    name: str
    kind: Kind
    namespace: str
    path: Path
    arguments: tuple[Argument, ...]
    returns: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    sources: tuple[Place, ...]
    allocates: tuple[Place, ...]
    todos: tuple[Todo, ...] = ()
    wraps: bool = False
    forwards: bool = False


@dataclass(frozen=True)
class _Entry:
    """A registration with torch.library, ``name`` with its overload's.

    ``written``: None where the schema says it.
    """

    namespace: str
    name: str
    place: Place
    schema: str | None = None
    function: str | None = None
    written: frozenset[str] | None = None
    implements: bool = False  # it only adds an implementation

    @property
    def base(self) -> str:
        """The name without its overload's."""
        return self.name.partition(".")[0].strip()


def find(path: Path, source: str, name: str, written_by: WrittenBy | None) -> list[PythonOperator]:
    """The operators called ``name`` in a file of this text; kernels themselves are none.

    ``written_by`` tells what operators of ``torch.ops`` write to. Raises ``TreeError`` where the
    file is no Python.
    """
    module = Module(whitelist.parse(source, str(path)), str(path))
    reader = _Reader(module, path, written_by)
    try:
        found = reader.registered(name)
        # What a registration gives the implementation of is no operator besides.
        if not found and name in module.functions and not is_kernel(module.functions[name]):
            found = [reader.function(name)]
    except RecursionError:
        raise TreeError(f"nested too deeply to read {name}", where=str(path)) from None
    return found


class _Reader:
    def __init__(self, module: Module, path: Path, written_by: WrittenBy | None) -> None:
        self._module = module
        self._path = path
        self._effects = Effects(module, written_by)

    def function(self, name: str) -> PythonOperator:
        """A plain function, or one that launches Triton kernels."""
        function = self._module.functions[name]
        kernels = kernels_of(self._module, function)
        found = self._operator(
            name=name,
            kind="triton" if kernels else "python",
            namespace="",
            function=function,
            written=self._effects.written(function),
            inferred=True,
            more=tuple(self._module.place(kernel) for kernel in kernels),
        )
        calls = list(_inner_calls(function))
        own = [parameter.arg for parameter in parameters(function)]
        return replace(found, wraps=bool(calls), forwards=own in calls)

    def registered(self, name: str) -> list[PythonOperator]:
        """Operators of torch.library, one for each overload of a namespace."""
        entries = [entry for entry in _entries(self._module) if entry.base == name]
        found = []
        for namespace in dict.fromkeys(entry.namespace for entry in entries):
            group = [entry for entry in entries if entry.namespace == namespace]
            definitions = [entry for entry in group if not entry.implements]
            for first in definitions:
                # An overload has its own implementations.
                shared = [e for e in group if e is first or e.implements]
                own = [e for e in shared if e.name == first.name]
                found.append(self._from_entry(first, own if len(definitions) > 1 else group))
        return found

    def _from_entry(self, first: _Entry, group: list[_Entry]) -> PythonOperator:
        wanted = [entry.function for entry in group if entry.function]
        names = [word for word in [*wanted, first.base] if word in self._module.functions]
        function = self._module.functions[names[0]] if names else None
        read = schema.parse(first.schema, str(first.place)) if first.schema else None
        if function is None:
            arguments = read.arguments if read else ()
            todos = (
                () if read else (Todo(f"the function of {first.base} is not here", first.place),)
            )
            returns = tuple(r.type for r in read.returns) if read else ()
            return PythonOperator(
                *(first.base, "library", first.namespace, self._path, arguments, returns),
                *((), (first.place,), (), todos),
            )
        operator = self._operator(
            name=first.base,
            kind="library",
            namespace=first.namespace,
            function=function,
            written=self._effects.written(function) if first.written is None else first.written,
            inferred=first.written is None,
            more=tuple(self._module.place(k) for k in kernels_of(self._module, function)),
        )
        sources = (first.place, *(place for place in operator.sources if place != first.place))
        operator = replace(operator, sources=sources)
        if read is None:
            return operator
        return replace(
            operator, arguments=read.arguments, returns=tuple(r.type for r in read.returns)
        )

    def _operator(
        self,
        *,
        name: str,
        kind: Kind,
        namespace: str,
        function: Function,
        written: frozenset[str],
        inferred: bool,
        more: tuple[Place, ...],
    ) -> PythonOperator:
        todos = []
        for each in (function.args.vararg, function.args.kwarg):
            if each is not None:
                place = self._module.place(function)
                todos.append(Todo(f"what {name} takes as *{each.arg}", place))
        return PythonOperator(
            name=name,
            kind=kind,
            namespace=namespace,
            path=self._path,
            arguments=tuple(_arguments(function, written, inferred)),
            returns=returned_types(function),
            constraints=constraints(self._module, function),
            sources=(self._module.place(function), *more),
            allocates=waits(self._module, function),
            todos=tuple(todos),
        )


def _inner_calls(function: Function) -> Iterator[list[str]]:
    """Calls of ``torch.ops.….name`` or ``ops.name`` in the function ``name``: what is passed on."""
    for node in own_nodes(function):
        if isinstance(node, ast.Call):
            words = dotted(node.func).removesuffix(".default").split(".")
            if len(words) > 1 and words[-1] == function.name:
                given = [each.id if isinstance(each, ast.Name) else "" for each in node.args]
                yield given + [dotted(each.value) for each in node.keywords]


def _arguments(function: Function, written: frozenset[str], inferred: bool) -> Iterator[Argument]:
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults))
    defaults += given.defaults
    defaults += given.kw_defaults
    for index, (parameter, default) in enumerate(zip(parameters(function), defaults, strict=True)):
        kind = annotated_type(parameter.annotation)
        concluded = []
        if kind == "Any" and parameter.arg in written:
            kind = "Tensor"  # nothing else can be written to
            concluded.append("type")
        if inferred and ("Tensor" in kind or kind.startswith("Any")):
            concluded.append("mutated")
        if isinstance(default, ast.Constant) and default.value is None and not kind.endswith("?"):
            kind = f"{kind}?"
        yield Argument(
            name=parameter.arg,
            type=kind,
            mutated=parameter.arg in written,
            default=ast.unparse(default)[:_LONGEST_DEFAULT] if default is not None else None,
            keyword_only=index >= len(positional),
            inferred=tuple(concluded),
        )


def _entries(module: Module) -> Iterator[_Entry]:
    """Everything that the file registers with torch.library."""
    libraries: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            called = dotted(node.value.func).split(".")[-1]
            space = _string(node.value.args[0]) if node.value.args else None
            if called == "Library" and space is not None:
                libraries |= {t.id: space for t in node.targets if isinstance(t, ast.Name)}
    decorators = set()
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call):
                    decorators.add(decorator)
                    yield from _decorated(module, decorator, node, libraries)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and node not in decorators:
            yield from _called(module, node, libraries)


def _decorated(
    module: Module, call: ast.Call, function: Function, libraries: dict[str, str]
) -> Iterator[_Entry]:
    last = dotted(call.func).split(".")[-1]
    if last in _REGISTERING and call.args:
        yield from _custom(module, call, function.name)
    elif last in ("impl", "register_kernel"):
        yield from _implementation(module, call, libraries, function.name)


def _custom(module: Module, call: ast.Call, function: str | None) -> Iterator[_Entry]:
    space, _, name = (_string(call.args[0]) or "").rpartition("::")
    given = {each.arg: each.value for each in call.keywords}
    text = _string(given["schema"]) if "schema" in given else None
    if space and name:
        yield _Entry(
            namespace=space,
            name=name,
            place=module.place(call),
            schema=f"{name}{text.strip()}" if text else None,
            function=function,
            written=_names(given.get("mutates_args")),
        )


def _implementation(
    module: Module, call: ast.Call, libraries: dict[str, str], function: str | None
) -> Iterator[_Entry]:
    """``impl("ns::f", …)``, ``impl(lib, "f", …)`` and ``lib.impl("f", function, …)``."""
    words = [text for each in call.args[:2] if (text := _string(each)) is not None]
    if not words:
        return
    space, _, name = words[0].rpartition("::")
    owners = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    for owner in [*owners, *call.args[:1]]:
        space = space or libraries.get(dotted(owner), "")
    if function is None:
        named = [each.id for each in call.args if isinstance(each, ast.Name)]
        function = next((word for word in named if word in module.functions), None)
    if space:
        yield _Entry(space, name, module.place(call), function=function, implements=True)


def _called(module: Module, call: ast.Call, libraries: dict[str, str]) -> Iterator[_Entry]:
    whole = dotted(call.func)
    owner, _, last = whole.rpartition(".")
    first = _string(call.args[0]) if call.args else None
    if last == "define" and owner in libraries and first is not None:
        name = first.partition("(")[0].rpartition("::")[2].strip()
        yield _Entry(libraries[owner], name, module.place(call), schema=first)
    elif last == "define" and owner.endswith("library") and first and len(call.args) > 1:
        space, _, name = first.rpartition("::")
        text = _string(call.args[1])
        if space and text is not None:
            yield _Entry(space, name, module.place(call), schema=f"{name}{text.strip()}")
    elif last == "impl":
        yield from _implementation(module, call, libraries, None)
    elif last in _REGISTERING and first is not None:
        functions = [each.id for each in call.args[1:] if isinstance(each, ast.Name)]
        yield from _custom(module, call, functions[0] if functions else None)
    elif last == "direct_register_custom_op":
        # vLLM's own: into its library unless it is told another.
        given = {each.arg: each.value for each in call.keywords}
        named = given.get("op_name", call.args[0] if call.args else None)
        function = given.get("op_func", call.args[1] if len(call.args) > 1 else None)
        name_text = _string(named) if named is not None else None
        library = dotted(given["target_lib"]) if "target_lib" in given else ""
        if name_text:
            yield _Entry(
                namespace=libraries.get(library, "vllm"),
                name=name_text,
                place=module.place(call),
                function=dotted(function) if function is not None else None,
                written=_names(given.get("mutates_args")),
            )


def _string(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _names(node: ast.expr | None) -> frozenset[str] | None:
    """The names that ``mutates_args`` lists; None where it lists none, as for ``"unknown"``."""
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return frozenset(text for each in node.elts if (text := _string(each)) is not None)
    if isinstance(node, ast.Dict) or node is None or (isinstance(node, ast.Call) and not node.args):
        return frozenset()  # {}, set(), or left out
    return None
