"""Python expressions as documents that can be set like a formatter sets them.

Operators break only within brackets (``inside``); calls, subscripts and displays bring their own.
Redundant brackets go, texts get double quotes, numbers stay as they were written.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from orchestrator.author.emit.tidy import literals
from orchestrator.author.emit.tidy.layout import (
    Broken,
    Doc,
    Group,
    Indent,
    Line,
    enclosed,
    flat,
    joined,
    parts,
)
from orchestrator.author.emit.tidy.operators import (
    AND,
    ATOM,
    AWAIT,
    BINARY,
    BIT_OR,
    COMPARE,
    COMPARISON,
    FACTOR,
    NAMED,
    NOT,
    OR,
    SUM,
    TEST,
    UNARY,
    operator_of,
    simple_bound,
    simple_operand,
    takes,
)

_CHAINED = 2  # calls on what calls returned: from so many on each stands on a line of its own


class Expressions:
    """Makes documents of the expressions of one source text."""

    def __init__(self, source: str) -> None:
        self._source = literals.Source(source)

    def doc(self, node: ast.expr, *, inside: bool = False) -> Doc:
        """The document of a whole expression; a tuple has no brackets."""
        if isinstance(node, ast.Tuple) and len(node.elts) > 1:
            return self.items(node.elts)
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return self._made(node, inside)[1]
        doc = self._doc(node, NAMED, inside)
        return Group((doc,)) if isinstance(node, ast.BoolOp) else doc

    def condition(self, node: ast.expr) -> Doc:
        """The document of what ``if`` and ``while`` ask."""
        if isinstance(node, ast.NamedExpr):
            return parts(node.target.id, " := ", self.doc(node.value))
        return self.doc(node)

    def operand(self, node: ast.expr) -> Doc:
        """The document of an expression that stands where a tuple needs its brackets."""
        return self._doc(node, NAMED, False)

    def bracketed(self, node: ast.expr, *, whole: bool = False) -> Doc:
        """The same in brackets that vanish where the expression fits on the line.

        ``whole``: a tuple keeps its brackets.
        """
        if whole and isinstance(node, (ast.Tuple, ast.Yield, ast.YieldFrom)):
            return self.operand(node)
        comma: Doc = Broken(",") if isinstance(node, ast.Tuple) and len(node.elts) > 1 else ""
        return Group(
            (
                Broken("("),
                Indent((Line(""), self.doc(node, inside=True), comma)),
                Line(""),
                Broken(")"),
            )
        )

    def items(self, nodes: Sequence[ast.expr]) -> Doc:
        """Expressions with commas between them, broken at each or at none."""
        return joined([self._grouped(n) for n in nodes], (",", Line()))

    def parameters(self, given: ast.arguments) -> Doc:
        """What a function takes, without its brackets."""
        return joined(self._parameters(given), (",", Line()))

    def breaks_by_itself(self, node: ast.expr) -> bool:
        """Whether it has brackets of its own to be broken in."""
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return node.value is not None
        if isinstance(node, (ast.Attribute, ast.Starred, ast.Await)):
            return self.breaks_by_itself(node.value)
        if isinstance(node, (ast.Call, ast.Subscript)):
            return self._chained(node) < _CHAINED
        return isinstance(
            node,
            (
                ast.List,
                ast.Dict,
                ast.Set,
                ast.ListComp,
                ast.SetComp,
                ast.DictComp,
                ast.GeneratorExp,
            ),
        )

    def ends_in_brackets(self, node: ast.expr) -> bool:
        """Whether of one operator the last operand has brackets with something in.

        Such an expression is broken there, not at its operator.
        """
        if isinstance(node, ast.BinOp):
            level = BINARY[type(node.op)][1]
            left = node.left
            several = isinstance(left, ast.BinOp) and BINARY[type(left.op)][1] == level
            return not several and self._closes(node.right, level)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._closes(node.comparators[0], COMPARE)
        if isinstance(node, ast.BoolOp) and len(node.values) == 2:
            last = node.values[1]
            return isinstance(last, ast.BoolOp) or (
                self.breaks_by_itself(last) and not isinstance(last, ast.Subscript)
            )
        return isinstance(node, ast.UnaryOp) and self.breaks_by_itself(node.operand)

    def _closes(self, node: ast.expr, level: int) -> bool:
        """Whether an operand of an operator of ``level`` ends with a closing bracket."""
        if isinstance(node, ast.BinOp):
            own = BINARY[type(node.op)][1]
            return own <= level or self._closes(node.right, own)
        return self.breaks_by_itself(node)

    def _grouped(self, node: ast.expr, least: int = NAMED) -> Doc:
        """What stands between commas or brackets: it breaks apart from its neighbours."""
        return Group((self._doc(node, least, True),))

    def _doc(self, node: ast.expr, least: int, inside: bool) -> Doc:
        level, doc = self._made(node, inside)
        if level >= least:
            return doc
        if not inside:
            doc = self._made(node, True)[1]
        return enclosed("(", Group((doc,)), ")")

    def _made(self, node: ast.expr, inside: bool) -> tuple[int, Doc]:
        maker = getattr(self, f"_{type(node).__name__.lower()}", None)
        if maker is None:
            return TEST, ast.unparse(node)
        level, doc = maker(node, inside)
        return level, doc

    # Atoms.

    def _name(self, node: ast.Name, inside: bool) -> tuple[int, Doc]:
        return ATOM, node.id

    def _constant(self, node: ast.Constant, inside: bool) -> tuple[int, Doc]:
        if isinstance(node.value, (str, bytes)):
            return ATOM, self._strings(self._source.of(node))
        if isinstance(node.value, (int, float, complex)) and not isinstance(node.value, bool):
            return ATOM, literals.number(self._source.of(node))
        return ATOM, "..." if node.value is ... else repr(node.value)

    def _joinedstr(self, node: ast.JoinedStr, inside: bool) -> tuple[int, Doc]:
        return ATOM, self._strings(self._source.of(node))

    def _strings(self, text: str) -> Doc:
        pieces = literals.strings(text)
        if len(pieces) == 1:
            return pieces[0]
        together = literals.together(pieces)
        between: Doc = parts(*[d for p in pieces for d in (Line(), p)][1:])
        return Group((between,)) if together is None else _Either.of(together, pieces)

    def _tuple(self, node: ast.Tuple, inside: bool) -> tuple[int, Doc]:
        if not node.elts:
            return ATOM, "()"
        comma: Doc = "," if len(node.elts) == 1 else Broken(",")
        return ATOM, enclosed("(", parts(self.items(node.elts), comma), ")")

    def _list(self, node: ast.List, inside: bool) -> tuple[int, Doc]:
        return ATOM, self._display("[", [self._grouped(e) for e in node.elts], "]")

    def _set(self, node: ast.Set, inside: bool) -> tuple[int, Doc]:
        return ATOM, self._display("{", [self._grouped(e) for e in node.elts], "}")

    def _dict(self, node: ast.Dict, inside: bool) -> tuple[int, Doc]:
        pairs: list[Doc] = []
        for key, value in zip(node.keys, node.values, strict=True):
            shown = self._grouped(value, TEST if key else BIT_OR)
            pairs.append(
                parts(self._doc(key, TEST, True), ": ", shown) if key else parts("**", shown)
            )
        return ATOM, self._display("{", pairs, "}")

    def _display(self, opening: str, items: list[Doc], closing: str) -> Doc:
        if not items:
            return opening + closing
        return enclosed(opening, parts(joined(items, (",", Line())), Broken(",")), closing)

    def _starred(self, node: ast.Starred, inside: bool) -> tuple[int, Doc]:
        return NAMED, parts("*", self._doc(node.value, BIT_OR, inside))

    # Comprehensions.

    def _listcomp(self, node: ast.ListComp, inside: bool) -> tuple[int, Doc]:
        return ATOM, enclosed("[", self._loops(node.elt, node.generators), "]")

    def _setcomp(self, node: ast.SetComp, inside: bool) -> tuple[int, Doc]:
        return ATOM, enclosed("{", self._loops(node.elt, node.generators), "}")

    def _generatorexp(self, node: ast.GeneratorExp, inside: bool) -> tuple[int, Doc]:
        return ATOM, enclosed("(", self._loops(node.elt, node.generators), ")")

    def _dictcomp(self, node: ast.DictComp, inside: bool) -> tuple[int, Doc]:
        pair = parts(self._doc(node.key, TEST, True), ": ", self._doc(node.value, TEST, True))
        return ATOM, enclosed("{", Group((pair, *self._clauses(node.generators))), "}")

    def _loops(self, element: ast.expr, loops: Sequence[ast.comprehension]) -> Doc:
        return Group((self._grouped(element), *self._clauses(loops)))

    def _clauses(self, loops: Sequence[ast.comprehension]) -> list[Doc]:
        found: list[Doc] = []
        for loop in loops:
            word = "async for " if loop.is_async else "for "
            found += [Line(), word, flat(self.doc(loop.target)), " in "]
            found.append(self._grouped(loop.iter, OR))
            for test in loop.ifs:
                found += [Line(), "if ", self._grouped(test, OR)]
        return found

    # What has its own brackets.

    def _attribute(self, node: ast.Attribute, inside: bool) -> tuple[int, Doc]:
        value = self._doc(node.value, ATOM, inside)
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, int):
            value = enclosed("(", value, ")")
        after = isinstance(node.value, (ast.Call, ast.Subscript))
        dot: Doc = parts(Line(""), ".") if inside and after and self._in_chain else "."
        return ATOM, parts(value, dot, node.attr)

    _in_chain = False

    def _call(self, node: ast.Call, inside: bool) -> tuple[int, Doc]:
        return ATOM, self._chain(node, inside)

    def _subscript(self, node: ast.Subscript, inside: bool) -> tuple[int, Doc]:
        return ATOM, self._chain(node, inside)

    def _chain(self, node: ast.Call | ast.Subscript, inside: bool) -> Doc:
        """A call or subscript; the outermost of a long chain breaks before every further call."""
        if self._in_chain or not inside or self._chained(node) < _CHAINED:
            return self._link(node, inside)
        self._in_chain = True
        try:
            return Group((self._link(node, inside),))
        finally:
            self._in_chain = False

    def _link(self, node: ast.Call | ast.Subscript, inside: bool) -> Doc:
        if isinstance(node, ast.Call):
            called = node.func if isinstance(node, ast.Call) else node
            head = self._doc(called, ATOM, inside)
            return parts(head, self._unchained(lambda: self._arguments(node)))
        head = self._doc(node.value, ATOM, inside)
        return parts(head, self._unchained(lambda: self._index(node.slice)))

    def _unchained(self, make: object) -> Doc:
        former, self._in_chain = self._in_chain, False
        try:
            made: Doc = make()  # type: ignore[operator]
            return made
        finally:
            self._in_chain = former

    def _chained(self, node: ast.expr) -> int:
        """How many attributes follow brackets in a chain of calls."""
        count = 0
        while isinstance(node, (ast.Call, ast.Subscript, ast.Attribute)):
            if isinstance(node, ast.Attribute):
                count += isinstance(node.value, (ast.Call, ast.Subscript))
            node = node.func if isinstance(node, ast.Call) else node.value
        return count

    def _arguments(self, node: ast.Call) -> Doc:
        if len(node.args) == 1 and not node.keywords and isinstance(node.args[0], ast.GeneratorExp):
            only = node.args[0]
            return enclosed("(", self._loops(only.elt, only.generators), ")")
        given = [self._grouped(one) for one in node.args]
        for keyword in node.keywords:
            value = self._grouped(keyword.value, TEST)
            given.append(parts(f"{keyword.arg}=" if keyword.arg else "**", value))
        if not given:
            return "()"
        return enclosed("(", Group((joined(given, (",", Line())), Broken(","))), ")")

    def _index(self, node: ast.expr) -> Doc:
        if isinstance(node, ast.Tuple) and node.elts:
            comma: Doc = "," if len(node.elts) == 1 else Broken(",")
            return enclosed("[", Group((self.items(node.elts), comma)), "]")
        return enclosed("[", self._doc(node, NAMED, True), "]")

    def _slice(self, node: ast.Slice, inside: bool) -> tuple[int, Doc]:
        bounds = [node.lower, node.upper, *([node.step] if node.step else [])]
        simple = all(b is None or simple_bound(b) for b in bounds)
        found: list[Doc] = []
        for number, bound in enumerate(bounds):
            if number:
                spaced = not simple and (bounds[number - 1] is not None or number > 1)
                found.append(" :" if spaced else ":")
            if bound is not None:
                gap = " " if number and not simple else ""
                found += [gap, self._doc(bound, TEST, True)]
        return ATOM, parts(*found)

    # Operators.

    def _binop(self, node: ast.BinOp, inside: bool) -> tuple[int, Doc]:
        sign, level = BINARY[type(node.op)]
        if isinstance(node.op, ast.Pow):
            gap = "" if simple_operand(node.left) and simple_operand(node.right) else " "
            left = self._doc(node.left, AWAIT, inside)
            return level, parts(left, gap, sign, gap, self._doc(node.right, FACTOR, inside))
        first, rest = node.left, [(sign, node.right)]
        while isinstance(first, ast.BinOp) and BINARY[type(first.op)][1] == level:
            rest.insert(0, (operator_of(first.op), first.right))
            first = first.left
        # x >> 4 & 15 is right and nobody knows it: within bits every operation has brackets.
        bits = level < SUM
        found = [self._doc(first, FACTOR if bits else level, inside)]
        for word, operand in rest:
            least = FACTOR if bits else level + 1
            found += [self._break(inside), f"{word} ", self._doc(operand, least, inside)]
        return level, Group(tuple(found))

    def _boolop(self, node: ast.BoolOp, inside: bool) -> tuple[int, Doc]:
        level, word = (AND, "and ") if isinstance(node.op, ast.And) else (OR, "or ")
        # Both in one expression have brackets, as the linter wants it.
        least = [ATOM if isinstance(value, ast.BoolOp) else level + 1 for value in node.values]
        values = [self._doc(v, at, inside) for v, at in zip(node.values, least, strict=True)]
        # Within another one it breaks where that breaks.
        return level, joined(values, (self._break(inside), word))

    def _compare(self, node: ast.Compare, inside: bool) -> tuple[int, Doc]:
        found = [self._doc(node.left, BIT_OR, inside)]
        for sign, operand in zip(node.ops, node.comparators, strict=True):
            word = f"{COMPARISON[type(sign)]} "
            found += [self._break(inside), word, self._doc(operand, BIT_OR, inside)]
        return COMPARE, Group(tuple(found))

    def _unaryop(self, node: ast.UnaryOp, inside: bool) -> tuple[int, Doc]:
        if isinstance(node.op, ast.Not):
            return NOT, parts("not ", self._doc(node.operand, NOT, inside))
        # Brackets say what -2**31 only means.
        tight = isinstance(node.operand, ast.BinOp)
        operand = self._doc(node.operand, ATOM if tight else FACTOR, inside)
        return FACTOR, parts(UNARY[type(node.op)], operand)

    def _ifexp(self, node: ast.IfExp, inside: bool) -> tuple[int, Doc]:
        doc = Group(
            (
                self._doc(node.body, OR, inside),
                self._break(inside),
                "if ",
                self._doc(node.test, OR, inside),
                self._break(inside),
                "else ",
                self._doc(node.orelse, TEST, inside),
            )
        )
        return TEST, doc

    def _namedexpr(self, node: ast.NamedExpr, inside: bool) -> tuple[int, Doc]:
        value = self._doc(node.value, TEST, inside)
        # It always has brackets: where it may do without is a rule of its own.
        return ATOM, enclosed("(", parts(node.target.id, " := ", value), ")")

    def _lambda(self, node: ast.Lambda, inside: bool) -> tuple[int, Doc]:
        given = joined(self._parameters(node.args), (", ",))
        head = parts("lambda ", given) if takes(node.args) else "lambda"
        return TEST, parts(head, ": ", self._doc(node.body, TEST, inside))

    def _await(self, node: ast.Await, inside: bool) -> tuple[int, Doc]:
        return AWAIT, parts("await ", self._doc(node.value, ATOM, inside))

    def _yield(self, node: ast.Yield, inside: bool) -> tuple[int, Doc]:
        if node.value is None:
            return NAMED - 1, "yield"
        return NAMED - 1, parts("yield ", self.doc(node.value, inside=inside))

    def _yieldfrom(self, node: ast.YieldFrom, inside: bool) -> tuple[int, Doc]:
        return NAMED - 1, parts("yield from ", self.doc(node.value, inside=inside))

    def _break(self, inside: bool) -> Doc:
        return Line() if inside else " "

    def _parameters(self, given: ast.arguments) -> list[Doc]:
        plain = [*given.posonlyargs, *given.args]
        defaults: list[ast.expr | None] = [None] * (len(plain) - len(given.defaults))
        found: list[Doc] = []
        for number, (one, default) in enumerate(
            zip(plain, [*defaults, *given.defaults], strict=True)
        ):
            found.append(self._parameter(one, default))
            if given.posonlyargs and number == len(given.posonlyargs) - 1:
                found.append("/")
        if given.vararg:
            found.append(parts("*", self._parameter(given.vararg, None)))
        elif given.kwonlyargs:
            found.append("*")
        for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
            found.append(self._parameter(one, default))
        if given.kwarg:
            found.append(parts("**", self._parameter(given.kwarg, None)))
        return found

    def _parameter(self, one: ast.arg, default: ast.expr | None) -> Doc:
        found: list[Doc] = [one.arg]
        if one.annotation is not None:
            found += [": ", self._doc(one.annotation, TEST, True)]
        if default is not None:
            found += [" = " if one.annotation is not None else "=", self._doc(default, TEST, True)]
        return parts(*found)


class _Either:
    """Adjoining texts as one where that fits on the line, else each on its own."""

    @staticmethod
    def of(together: str, pieces: Sequence[str]) -> Doc:
        found: list[Doc] = [Broken(pieces[0], together)]
        for piece in pieces[1:]:
            found += [Line(""), Broken(piece)]
        return Group(tuple(found))
