"""What sources and libraries say of operators: read when a runner first calls one of that name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.author.facts import Framework, Operator, Place
from orchestrator.errors import TreeError, UsageError

if TYPE_CHECKING:
    from orchestrator.author.check.tree import Known
    from orchestrator.author.locate import Sources
    from orchestrator.author.schema import Schema

_FRAMEWORKS: dict[str, Framework] = {"sgl_kernel": "sgl"}
# Namespaces that one library registers in, and its strings do not tell which: any of them will do.
_BESIDE = {"_C": ("_C", "_C_cache_ops", "_C_custom_ar", "_C_cuda_utils")}


def known_operators(sources: Sequence[Path], libraries: Sequence[Path]) -> Known | None:
    """How to look an operator's name up; None when there is nothing to look in.

    A library among the ``sources`` is one of the ``libraries``.
    A built library says what a source says of the same operator, and comes first: it is what runs.
    Raises ``UsageError`` for a path that is not there, ``TreeError`` for a library that is none.
    """
    if not sources and not libraries:
        return None
    for path in (*sources, *libraries):
        if not path.exists():
            raise UsageError("there is no such file or folder", where=str(path))
    from orchestrator.author.binary import is_library

    libraries = [*libraries, *filter(is_library, sources)]
    sources = [path for path in sources if not is_library(path)]
    return KnownOperators(sources, libraries)


class KnownOperators:
    """Looks operators up by name; sources are read when a name is first asked for."""

    def __init__(self, sources: Sequence[Path], libraries: Sequence[Path]) -> None:
        self._sources = sources
        self._built: dict[str, list[Operator]] = {}
        for path in libraries:
            for operator in _in_library(path):
                self._built.setdefault(operator.name, []).append(operator)

    def __call__(self, name: str) -> Sequence[Operator]:
        """All operators called ``name``."""
        found = self._built.get(name, [])
        namespaces = {operator.namespace for operator in found}
        if not self._sources:
            return found
        try:
            written = self._read.find(name)
        except TreeError:  # what cannot be understood says nothing
            written = []
        return [*found, *(one for one in written if one.namespace not in namespaces)]

    def names(self) -> set[str]:
        """The names of all of them."""
        written = self._read.search("").names() if self._sources else set()
        return set(self._built) | written

    @cached_property
    def _read(self) -> Sources:
        from orchestrator.author.locate import Sources

        return Sources(self._sources)


def _in_library(path: Path) -> list[Operator]:
    from orchestrator.author.binary import schemas

    found = []
    for namespace, some in schemas(path).items():
        for name in _BESIDE.get(namespace, (namespace,)):
            found += [_operator(name, schema, path) for schema in some]
    return found


def _operator(namespace: str, schema: Schema, path: Path) -> Operator:
    return Operator(
        name=schema.name,
        namespace=namespace,
        framework=_FRAMEWORKS.get(namespace, "vllm"),
        kind="schema",
        call=f"torch.ops.{namespace}.{schema.name}",
        arguments=schema.arguments,
        returns=tuple(returned.type for returned in schema.returns),
        sources=(Place(str(path), 1),),
    )
