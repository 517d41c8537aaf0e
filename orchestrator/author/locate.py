"""Find an operator by name in sources, and tell how Python calls it.

The places are those of the spec: ``op/`` itself, ``kernel/`` and ``include/`` for ``mcoplib.op``,
``op/vllm/`` for ``mcoplib._C`` and ``_moe_C``, ``op/sglang/`` for ``mcoplib.sgl_kernel``; and those
of vLLM's and sglang's own repositories. A unit test's imports tell which library it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.author import python_ops
from orchestrator.author.cpp.operators import CppOperator, CppReader, reader
from orchestrator.author.facts import Framework, Operator
from orchestrator.author.overloads import Candidate, chosen
from orchestrator.author.python_ops import PythonOperator
from orchestrator.author.unit_imports import Imported, unit_imports
from orchestrator.author.walk import Files, gather
from orchestrator.errors import TreeError, UsageError
from orchestrator.inventory.spelling import near, short

_ORDER: tuple[Framework, ...] = ("mcoplib", "vllm", "sgl", "torch")
_SPACES: dict[str, Framework] = {
    **dict.fromkeys(("_C", "_moe_C", "_C_cache_ops", "_rocm_C", "_C_cpu_ops", "vllm"), "vllm"),
    **dict.fromkeys(("_C_cuda_utils", "_C_custom_ar", "_C_stable_libtorch"), "vllm"),
    "sgl_kernel": "sgl",
    "op": "mcoplib",
}
_FOLDERS: dict[str, Framework] = {
    **dict.fromkeys(("vllm",), "vllm"),
    **dict.fromkeys(("sglang", "sgl-kernel", "sgl_kernel"), "sgl"),
}


def find_operators(
    name: str, sources: Sequence[Path], unit_test: Path | None, framework: Framework | None
) -> list[Operator]:
    """The operators called ``name``: one for each framework and namespace that has it.

    ``unit_test``: its imports tell what the library is called and which namespace is meant where
    the sources leave that to the build. ``framework``: only of this one. Those of frameworks that
    the unit test imports come first.

    Raises ``UsageError`` where there is none, with the nearest names; ``TreeError`` where a source
    that has it cannot be read.
    """
    if not name.isidentifier():
        raise UsageError(f"{short(name)!r} is no operator's name", hint="give it without namespace")
    read = Sources(sources, unit_test)
    imported = read.imported
    search = read.search(name)
    found = search.all()
    wanted = [o for o in found if framework in (None, o.framework)]
    if wanted:
        leading = [*imported.frameworks, *_ORDER]
        return sorted(wanted, key=lambda o: (leading.index(o.framework), o.namespace))
    if found:
        others = ", ".join(dict.fromkeys(o.framework for o in found))
        raise UsageError(
            f"{name} is not of {framework} in these sources, but of {others}",
            hint=f"--framework {found[0].framework}",
        )
    if search.trouble is not None:
        raise search.trouble
    raise _nothing(name, read.files, search, sources)


class Sources:
    """Sources, each file of which is read once, however many operators are looked up.

    Raises ``UsageError`` for a source that is not there.
    """

    def __init__(self, sources: Sequence[Path], unit_test: Path | None = None) -> None:
        self.files = gather(sources)
        self.imported = unit_imports(unit_test)
        self._cpp = reader(self.files.cpp)

    def search(self, name: str) -> _Search:
        """The search for one operator."""
        return _Search(name, self.files, self.imported, self._cpp)

    def find(self, name: str) -> list[Operator]:
        """All operators called ``name``, every overload of them.

        Raises ``TreeError`` where C++ cannot be understood.
        """
        return self.search(name).overloads() if name.isidentifier() else []


def _nothing(name: str, files: Files, search: _Search, sources: Sequence[Path]) -> UsageError:
    looked = f"{len(files.cpp)} C++ and {len(files.python)} Python files"
    where = ", ".join(str(path) for path in sources[:4]) + (", ..." if len(sources) > 4 else "")
    known = search.names()
    guess = near(name, known)
    return UsageError(
        f"no operator called {name} is registered, declared or defined in {looked}",
        where=where or None,
        hint=f"did you mean {guess}?" if guess else "name the folder of its sources with --source",
    )


def _around(wrapper: Operator, inner: Operator) -> Operator:
    """A Python function with what is known of the operator that it is around."""
    return replace(
        wrapper,
        dtypes=wrapper.dtypes or inner.dtypes,
        constraints=(*wrapper.constraints, *inner.constraints),
        sources=(*wrapper.sources, *inner.sources),
        allocates=(*wrapper.allocates, *inner.allocates),
    )


def _grouped(candidates: Iterable[Candidate]) -> dict[tuple[str, str], list[Candidate]]:
    """By framework and namespace, of those that are called alike the first."""
    found: dict[tuple[str, str], list[Candidate]] = {}
    for each in candidates:
        operator = each.operator
        several = found.setdefault((operator.framework, operator.namespace), [])
        if all(one.operator.arguments != operator.arguments for one in several):
            several.append(each)
    return found


_COMPILED = frozenset(("schema", "pybind", "declaration"))


class _Search:
    """One name in these files. ``trouble``: the first file that has the name but is unreadable."""

    def __init__(self, name: str, files: Files, imported: Imported, cpp: CppReader) -> None:
        self._name = name
        self._files = files
        self._imported = imported
        self._cpp = cpp
        self.trouble: TreeError | None = None

    def all(self) -> list[Operator]:
        """All operators of the name, in C++ and in Python."""
        found: dict[tuple[str, str], Operator] = {}
        in_python = [(one, self._interpreted(one)) for one in self._in_python()]
        # The test calls what hands its arguments on as they are: the operator itself.
        handed_on = any(one.forwards and self._used(operator) for one, operator in in_python)
        registered = _grouped(Candidate(o) for one, o in in_python if one.kind == "library")
        for key, several in self._compiled_ones().items():
            found[key] = chosen(several, self._imported.tree)
        for one, operator in in_python:
            key = operator.framework, operator.namespace
            compiled = [o for o in found.values() if o.framework == key[0] and o.kind in _COMPILED]
            if one.kind == "library":
                found.setdefault(key, chosen(registered[key], self._imported.tree))
            elif not compiled:
                found.setdefault(key, operator)
            elif one.wraps and not one.forwards and not handed_on and self._used(operator):
                # What vLLM's test calls is a function that takes something else than the operator.
                for inner in compiled:
                    del found[inner.framework, inner.namespace]
                found[key] = _around(operator, compiled[0])
            elif not one.wraps and (one.kind == "triton" or self._used(operator)):
                found.setdefault(key, operator)
        return self._meant(list(found.values()))

    def overloads(self) -> list[Operator]:
        """All signatures of the name: those of ``all``, and what else is in their places."""
        library = (self._interpreted(one) for one in self._in_python() if one.kind == "library")
        several = {
            "library": _grouped(map(Candidate, library)),
            **dict.fromkeys(_COMPILED, self._compiled_ones()),
        }
        found: list[Operator] = []
        for one in self.all():
            beside = several.get(one.kind, {}).get((one.framework, one.namespace))
            found += [each.operator for each in beside] if beside else [one]
        return found

    def _compiled_ones(self) -> dict[tuple[str, str], list[Candidate]]:
        """What C++ has."""
        found = ((self._compiled(each), each) for each in self._cpp.find(self._name))
        return _grouped(Candidate(o, each.overload, each.doubtful) for o, each in found)

    def _meant(self, found: list[Operator]) -> list[Operator]:
        """Of several in one framework those that the unit test calls, if it calls any."""
        kept = []
        for operator in found:
            rivals = [o for o in found if o.framework == operator.framework]
            called = [o for o in rivals if self._called(o)]
            if not called or operator in called[:1]:
                kept.append(operator)
        return kept

    def _called(self, operator: Operator) -> bool:
        if operator.call.startswith("torch.ops."):
            spaces = self._imported.spaces.get(operator.name, set())
            return operator.namespace in spaces
        return self._imported.spelling(operator.namespace, operator.name) is not None

    def _used(self, operator: Operator) -> bool:
        """Whether the unit test calls the Python function, not the operator of ``torch.ops``."""
        spelt = self._imported.spelling(operator.namespace, operator.name)
        return (
            spelt is not None
            and spelt[0] in self._imported.calls
            and operator.name not in self._imported.spaces
        )

    def names(self) -> set[str]:
        """Names of operators that the sources have, for what was misspelt."""
        return self._cpp.names() | self._files.python_names()

    def _compiled(self, one: CppOperator) -> Operator:
        framework = self._framework(one)
        namespace = self._namespace(one, framework)
        call, imports = self._call(one, framework, namespace)
        return Operator(
            name=one.name,
            namespace=namespace,
            framework=framework,
            kind=one.kind,
            call=call,
            arguments=one.arguments,
            returns=one.returns,
            imports=imports,
            dtypes=one.dtypes,
            constraints=one.constraints,
            sources=one.sources,
            allocates=one.allocates,
            todos=one.todos,
        )

    def _framework(self, one: CppOperator) -> Framework:
        if one.namespace is not None and not one.assumed:
            known = _SPACES.get(one.namespace)
            return known or "torch"
        parts = self._files.relative(one.path).parts[:-1]
        for part in reversed(parts):
            if part in _FOLDERS:
                return _FOLDERS[part]
            if part == "op":
                break
        if one.kind == "pybind":
            return "mcoplib"
        if one.namespace is not None:  # TORCH_LIBRARY of an extension, which vLLM calls _C
            return "vllm"
        return "mcoplib" if {"op", "kernel", "include"} & set(parts) else "torch"

    def _namespace(self, one: CppOperator, framework: Framework) -> str:
        """The namespace; where the build names it, the one that the unit test calls it in."""
        if one.namespace is not None and not one.assumed:
            return one.namespace
        used = self._imported.spaces.get(one.name, set())
        if one.kind == "pybind" and framework == "mcoplib":
            return "op"
        if len(used) == 1 and (one.namespace is not None or framework != "mcoplib"):
            (space,) = used
            if _SPACES.get(space, framework) == framework:
                return space
        if one.namespace is not None and one.kind != "pybind":
            return one.namespace
        defaults: dict[Framework, str] = {"vllm": "_C", "sgl": "sgl_kernel", "mcoplib": "op"}
        if framework == "vllm" and "moe" in one.path.parts:
            return "_moe_C"
        return defaults.get(framework, one.namespace or one.path.stem)

    def _call(
        self, one: CppOperator, framework: Framework, namespace: str
    ) -> tuple[str, tuple[str, ...]]:
        """The callable as Python code, and the imports that make it exist."""
        if framework == "mcoplib":
            return f"op.{one.name}", ("from mcoplib import op",)
        call = f"torch.ops.{namespace}.{one.name}"
        if framework == "sgl":
            module = self._imported.package("mcoplib.sgl_kernel", "sgl_kernel")
            return call, (f"import {module or self._library('mcoplib.sgl_kernel', 'sgl_kernel')}",)
        if framework == "vllm":
            # Cache operators live in the same library as the others.
            extension = namespace.removesuffix("_cache_ops")
            owner = self._imported.package("mcoplib", "vllm") or self._library("mcoplib", "vllm")
            return call, (f"import {owner}.{extension}",)
        module = self._imported.package(namespace)
        return call, (self._imported.imports.get(namespace, f"import {module or namespace}"),)

    def _library(self, ours: str, theirs: str) -> str:
        """Whose library it is, by the layout: the spec's ``op/``, or the framework's own."""
        folders = {part for path in self._files.cpp for part in self._files.relative(path).parts}
        return theirs if "csrc" in folders and "op" not in folders else ours

    def _in_python(self) -> list[PythonOperator]:
        found: list[PythonOperator] = []
        for path, text in self._files.python_mentioning(self._name):
            try:
                found += python_ops.find(path, text, self._name, self._written_by)
            except TreeError as error:
                self.trouble = self.trouble or error
        # A registration is the operator; functions of its name are what it is made of.
        registered = [one for one in found if one.kind == "library"]
        return registered or found

    def _written_by(self, namespace: str, name: str) -> frozenset[int] | None:
        try:
            known = [o for o in self._cpp.find(name) if o.namespace in (namespace, None)]
        except TreeError:
            return None
        written = {
            frozenset(i for i, each in enumerate(one.arguments) if each.mutated) for one in known
        }
        return written.pop() if len(written) == 1 else None

    def _interpreted(self, one: PythonOperator) -> Operator:
        module = self._files.module(one.path)
        package = module.split(".")[0]
        framework: Framework = _FOLDERS.get(package, "torch")
        framework = "mcoplib" if package == "mcoplib" else framework
        if one.kind == "library":
            framework = _SPACES.get(one.namespace, framework)
            call, namespace = f"torch.ops.{one.namespace}.{one.name}", one.namespace
            imported = self._imported.module(module) or self._imported.package(package) or module
            imports = (f"import {imported}",)
        else:
            spelt = self._imported.spelling(module, one.name)
            call, statement = spelt or (one.name, f"from {module} import {one.name}")
            namespace, imports = module, (statement,)
        return Operator(
            name=one.name,
            namespace=namespace,
            framework=framework,
            kind=one.kind,
            call=call,
            arguments=one.arguments,
            returns=one.returns,
            imports=imports,
            constraints=one.constraints,
            sources=one.sources,
            allocates=one.allocates,
            todos=one.todos,
        )
