"""A Python file, parsed once: nodes by kind, parents, enclosing functions, names and literals.

What a name may hold is only said where it can be told; None means "cannot be told" everywhere, and
a rule then keeps silent.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from orchestrator.author.check.finding import At, Edit
from orchestrator.author.check.literals import fold
from orchestrator.author.check.reading import UnreadableError, read
from orchestrator.errors import TreeError
from orchestrator.suites import whitelist

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Scope: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
_N = TypeVar("_N", bound=ast.AST)
# One object stands for all that are alike: it has no place of its own.
_SHARED = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Source:
    """A parsed file; made by ``parse_file``."""

    def __init__(self, path: Path, shown: str, text: str, tree: ast.Module) -> None:
        self.path = path
        self.shown = shown
        self.text = text
        self.tree = tree
        self._parents: dict[ast.AST, ast.AST] = {}
        self._by_kind: dict[type[ast.AST], list[ast.AST]] = {}
        self._order: dict[ast.AST, int] = {}
        # In the order of the text; ``ast.walk`` goes by depth.
        todo: list[ast.AST] = [tree]
        while todo:
            node = todo.pop()
            self._order[node] = len(self._order)
            self._by_kind.setdefault(type(node), []).append(node)
            children: list[ast.AST] = []
            # As ast.iter_child_nodes, which takes twice the time of this.
            for name in node._fields:
                value = getattr(node, name, None)
                if isinstance(value, list):
                    children += [
                        item
                        for item in value
                        if isinstance(item, ast.AST) and not isinstance(item, _SHARED)
                    ]
                elif isinstance(value, ast.AST) and not isinstance(value, _SHARED):
                    children.append(value)
            for child in children:
                self._parents[child] = node
            children.reverse()
            todo += children

    def walk(self, kind: type[_N], within: ast.AST | None = None) -> Iterator[_N]:
        """All nodes of ``kind`` in the order of the text, or those inside ``within``."""
        nodes = self._by_kind.get(kind, [])
        if within is not None:
            # What is inside a node follows it without a gap.
            order, first = self._order.__getitem__, self._order[within]
            behind = first + self._sizes[within] - 1
            nodes = nodes[bisect_right(nodes, first, key=order) :]
            nodes = nodes[: bisect_right(nodes, behind, key=order)]
        yield from nodes  # type: ignore[misc]

    @cached_property
    def _sizes(self) -> dict[ast.AST, int]:
        """How many nodes each node is, with all that it holds."""
        sizes = dict.fromkeys(self._order, 1)
        for node in reversed(self._order):
            parent = self._parents.get(node)
            if parent is not None:
                sizes[parent] += sizes[node]
        return sizes

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node that holds ``node``."""
        return self._parents.get(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """What encloses ``node``, from the inside; the module is the last."""
        found = self._parents.get(node)
        while found is not None:
            yield found
            found = self._parents.get(found)

    def function(self, node: ast.AST) -> Function | None:
        """The innermost ``def`` around ``node``."""
        for found in self.ancestors(node):
            if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
                return found
        return None

    def scope(self, node: ast.AST) -> Scope:
        """The function, lambda or module whose names ``node`` sees first."""
        for found in self.ancestors(node):
            if isinstance(found, _FUNCTIONS):
                return found
        return self.tree

    def withs(self, node: ast.AST) -> list[ast.expr]:
        """The context expressions of the ``with`` blocks whose body holds ``node``, inner first."""
        found: list[ast.expr] = []
        child: ast.AST = node
        for parent in self.ancestors(node):
            if isinstance(parent, ast.With | ast.AsyncWith) and child in parent.body:
                found += [item.context_expr for item in parent.items]
            child = parent
        return found

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds ``node``, or itself."""
        found = node
        while not isinstance(found, ast.stmt):
            found = self._parents[found]
        return found

    def at(self, node: ast.AST) -> At:
        """Where ``node`` begins; columns are characters."""
        line = getattr(node, "lineno", 1)
        offset = getattr(node, "col_offset", 0)
        if offset and line <= len(self.lines):
            raw = self.lines[line - 1].encode("utf-8", "surrogatepass")
            offset = len(raw[:offset].decode("utf-8", "replace"))
        return At(self.shown, line, offset + 1)

    @cached_property
    def lines(self) -> list[str]:
        """The lines as Python counts them, each with its end."""
        return whitelist.lines(self.text)

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + len(line))
        return starts

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """First and last (exclusive) character of ``node`` in ``text``."""
        first = self.at(node)
        end_line = node.end_lineno or node.lineno
        raw = self.lines[end_line - 1].encode("utf-8", "surrogatepass")
        width = len(raw[: node.end_col_offset].decode("utf-8", "replace"))
        return self._starts[first.line - 1] + first.column - 1, self._starts[end_line - 1] + width

    def replacing(self, node: ast.expr | ast.stmt, after: str) -> Edit:
        """The edit that puts ``after`` in the place of ``node``."""
        start, end = self.span(node)
        return Edit(self.path, start, end, self.text[start:end], after)

    def removing(self, statement: ast.stmt) -> Edit | None:
        """The edit that removes a statement with its lines.

        None where it shares them with another, or is all that its block has.
        """
        block = self._block(statement)
        first, last = statement.lineno, statement.end_lineno or statement.lineno
        if block is None or len(block) == 1:
            return None
        if any(
            first <= (o.end_lineno or o.lineno) and o.lineno <= last
            for o in block
            if o is not statement
        ):
            return None
        start, end = self._starts[first - 1], self._starts[last]
        return Edit(self.path, start, end, self.text[start:end], "")

    def _block(self, statement: ast.stmt) -> list[ast.stmt] | None:
        parent = self._parents.get(statement)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and statement in block:
                return block
        return None

    @cached_property
    def imports(self) -> dict[str, str]:
        """What each imported name stands for: ``{"op": "mcoplib.op", "np": "numpy"}``."""
        found: dict[str, str] = {}
        for plain in self.walk(ast.Import):
            for name in plain.names:
                if name.asname:
                    found[name.asname] = name.name
                else:
                    first = name.name.split(".")[0]
                    found[first] = first
        for part in self.walk(ast.ImportFrom):
            module = "." * part.level + (part.module or "")
            for name in part.names:
                found[name.asname or name.name] = f"{module}.{name.name}"
        return found

    @cached_property
    def functions(self) -> dict[str, Function]:
        """The module's own functions by name; of several the last."""
        return {
            node.name: node
            for node in self.definitions
            if self.scope(node) is self.tree and not self._in_class(node)
        }

    @cached_property
    def definitions(self) -> list[Function]:
        """Every ``def`` of the file, methods and inner ones too."""
        return [*self.walk(ast.FunctionDef), *self.walk(ast.AsyncFunctionDef)]

    def _in_class(self, node: ast.AST) -> bool:
        return any(isinstance(found, ast.ClassDef) for found in self.ancestors(node))

    @cached_property
    def _bindings(self) -> dict[tuple[Scope, str], list[ast.expr | None]]:
        """What is bound to a name in a scope; None for what is no plain assignment."""
        found: dict[tuple[Scope, str], list[ast.expr | None]] = {}
        for name in self.walk(ast.Name):
            if not isinstance(name.ctx, ast.Load):
                found.setdefault((self.scope(name), name.id), []).append(self._assigned(name))
        scopes: list[Function | ast.Lambda] = [*self.definitions, *self.walk(ast.Lambda)]
        for function in scopes:
            for argument in _parameters(function.args):
                found.setdefault((function, argument.arg), []).append(None)
        for definition in self.definitions:
            if not isinstance(self._parents.get(definition), ast.ClassDef):
                found.setdefault((self.scope(definition), definition.name), []).append(None)
        shared: list[ast.Global | ast.Nonlocal] = [
            *self.walk(ast.Global),
            *self.walk(ast.Nonlocal),
        ]
        for statement in shared:
            for word in statement.names:
                found.setdefault((self.scope(statement), word), []).append(None)
                found.setdefault((self.tree, word), []).append(None)
        return found

    def _assigned(self, name: ast.Name) -> ast.expr | None:
        """The expression that ``name`` is given, also out of a tuple literal."""
        parent = self._parents.get(name)
        if isinstance(parent, ast.Assign) and name in parent.targets:
            return parent.value
        if isinstance(parent, ast.AnnAssign | ast.NamedExpr) and parent.target is name:
            return parent.value
        if isinstance(parent, ast.Tuple | ast.List):
            outer = self._parents.get(parent)
            if (
                isinstance(outer, ast.Assign)
                and parent in outer.targets
                and isinstance(outer.value, ast.Tuple | ast.List)
                and len(outer.value.elts) == len(parent.elts)
                and not any(isinstance(e, ast.Starred) for e in (*outer.value.elts, *parent.elts))
            ):
                return outer.value.elts[parent.elts.index(name)]
        return None

    def binds(self, scope: Scope, name: str) -> bool:
        """Whether ``name`` is a local name of ``scope``."""
        return (scope, name) in self._bindings

    def bound_anywhere(self, name: ast.Name) -> bool:
        """Whether an assignment or a parameter, not only an import, may be behind ``name``."""
        scope = self.scope(name)
        while scope is not self.tree:
            if self.binds(scope, name.id):
                return True
            scope = self.scope(scope)
        return self.binds(scope, name.id)

    def value_of(self, name: ast.Name) -> ast.expr | None:
        """The expression behind a name that is bound exactly once; None when it cannot be told."""
        scope: Scope | None = self.scope(name)
        while scope is not None:
            bound = self._bindings.get((scope, name.id))
            if bound is not None:
                return bound[0] if len(bound) == 1 else None
            scope = self.scope(scope) if scope is not self.tree else None
        return None

    def literal(self, node: ast.AST | None) -> Any:
        """The value of a literal, also through names and arithmetic; ``UNKNOWN`` else."""
        return fold(node, self.value_of)


def _parameters(arguments: ast.arguments) -> list[ast.arg]:
    extra = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra]


def parameters(function: Function | ast.Lambda) -> list[str]:
    """The names that a function's arguments are given by position, ``self`` included."""
    return [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]


def dotted(node: ast.AST | None) -> str | None:
    """``a.b.c`` for such an expression, else None."""
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(words)]) if isinstance(node, ast.Name) else None


def parse_file(path: Path, shown: str) -> Source:
    """Read and parse a Python file; raises ``UnreadableError`` with the place of what is wrong."""
    text = read(path, shown)
    return parse_text(path, shown, text)


def parse_text(path: Path, shown: str, text: str) -> Source:
    """Parse the text of ``path``; raises ``UnreadableError``."""
    try:
        return Source(path, shown, text, whitelist.parse(text, shown))
    except TreeError as error:
        raise UnreadableError.of(error, shown) from None
    except RecursionError:
        raise UnreadableError(At(shown), "nested too deeply", "split it") from None
