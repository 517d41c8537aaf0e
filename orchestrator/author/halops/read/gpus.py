"""``GPU_SPECS``: the GPUs that the code knows, and what it does with one that it does not."""

from __future__ import annotations

import ast
from typing import Any

from orchestrator.author.halops.facts import GpuSpecs, Place
from orchestrator.author.halops.read.machine import Machine
from orchestrator.author.halops.read.source import Sources
from orchestrator.author.halops.read.values import Config, Object, Source, known

_NAME = "GPU_SPECS"
_MODULES = ("core.metrics", "core.gpu", "core.specs", "core.roofline", "metrics")


def read_gpus(sources: Sources, entry: Source | None) -> GpuSpecs | None:
    """The table with its place; None where there is none."""
    machine = Machine(sources, Config(None))
    for name in _MODULES:
        source = machine.load(name)
        table = None if source is None else source.names.get(_NAME)
        if source is None or not isinstance(table, dict):
            continue
        place = next(
            (Place(source.shown, node.lineno) for node in source.tree.body if _defines(node)),
            Place(source.shown, 1),
        )
        if source.tree.body and place.line == 1:
            place = _imported(machine, source, place)
        specs = {str(key): _values(value) for key, value in table.items()}
        fp4 = frozenset(gpu for gpu, values in specs.items() if _has_fp4(values))
        trees = [each for each in (source, entry) if each is not None]
        default, fallback = _missing(trees, set(specs))
        return GpuSpecs(place, specs, fp4, default, fallback)
    return None


def _imported(machine: Machine, source: Source, place: Place) -> Place:
    """Where the table stands that a module only takes from another."""
    for other in machine.modules.values():
        if other is not None and other is not source:
            for node in other.tree.body:
                if _defines(node):
                    return Place(other.shown, node.lineno)
    return place


def _defines(node: ast.stmt) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return any(isinstance(each, ast.Name) and each.id == _NAME for each in targets)


def _values(value: Any) -> dict[str, Any]:
    if isinstance(value, Object):
        value = value.attributes
    if not isinstance(value, dict):
        return {}
    plain: dict[str, Any] = {}
    for key, each in value.items():
        inner = _values(each) if isinstance(each, (dict, Object)) else each
        if known(inner):
            plain[str(key)] = inner
    return plain


def _has_fp4(values: dict[str, Any]) -> bool:
    return any(
        ("fp4" in key.lower() and bool(value)) or (isinstance(value, dict) and _has_fp4(value))
        for key, value in values.items()
    )


def _missing(sources: list[Source], names: set[str]) -> tuple[str | None, Place | None]:
    """The default GPU, and where an unknown name silently becomes another's."""
    default: str | None = None
    fallback: Place | None = None
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and _gets(node):
                first, other = node.args[0], node.args[1]
                if isinstance(first, ast.Constant) and first.value == "gpu_type":
                    if isinstance(other, ast.Constant) and other.value in names:
                        default = default or str(other.value)
                elif _of_table(node):
                    fallback = fallback or Place(source.shown, node.lineno)
            elif isinstance(node, ast.If) and _tests_table(node.test):
                replaced = [each for each in node.body if isinstance(each, ast.Assign)]
                if replaced and not any(isinstance(each, ast.Raise) for each in node.body):
                    fallback = fallback or Place(source.shown, replaced[0].lineno)
            elif isinstance(node, ast.IfExp) and _tests_table(node.test):
                fallback = fallback or Place(source.shown, node.lineno)
    return default, fallback


def _gets(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == "get" and len(node.args) == 2


def _of_table(node: ast.Call) -> bool:
    of = node.func.value if isinstance(node.func, ast.Attribute) else None
    nothing = isinstance(node.args[1], ast.Constant) and node.args[1].value is None
    return isinstance(of, ast.Name) and of.id == _NAME and not nothing


def _tests_table(test: ast.expr) -> bool:
    return any(
        isinstance(each, ast.Compare)
        and isinstance(each.ops[0], (ast.In, ast.NotIn))
        and getattr(each.comparators[0], "id", getattr(each.comparators[0], "attr", "")) == _NAME
        for each in ast.walk(test)
    )
