"""Evaluation of names, attributes and settings; the base of the interpreter."""

from __future__ import annotations

import ast

from orchestrator.author.check.flow.frames import (
    CONFIG,
    SELF,
    SELF_DTYPE,
    Machine,
)
from orchestrator.author.check.flow.torch_model import SIZE_OF, VIEW_ATTRIBUTES
from orchestrator.author.check.flow.values import (
    NONE,
    UNKNOWN,
    Const,
    Frame,
    Function,
    Method,
    Name,
    Opaque,
    Setting,
    Shape,
    Symbol,
    Tensor,
    Value,
    either,
    options,
    tokens,
)
from orchestrator.author.check.source import Function as Definition
from orchestrator.author.check.source import Source


class Names:
    """Evaluates what goes by a name; calls and assignments are the interpreter's."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.runner = machine.runner
        self.source = machine.runner.source
        self._module: dict[str, Value] = {}
        self._assigned = assignments(self.source)

    def call(self, node: ast.Call, frame: Frame) -> Value:
        """Evaluate a call."""
        raise NotImplementedError

    def invoke(self, function: Function, args: list[Value], node: ast.AST) -> Value:
        """Call a function of the runner."""
        raise NotImplementedError

    def assign(self, target: ast.expr, value: Value, frame: Frame) -> None:
        """Bind ``target``."""
        raise NotImplementedError

    def evaluate(self, node: ast.expr | None, frame: Frame) -> Value:
        """The value of an expression."""
        self.machine.step()
        if node is None:
            return NONE
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is not None:
            found: Value = method(node, frame)
            if self.machine.dtype is not None and isinstance(found, Const):
                self.machine.chosen[node] = found
            return found
        # Await, Yield and the like: what is in them happens, the result is not known.
        inner = [
            self.evaluate(child, frame)
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.expr)
        ]
        return Opaque(tokens(inner))

    def _name(self, node: ast.Name, frame: Frame) -> Value:
        scope: Frame | None = frame
        while scope is not None:
            if node.id in scope.names:
                return scope.names[node.id]
            scope = scope.outer
        return self._global(node.id)

    def _global(self, name: str) -> Value:
        if name not in self._module:
            self._module[name] = UNKNOWN  # one that is defined by itself
            self._module[name] = self._find_global(name)
        return self._module[name]

    def _find_global(self, name: str) -> Value:
        found: list[Value] = []
        if name in self.source.imports:
            found.append(Name(self.source.imports[name]))
        if name in self.source.functions:
            found.append(self._defined(self.source.functions[name]))
        for cls in self.source.walk(ast.ClassDef):
            if cls.name == name:
                found.append(Name(f"class:{name}"))
        frame = Frame({}, None)
        for value in self._assigned.get(name, ()):
            # ``op = None`` stands in for a library that is not there.
            if isinstance(value, ast.Constant) and value.value is None and found:
                continue
            found.append(UNKNOWN if value is None else self.evaluate(value, frame))
        return either(found) if found else Name(name)

    def _defined(self, node: Definition, frame: Frame | None = None) -> Value:
        return Function(node, frame)

    def _attribute(self, node: ast.Attribute, frame: Frame) -> Value:
        owner = self.evaluate(node.value, frame)
        return either(self.attribute(o, node.attr, node) for o in options(owner))

    def attribute(self, owner: Value, name: str, node: ast.AST) -> Value:
        """``owner.name``."""
        if owner == SELF:
            return self.own(name, node)
        if isinstance(owner, Name):
            return self._of_name(owner, name)
        if isinstance(owner, Tensor):
            return self._of_tensor(owner, name, node)
        if isinstance(owner, Opaque):
            return owner if owner.content else Method(owner, name)
        return Method(owner, name)

    def _of_name(self, owner: Name, name: str) -> Value:
        if owner.path.startswith("class:"):
            for cls in self.runner.lineage:
                if cls.name == owner.path.removeprefix("class:") and name in self.runner.methods:
                    return Function(self.runner.methods[name], None, owner=cls)
        path = f"{owner.path}.{name}"
        if name == "itemsize" and owner.path in SIZE_OF:
            return Const(SIZE_OF[owner.path])
        if owner == SELF_DTYPE and name == "itemsize":
            return Symbol(("itemsize", owner.path))
        return Name(path)

    def _of_tensor(self, owner: Tensor, name: str, node: ast.AST) -> Value:
        storage = owner.storage
        if name == "shape":
            return Shape(storage)
        if name == "dtype":
            return storage.dtype or UNKNOWN
        if name == "device":
            return Const("cpu") if storage.place == "host" else Name("device")
        if name in ("nbytes", "itemsize"):
            return Symbol((name, id(storage)), frozenset({storage}), whole=True)
        if name in VIEW_ATTRIBUTES:
            return owner
        return Method(owner, name)

    def own(self, name: str, node: ast.AST) -> Value:
        """``self.name``."""
        machine = self.machine
        if name in machine.attributes:
            return machine.attributes[name]
        method = self.runner.methods.get(name)
        if method is not None:
            decorators = [ast.unparse(d) for d in method.decorator_list]
            function = Function(method, None, bound="staticmethod" not in decorators)
            if any(d.endswith("property") for d in decorators):
                return self.invoke(function, [], node)
            return function
        if name == "config":
            return CONFIG
        if name == "dtype":
            return SELF_DTYPE if machine.dtype is None else Name(f"torch.{machine.dtype}")
        for cls in self.runner.lineage:
            for statement in cls.body:
                if isinstance(statement, ast.Assign) and any(
                    isinstance(t, ast.Name) and t.id == name for t in statement.targets
                ):
                    return self.evaluate(statement.value, Frame({}, None))
        return Name(f"self.{name}")

    def setting(self, name: Value, default: Value | None, node: ast.AST) -> Value:
        """``config[name]``, or ``config.get(name, default)``."""
        if not isinstance(name, Const) or not isinstance(name.value, str):
            return UNKNOWN
        if name.value == "dtype" and self.machine.dtype is not None:
            return Const(self.machine.dtype, node)
        return Setting(name.value, default, node)


def assignments(source: Source) -> dict[str, list[ast.expr | None]]:
    """What the module binds its names to; None for what is no plain assignment."""
    found: dict[str, list[ast.expr | None]] = {}
    for name in source.walk(ast.Name):
        if isinstance(name.ctx, ast.Store) and source.scope(name) is source.tree:
            parent = source.parent(name)
            plain = isinstance(parent, ast.Assign | ast.AnnAssign)
            if not any(isinstance(node, ast.ClassDef) for node in source.ancestors(name)):
                value = parent.value if isinstance(parent, ast.Assign | ast.AnnAssign) else None
                found.setdefault(name.id, []).append(value if plain else None)
    return found
