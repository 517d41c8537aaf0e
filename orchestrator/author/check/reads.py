"""Which keys of its config a runner reads, with which defaults, and where.

The config is followed through other names (``cfg = config``, ``self.cfg``), into helpers that are
given it, and through ``super().__init__(name, config)``. Where it goes out of sight, or is read
under a name that is computed, ``dynamic`` says so, and nobody can say what is not read.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from orchestrator.author.check.literals import UNKNOWN
from orchestrator.author.check.runner import Runner
from orchestrator.author.check.source import Function, Scope, parameters

_GETS = {"get", "pop", "setdefault"}
_MOST_ROUNDS = 20  # a config handed on so often is somebody's trap
# What looks at it as a whole without reading any value of an operator.
_HARMLESS = {"print", "len", "id", "repr", "str", "bool", "isinstance", "type"}


@dataclass(frozen=True)
class Read:
    """One place where ``key`` is read; ``required``: the key has to be there.

    ``default`` is its default's expression; None where there is none. ``asked``: ``"x" in config``.
    """

    key: str
    node: ast.AST
    default: ast.expr | None = None
    required: bool = False
    asked: bool = False


@dataclass
class Reads:
    """All reads of a runner."""

    reads: list[Read] = field(default_factory=list)
    dynamic: list[ast.AST] = field(default_factory=list)

    def of(self, key: str) -> list[Read]:
        """The reads of one key."""
        return [read for read in self.reads if read.key == key]

    def keys(self) -> set[str]:
        """All keys that are read."""
        return {read.key for read in self.reads}


def find_reads(runner: Runner) -> Reads:
    """Follow the config through the module."""
    return _Follower(runner).follow()


class _Follower:
    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.source = runner.source
        self.found = Reads()
        self.names: set[tuple[Scope, str]] = set()
        self.attributes = {"config"}
        self._seen: set[ast.AST] = set()

    def follow(self) -> Reads:
        for node in self.runner.lineage:
            for statement in node.body:
                if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
                    self._constructor(statement)
        known = -1
        rounds = 0
        while known != len(self.names) + len(self.attributes):
            known = len(self.names) + len(self.attributes)
            rounds += 1
            if rounds > _MOST_ROUNDS:
                self.found.dynamic.append(self.source.tree)
                break
            for name in self.source.walk(ast.Name):
                if isinstance(name.ctx, ast.Load) and self._is_config_name(name):
                    self._use(name)
            for attribute in self.source.walk(ast.Attribute):
                if isinstance(attribute.ctx, ast.Load) and self._is_config_attribute(attribute):
                    self._use(attribute)
        return self.found

    def _constructor(self, function: Function) -> None:
        names = parameters(function)
        if len(names) > 2:
            self.names.add((function, names[2]))
        elif "config" in names:
            self.names.add((function, "config"))
        elif function.args.vararg or function.args.kwarg:
            self.found.dynamic.append(function)

    def _is_config_name(self, name: ast.Name) -> bool:
        scope = self.source.scope(name)
        while (scope, name.id) not in self.names:
            if scope is self.source.tree or self.source.binds(scope, name.id):
                return False
            scope = self.source.scope(scope)
        return True

    def _is_config_attribute(self, attribute: ast.Attribute) -> bool:
        return self.runner.attribute(attribute) in self.attributes

    def _use(self, node: ast.expr) -> None:
        if node in self._seen:
            return
        self._seen.add(node)
        parent = self.source.parent(node)
        if isinstance(parent, ast.Attribute):
            self._member(parent)
        elif isinstance(parent, ast.Subscript) and parent.value is node:
            self._subscript(parent)
        elif isinstance(parent, ast.Compare) and node in parent.comparators:
            self._membership(parent, node)
        elif isinstance(parent, ast.Assign | ast.AnnAssign) and parent.value is node:
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            for target in targets:
                self._alias(target)
        elif isinstance(parent, ast.Call) and node in parent.args:
            self._passed(parent, parent.args.index(node), None, node)
        elif isinstance(parent, ast.keyword) and parent.arg is not None:
            call = self.source.parent(parent)
            assert isinstance(call, ast.Call)
            self._passed(call, None, parent.arg, node)
        else:
            self.found.dynamic.append(node)

    def _member(self, member: ast.Attribute) -> None:
        call = self.source.parent(member)
        called = isinstance(call, ast.Call) and call.func is member
        if not called or member.attr not in _GETS:
            self.found.dynamic.append(member)
            return
        assert isinstance(call, ast.Call)
        given = {word.arg: word.value for word in call.keywords}
        key = self._key(call.args[0] if call.args else given.get("key"))
        if key is None or None in given or any(isinstance(a, ast.Starred) for a in call.args):
            self.found.dynamic.append(call)
            return
        default = call.args[1] if len(call.args) > 1 else given.get("default")
        required = default is None and member.attr == "pop"
        self.found.reads.append(Read(key, call, default, required=required))

    def _subscript(self, subscript: ast.Subscript) -> None:
        if not isinstance(subscript.ctx, ast.Load):
            return  # changed here: a read elsewhere stays one
        key = self._key(subscript.slice)
        if key is None:
            self.found.dynamic.append(subscript)
        else:
            self.found.reads.append(Read(key, subscript, required=True))

    def _membership(self, compare: ast.Compare, node: ast.expr) -> None:
        position = compare.comparators.index(node)
        left = compare.left if position == 0 else compare.comparators[position - 1]
        key = self._key(left)
        if not isinstance(compare.ops[position], ast.In | ast.NotIn) or key is None:
            self.found.dynamic.append(compare)
        else:
            self.found.reads.append(Read(key, compare, asked=True))

    def _key(self, node: ast.expr | None) -> str | None:
        value = self.source.literal(node) if node is not None else UNKNOWN
        return value if isinstance(value, str) else None

    def _alias(self, target: ast.expr) -> None:
        attribute = self.runner.attribute(target)
        if attribute is not None:
            self.attributes.add(attribute)
        elif isinstance(target, ast.Name):
            self.names.add((self.source.scope(target), target.id))
        else:
            self.found.dynamic.append(target)

    def _passed(
        self, call: ast.Call, position: int | None, keyword: str | None, node: ast.expr
    ) -> None:
        """The config is an argument of ``call``."""
        if isinstance(call.func, ast.Name) and call.func.id in _HARMLESS:
            return
        if _is_base_constructor(call):
            return  # a constructor in this module is looked at anyway, the base reads the dtype
        function = self.runner.callee(call)
        names = parameters(function) if function is not None else []
        if position is not None and isinstance(call.func, ast.Attribute) and function is not None:
            bound = self.runner.attribute(call.func) is not None
            position += 1 if bound and not _is_static(function) else 0
        if function is not None and keyword in names:
            self.names.add((function, keyword))
        elif function is not None and position is not None and position < len(names):
            self.names.add((function, names[position]))
        else:
            self.found.dynamic.append(node)


def _is_static(function: Function) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)


def _is_base_constructor(call: ast.Call) -> bool:
    """``super().__init__(...)`` or ``Base.__init__(self, ...)``."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "__init__"
