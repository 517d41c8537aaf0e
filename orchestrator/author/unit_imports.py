"""What a unit test says of where its operator comes from: its imports, and what it calls."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.author.facts import Framework
from orchestrator.author.python_effects import dotted
from orchestrator.suites import mcoplib, whitelist

_LIBRARIES: dict[str, Framework] = {
    "mcoplib.op": "mcoplib",
    "mcoplib._C": "vllm",
    "mcoplib._moe_C": "vllm",
    "mcoplib.sgl_kernel": "sgl",
    "vllm": "vllm",
    "sgl_kernel": "sgl",
    "sglang": "sgl",
}


@dataclass(frozen=True)
class Imported:
    """``imports``: dotted names of what is imported, to the statement that does so.

    ``spaces``: for the operators called, the namespaces of ``torch.ops`` they are called in.
    ``calls``: everything that is called, dotted, as the test spells it. ``tree``: all of the test.
    """

    imports: dict[str, str] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)  # local name to what it stands for
    spaces: dict[str, set[str]] = field(default_factory=dict)
    calls: frozenset[str] = frozenset()
    tree: ast.Module | None = None

    @property
    def frameworks(self) -> list[Framework]:
        """Those whose libraries it imports, in the order of its imports."""
        found: list[Framework] = []
        for name in self.imports:
            for library, framework in _LIBRARIES.items():
                if name == library or name.startswith(f"{library}."):
                    found.append(framework)
        return list(dict.fromkeys(found))

    def package(self, *wanted: str) -> str | None:
        """The first of these modules that it imports, or imports something of."""
        for module in wanted:
            if any(name == module or name.startswith(f"{module}.") for name in self.imports):
                return module
        return None

    def module(self, module: str) -> str | None:
        """What it imports ``module`` as: a source folder may stand anywhere above the package."""
        for name in self.imports:
            words = name.split(".")
            for count in range(len(words), 0, -1):
                if _same(".".join(words[:count]), module):
                    return ".".join(words[:count])
        return None

    def spelling(self, module: str, name: str) -> tuple[str, str] | None:
        """How the test calls ``name`` of ``module``, and the statement that makes it callable."""
        for local, target in self.bound.items():
            # A source folder may stand anywhere above the package.
            if _same(target, f"{module}.{name}"):
                return local, self.imports[target]
            if f"{local}.{name}" in self.calls and _same(target, module):
                return f"{local}.{name}", self.imports[target]
        for target, statement in self.imports.items():
            if f"{target}.{name}" in self.calls and _same(target, module):
                return f"{target}.{name}", statement
        return None


def _same(one: str, other: str) -> bool:
    return one == other or one.endswith(f".{other}") or other.endswith(f".{one}")


def unit_imports(path: Path | None) -> Imported:
    """Read a unit test's imports and calls; nothing for no test.

    Raises ``TreeError`` where it cannot be read, or is no Python.
    """
    if path is None:
        return Imported()
    tree = whitelist.parse(mcoplib.read_text(path), str(path))
    imports: dict[str, str] = {}
    bound: dict[str, str] = {}
    spaces: dict[str, set[str]] = {}
    calls: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                alias = f" as {each.asname}" if each.asname else ""
                imports.setdefault(each.name, f"import {each.name}{alias}")
                if each.asname:
                    bound[each.asname] = each.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                alias = f" as {each.asname}" if each.asname else ""
                whole = f"{node.module}.{each.name}"
                imports.setdefault(whole, f"from {node.module} import {each.name}{alias}")
                bound[each.asname or each.name] = whole
        elif isinstance(node, ast.Attribute):
            whole = dotted(node)
            parts = whole.split(".")
            if parts[:2] == ["torch", "ops"] and len(parts) >= 4:
                spaces.setdefault(parts[3], set()).add(parts[2])
            calls.add(whole)
        elif isinstance(node, ast.Call):
            calls.add(dotted(node.func))
    return Imported(imports, bound, spaces, frozenset(calls), tree)
