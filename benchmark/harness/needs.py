"""Which operators and libraries a runner needs, read from its source without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.providers import PROVIDERS, registers

# A runner that says one of these brings operators of its own, perhaps only when it is called.
_OWN = ("load_library", "cpp_extension", "torch.library")
# Attributes of torch.ops that are no namespaces.
_NO_NAMESPACES = frozenset({"load_library", "loaded_libraries", "import_module"})


@dataclass(frozen=True)
class Needs:
    """What a runner asks for; all in the order of its source.

    ``operators`` are called as ``torch.ops.NAMESPACE.NAME`` and written ``NAMESPACE::NAME``;
    ``unnamed`` are namespaces that it also takes without the name of an operator; ``certain`` those
    namespaces, and names bound by imports, that it cannot do without: they are met on every way
    through it. ``imports`` are the modules of known operator libraries that
    it imports; ``optional`` maps names that a guarded import would bind to their modules. ``own``
    says that it brings operators itself.
    """

    operators: tuple[str, ...]
    namespaces: tuple[str, ...]
    unnamed: frozenset[str]
    certain: frozenset[str]
    imports: tuple[str, ...]
    optional: dict[str, str]
    own: bool

    def whole(self, package: str) -> bool:
        """Whether it imports more of ``package`` than the modules that register operators."""
        return any(
            name.split(".")[0] == package
            and not registers(name)
            and not registers(name.rpartition(".")[0])
            for name in self.imports
        )

    def optional_modules(self) -> dict[str, str]:
        """Of ``optional``, the modules of known libraries that are imported for functions."""
        return {
            bound: name
            for bound, name in self.optional.items()
            if name in self.imports and not registers(name)
        }


def read(source: str) -> Needs:
    """Read a runner's source, which has to parse."""
    module = ast.parse(source)
    operators: dict[str, None] = {}
    namespaces: dict[str, None] = {}
    unnamed = set()
    always = _always(module)
    certain = {node.id for node in always if isinstance(node, ast.Name)}
    met = set(map(id, always))
    for node, namespace, name in _calls(module):
        if namespace in _NO_NAMESPACES:
            continue
        namespaces.setdefault(namespace)
        if name is not None:
            operators.setdefault(f"{namespace}::{name}")
        else:
            unnamed.add(namespace)
        if id(node) in met:
            certain.add(namespace)
    imports = [name for node in _ordered(module) for name, _ in _bound(node)]
    known = [name for name in imports if name.split(".")[0] in PROVIDERS]
    return Needs(
        tuple(operators),
        tuple(namespaces),
        frozenset(unnamed),
        frozenset(certain),
        tuple(dict.fromkeys(known)),
        optional_imports(module),
        any(word in source for word in _OWN),
    )


def optional_imports(module: ast.Module) -> dict[str, str]:
    """Names that ``try: import ... except ImportError`` would bind, with their module.

    When the import failed, using such a name later means that the library is absent.
    """
    names: dict[str, str] = {}
    for block in ast.walk(module):
        if isinstance(block, ast.Try):
            for node in block.body:
                names.update((bound, name) for name, bound in _bound(node))
    return names


def _bound(node: ast.AST) -> Iterator[tuple[str, str]]:
    """What an import statement imports, and the name it binds."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, alias.asname or alias.name.split(".")[0]
    elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
        for alias in node.names:
            yield f"{node.module}.{alias.name}", alias.asname or alias.name


def _ordered(module: ast.Module) -> list[ast.stmt | ast.expr]:
    nodes = [node for node in ast.walk(module) if isinstance(node, (ast.stmt, ast.expr))]
    return sorted(nodes, key=lambda node: (node.lineno, node.col_offset))


def _calls(module: ast.Module) -> Iterator[tuple[ast.AST, str, str | None]]:
    """Node, namespace and operator of all that is called as ``torch.ops.NAMESPACE.OPERATOR``.

    The operator is None where it is not named there.
    """
    ordered = _ordered(module)
    roots = {"torch.ops"}
    spaces: dict[str, str] = {}
    for node in ordered:
        if isinstance(node, ast.ImportFrom) and node.module == "torch":
            roots |= {a.asname or a.name for a in node.names if a.name == "ops"}
        elif isinstance(node, ast.Import):
            roots |= {f"{a.asname}.ops" for a in node.names if a.asname and a.name == "torch"}
    for node in ordered:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            dotted = _dotted(node.value)
            if dotted in roots:
                roots.add(node.targets[0].id)
            elif dotted is not None and dotted.rpartition(".")[0] in roots:
                spaces[node.targets[0].id] = dotted.rpartition(".")[2]
    inner = {id(node.value) for node in ordered if isinstance(node, ast.Attribute)}
    for node in ordered:
        if not isinstance(node, ast.Attribute) or id(node) in inner:
            continue
        parts = (_dotted(node) or "").split(".")
        for length in (1, 2):
            if ".".join(parts[:length]) in roots and len(parts) > length:
                rest = parts[length:]
                yield node, rest[0], rest[1] if len(rest) > 1 else None
        if len(parts) > 1 and parts[0] in spaces:
            yield node, spaces[parts[0]], parts[1]


def _dotted(node: ast.AST) -> str | None:
    """``a.b.c`` as text, None when it is anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return None if inner is None else f"{inner}.{node.attr}"
    return None


# Where a runner begins.
_ENTRIES = frozenset({"__init__", "prepare_and_get_launcher", "run_verification"})


def _always(module: ast.Module) -> list[ast.AST]:
    """Expressions that every run of the runner meets, as far as can be told without running it.

    What stands in a branch, or after one that may leave the function, is not among them; a
    function counts where its name is met.
    """
    functions: dict[str, list[ast.stmt]] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef):
            functions.setdefault(node.name, node.body)
    found: list[ast.AST] = []
    waiting = [body for name, body in functions.items() if name in _ENTRIES]
    for name in _ENTRIES:
        functions.pop(name, None)
    while waiting:
        for node in _straight(waiting.pop()):
            found.append(node)
            met = getattr(node, "attr", None) or getattr(node, "id", None)
            if met in functions:
                waiting.append(functions.pop(met))
    return found


def _straight(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Nodes of statements that are not in a branch."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            continue
        if isinstance(statement, (ast.With, ast.For)):
            heads = [statement.iter] if isinstance(statement, ast.For) else statement.items
            for head in heads:
                yield from _unbranched(head)
            yield from _straight(statement.body)
        elif not isinstance(statement, (ast.If, ast.While, ast.Try, ast.Match)):
            yield from _unbranched(statement)
            continue
        leaves = (ast.Return, ast.Raise, ast.Break, ast.Continue)
        if any(isinstance(node, leaves) for node in ast.walk(statement)):
            return


def _unbranched(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.IfExp, ast.BoolOp)):
            yield from _unbranched(child)
