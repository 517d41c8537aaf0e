"""Python code in the form that a formatter gives it: ``tidy``.

Generated runners hold code of many hands: what a unit test has, names of ours in it, calls that
are put together. All of it is parsed and set anew here, so that it reads as one. Comments stay, in
front of the statement that they stood in or beside it; statements, texts and numbers are the same.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence

from orchestrator.author.emit.tidy.comments import comments
from orchestrator.author.emit.tidy.expressions import Expressions
from orchestrator.author.emit.tidy.layout import (
    STEP,
    Broken,
    Doc,
    Group,
    Line,
    enclosed,
    flat,
    joined,
    parts,
    render,
)
from orchestrator.author.emit.tidy.operators import operator_of

WIDTH = 100
_OPENING = ("def ", "class ", "async ", ")")  # behind which a function follows at once
_COMPOUND = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def tidy(source: str, width: int = WIDTH) -> str:
    """``source`` set anew; raises ``SyntaxError`` or ``ValueError`` where it is not Python."""
    module = ast.parse(source)
    writer = _Writer(source, width)
    writer.block(module.body, 0, top=True)
    writer.comments_until(len(source) + 1, 0)
    return "\n".join(writer.lines).strip("\n") + "\n"


class _Writer:
    def __init__(self, source: str, width: int) -> None:
        self.lines: list[str] = []
        self._width = width
        self._made = Expressions(source)
        self._source = source.split("\n")
        self._own, self._beside = comments(source)

    # Comments and blank lines.

    def comments_until(self, line: int, indent: int) -> None:
        """Write the comments that stand on lines of their own before ``line``."""
        for at in sorted(at for at in self._own if at < line):
            _, text = self._own.pop(at)
            if self._is_blank(at - 1) and self.lines and self.lines[-1]:
                self._blank(1)
            self.lines.append(f"{' ' * indent}{text}")

    def _is_blank(self, line: int) -> bool:
        return 1 <= line <= len(self._source) and not self._source[line - 1].strip()

    def _blank(self, count: int) -> None:
        while self.lines and not self.lines[-1]:
            self.lines.pop()
        if self.lines:
            self.lines += [""] * count

    def _gap(self, former: ast.stmt | None, node: ast.stmt, first: int, top: bool) -> None:
        """Blank lines between two statements of a block; ``first``: the line of the later one."""
        if former is None:
            return
        count = 2 if top else 1
        if not (isinstance(node, _COMPOUND) or isinstance(former, _COMPOUND)):
            count = min(self._blanks_before(first), count)
            imports = (ast.Import, ast.ImportFrom)
            if isinstance(former, imports) and not isinstance(node, imports):
                count = max(count, 1)
            elif _is_text(former) and former is self._first:
                count = 1
        if count:
            self._blank(count)

    def _blanks_before(self, line: int) -> int:
        count = 0
        while self._is_blank(line - 1 - count):
            count += 1
        return count

    _first: ast.stmt | None = None

    def block(self, body: Sequence[ast.stmt], indent: int, *, top: bool = False) -> None:
        """Write the statements of a block."""
        former: ast.stmt | None = None
        if top and body:
            self._first = body[0]
        for node in body:
            line = _first_line(node)
            before = sorted(at for at in self._own if at < line)
            # A comment that stands right behind the former statement's block belongs to it.
            first = before[0] if before else line
            self._gap(former, node, first, top)
            if before and former is not None and self._is_blank(line - 1):
                self.comments_until(line, indent)
                self._blank(1)
            self.comments_until(line, indent)
            self._statement(node, indent)
            former = node

    # Statements.

    def _statement(self, node: ast.stmt, indent: int) -> None:
        maker = getattr(self, f"_{type(node).__name__.lower()}", None)
        if maker is None:
            self._put(node, ast.unparse(node).split("\n"), indent)
            return
        maker(node, indent)

    def _put(
        self, node: ast.AST, lines: Sequence[str], indent: int, end: int | None = None
    ) -> None:
        """Write the lines of a statement, with the comments that stood in it or beside it."""
        first = getattr(node, "lineno", 0)
        last = end if end is not None else (getattr(node, "end_lineno", None) or first)
        for at in sorted(at for at in self._own if first <= at <= last):
            self.lines.append(f"{' ' * indent}{self._own.pop(at)[1]}")
        beside = [self._beside.pop(at) for at in range(first, last + 1) if at in self._beside]
        for text in beside[:-1]:
            self.lines.append(f"{' ' * indent}{text}")
        self.lines.append(f"{' ' * indent}{lines[0]}")
        self.lines += lines[1:]
        if beside:
            self.lines[-1] += f"  {beside[-1]}"

    def _set(self, head: Doc, value: ast.expr | None, indent: int, tail: str = "") -> list[str]:
        """``head`` and an expression behind it, in brackets where it takes several lines."""
        if value is None:
            return render(parts(head, tail), self._width, indent)
        made = self._made
        asks = isinstance(value, ast.NamedExpr) and tail == ":"
        plain = parts(head, made.condition(value) if asks else made.doc(value), tail)
        whole = flat(plain)
        if indent + len(whole) <= self._width or "\n" in whole:
            return whole.split("\n")
        if isinstance(value, (ast.Constant, ast.JoinedStr, ast.Name)):
            shown = made.doc(value)
            fits = indent + STEP + len(flat(shown)) <= self._width
            if isinstance(shown, str) and (not fits or whole == shown):
                return [whole]  # brackets would not help
            return self._wrapped(head, value, indent, tail)
        if made.breaks_by_itself(value):
            return render(plain, self._width, indent)
        if made.ends_in_brackets(value):
            lines = render(plain, self._width, indent)
            if all(len(line) <= self._width for line in [" " * indent + lines[0], *lines[1:]]):
                return lines
        return self._wrapped(head, value, indent, tail)

    def _wrapped(self, head: Doc, value: ast.expr, indent: int, tail: str) -> list[str]:
        return render(parts(head, self._made.bracketed(value), tail), self._width, indent)

    def _expr(self, node: ast.Expr, indent: int) -> None:
        if _is_text(node):
            self._docstring(node, indent)
            return
        self._put(node, self._set("", node.value, indent), indent)

    def _docstring(self, node: ast.Expr, indent: int) -> None:
        text = self._made._source.of(node.value)
        lines = flat(self._made.doc(node.value)).split("\n")
        if len(lines) > 1 and '"""' in text:
            body = textwrap.dedent("\n".join(lines[1:])).split("\n")
            lines = [lines[0].rstrip(), *(f"{' ' * indent}{b}".rstrip() for b in body)]
        self._put(node, lines, indent)

    def _assign(self, node: ast.Assign, indent: int) -> None:
        head: list[Doc] = []
        for target in node.targets:
            several = isinstance(target, ast.Tuple) and len(target.elts) > 1
            head += [self._made.bracketed(target) if several else self._made.doc(target), " = "]
        self._put(node, self._set(parts(*head), node.value, indent), indent)

    def _augassign(self, node: ast.AugAssign, indent: int) -> None:
        head = parts(self._made.doc(node.target), f" {operator_of(node.op)}= ")
        self._put(node, self._set(head, node.value, indent), indent)

    def _annassign(self, node: ast.AnnAssign, indent: int) -> None:
        head = parts(self._made.doc(node.target), ": ", self._made.doc(node.annotation))
        sign = " = " if node.value is not None else ""
        self._put(node, self._set(parts(head, sign), node.value, indent), indent)

    def _return(self, node: ast.Return, indent: int) -> None:
        self._put(
            node, self._set("return " if node.value else "return", node.value, indent), indent
        )

    def _delete(self, node: ast.Delete, indent: int) -> None:
        self._put(node, [f"del {flat(self._made.items(node.targets))}"], indent)

    def _assert(self, node: ast.Assert, indent: int) -> None:
        head = parts("assert ", self._made.operand(node.test))
        tail = "" if node.msg is None else f", {flat(self._made.operand(node.msg))}"
        if node.msg is not None and indent + len(flat(head)) + len(", (") <= self._width:
            doc = parts(flat(head), ", ", self._made.bracketed(node.msg, whole=True))
            self._put(node, render(doc, self._width, indent), indent)
            return
        if isinstance(node.test, ast.Tuple):
            self._put(node, render(parts(head, tail), self._width, indent), indent)
            return
        self._put(node, self._set("assert ", node.test, indent, tail), indent)

    def _raise(self, node: ast.Raise, indent: int) -> None:
        tail = f" from {flat(self._made.doc(node.cause))}" if node.cause is not None else ""
        head = "raise " if node.exc is not None else "raise"
        self._put(node, self._set(head, node.exc, indent, tail), indent)

    def _importfrom(self, node: ast.ImportFrom, indent: int) -> None:
        names = [_alias(alias) for alias in node.names]
        module = f"{'.' * node.level}{node.module or ''}"
        doc: Doc = Group(
            (
                f"from {module} import ",
                Broken("("),
                enclosed("", parts(joined(names, (",", Line())), Broken(",")), ""),
                Broken(")"),
            )
        )
        if names == ["*"] or indent + len(flat(doc)) <= self._width:
            doc = flat(doc)
        self._put(node, render(doc, self._width, indent), indent)

    def _import(self, node: ast.Import, indent: int) -> None:
        names = ", ".join(_alias(alias) for alias in node.names)
        self._put(node, [f"import {names}"], indent)

    # Blocks.

    def _head(self, node: ast.AST, lines: Sequence[str], body: Sequence[ast.stmt], at: int) -> None:
        end = max(getattr(node, "lineno", 0), _first_line(body[0]) - 1)
        own = {k: v for k, v in self._own.items() if v[0] > at}
        for key in own:  # what stands above the first statement of the block belongs to that
            self._own.pop(key)
        end = min([end, *(k - 1 for k in own if k > getattr(node, "lineno", 0))])
        self._put(node, lines, at, end=max(end, getattr(node, "lineno", 0)))
        self._own |= own

    def _inner(self, body: Sequence[ast.stmt], indent: int) -> None:
        if isinstance(body[0], _COMPOUND) and not self.lines[-1].lstrip().startswith(_OPENING):
            self._blank(1)
        self.block(body, indent + STEP)
        last = body[-1].end_lineno or body[-1].lineno
        # Comments that follow, as deep as the block, are still its own.
        following = last + 1
        while following in self._own or self._is_blank(following):
            if following in self._own and self._own[following][0] < body[0].col_offset:
                break
            following += 1
        inner = [at for at in self._own if last < at < following]
        if inner:
            self.comments_until(max(inner) + 1, indent + STEP)

    def _if(self, node: ast.If, indent: int, word: str = "if ") -> None:
        self._head(node, self._set(word, node.test, indent, ":"), node.body, indent)
        self._inner(node.body, indent)
        if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
            inner = node.orelse[0]
            if self._source[inner.lineno - 1][inner.col_offset :].startswith("elif"):
                self.comments_until(inner.lineno, indent)
                self._if(inner, indent, "elif ")
                return
        self._otherwise("else:", node.body, node.orelse, indent)

    def _otherwise(
        self, word: str, before: Sequence[ast.stmt], body: Sequence[ast.stmt], indent: int
    ) -> None:
        if not body:
            return
        line = before[-1].end_lineno or 0
        beside = [at for at in self._beside if line < at < _first_line(body[0])]
        self.lines.append(f"{' ' * indent}{word}")
        if beside:
            self.lines[-1] += f"  {self._beside.pop(beside[0])}"
        self._inner(body, indent)

    def _for(self, node: ast.For | ast.AsyncFor, indent: int) -> None:
        word = "async for " if isinstance(node, ast.AsyncFor) else "for "
        head = parts(word, flat(self._made.doc(node.target)), " in ")
        self._head(node, self._set(head, node.iter, indent, ":"), node.body, indent)
        self._inner(node.body, indent)
        self._otherwise("else:", node.body, node.orelse, indent)

    def _while(self, node: ast.While, indent: int) -> None:
        self._head(node, self._set("while ", node.test, indent, ":"), node.body, indent)
        self._inner(node.body, indent)
        self._otherwise("else:", node.body, node.orelse, indent)

    _asyncfor = _for

    def _with(self, node: ast.With | ast.AsyncWith, indent: int) -> None:
        word = "async with " if isinstance(node, ast.AsyncWith) else "with "
        items: list[Doc] = []
        for item in node.items:
            one = self._made.doc(item.context_expr)
            if item.optional_vars is not None:
                one = parts(one, " as ", self._made.doc(item.optional_vars))
            items.append(one)
        several = Group(
            (
                Broken("("),
                enclosed("", parts(joined(items, (",", Line())), Broken(",")), ""),
                Broken(")"),
            )
        )
        doc = parts(word, items[0] if len(items) == 1 else several, ":")
        self._head(node, render(doc, self._width, indent), node.body, indent)
        self._inner(node.body, indent)

    _asyncwith = _with

    def _try(self, node: ast.Try, indent: int) -> None:
        self._head(node, ["try:"], node.body, indent)
        self._inner(node.body, indent)
        for handler in node.handlers:
            name = f" as {handler.name}" if handler.name else ""
            caught = f" {flat(self._made.operand(handler.type))}" if handler.type else ""
            self._head(handler, [f"except{caught}{name}:"], handler.body, indent)
            self._inner(handler.body, indent)
        before = node.handlers[-1].body if node.handlers else node.body
        self._otherwise("else:", before, node.orelse, indent)
        self._otherwise("finally:", node.orelse or before, node.finalbody, indent)

    def _functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, indent: int) -> None:
        word = "async def " if isinstance(node, ast.AsyncFunctionDef) else "def "
        self._decorators(node.decorator_list, indent)
        given = self._made.parameters(node.args)
        # What takes all the rest takes no comma behind it.
        comma = Broken(",")
        takes = flat(given)
        taken = enclosed("(", Group((given, comma)), ")") if takes else "()"
        returned: Doc = ""
        if node.returns is not None:
            returned = f" -> {flat(self._made.doc(node.returns))}"
        doc = parts(f"{word}{node.name}", taken, returned, ":")
        self._head(node, render(doc, self._width, indent), node.body, indent)
        self._inner(node.body, indent)

    _asyncfunctiondef = _functiondef

    def _classdef(self, node: ast.ClassDef, indent: int) -> None:
        self._decorators(node.decorator_list, indent)
        call = ast.Call(ast.Name(node.name), node.bases, node.keywords)
        named = self._made.doc(call) if node.bases or node.keywords else node.name
        self._head(
            node, render(parts("class ", named, ":"), self._width, indent), node.body, indent
        )
        body = node.body
        if len(body) > 1 and _is_text(body[0]):
            self._docstring(body[0], indent + STEP)  # type: ignore[arg-type]
            self._blank(1)
            body = body[1:]
        self._inner(body, indent)

    def _decorators(self, nodes: Sequence[ast.expr], indent: int) -> None:
        for node in nodes:
            self._put(node, self._set("@", node, indent), indent)


def _first_line(node: ast.stmt) -> int:
    """Where a statement begins, its decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _is_text(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _alias(alias: ast.alias) -> str:
    return f"{alias.name} as {alias.asname}" if alias.asname else alias.name
