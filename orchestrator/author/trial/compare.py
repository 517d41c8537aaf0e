"""Comparisons of a unit test: every usual way in which one says that two tensors are equal.

``found_in`` turns one statement into what it compares; which side is the operator's is decided by
data flow, elsewhere.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.author.trial.inline import renamed
from orchestrator.author.trial.rounds import joined, rounds
from orchestrator.author.trial.scopes import dotted, last_name

How = Literal["exact", "close", "unordered", "cosine"]
_CALLS = frozenset(
    [
        "assert_close",
        "assert_allclose",
        "assert_array_equal",
        "assert_equal",
        "assert_almost_equal",
        "assert_array_almost_equal",
        "allclose",
        "equal",
        "array_equal",
        "isclose",
        "cosine_similarity",
        "CosineSimilarity",
        "assertTensorsClose",
    ]
)
_TESTCASE = frozenset(
    [
        "assertTrue",
        "assertFalse",
        "assertEqual",
        "assertLess",
        "assertLessEqual",
        "assertGreater",
        "assertGreaterEqual",
        "assertAlmostEqual",
        "assertListEqual",
    ]
)
_UNWRAPPED = frozenset(("item", "tolist", "numpy", "all", "any"))
_DIFFERENCE = re.compile(r"diff|err(or)?|cos|sim|close|equal|match|passed")
_DEPTH = 6


@dataclass(frozen=True)
class Compared:
    """Two expressions that a test says are equal. ``strong``: it fails when they are not."""

    left: ast.expr
    right: ast.expr
    how: How
    node: ast.AST
    atol: ast.expr | None = None
    rtol: ast.expr | None = None
    strong: bool = True
    # All arguments of a function that compares two of them: which two is seen by data flow.
    among: tuple[ast.expr, ...] = ()


Define = Callable[[str], ast.expr | None]


def mentions(node: ast.AST) -> bool:
    """Whether the code looks as if it compared tensors."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            name = last_name(part.func)
            if name in _CALLS:
                return True
            if name.startswith(("assertLess", "assertGreater", "assertAlmost")):
                return True
        elif (isinstance(part, (ast.Assert, ast.If)) and _differs(part.test)) or (
            isinstance(part, ast.Return)
            and isinstance(part.value, ast.Compare)
            and _differs(part.value)
        ):
            return True
    return False


def _differs(test: ast.expr) -> bool:
    """Whether a condition speaks of a difference, or of all elements."""
    for part in ast.walk(test):
        if isinstance(part, ast.Call):
            name = last_name(part.func)
            if name in ("abs", "all", "norm", "tolist", "set", "sorted", "eq", "calc_diff"):
                return True
        elif isinstance(part, ast.Name) and _DIFFERENCE.search(part.id.lower()):
            return True
    return False


def found_in(
    statement: ast.stmt, define: Define, function: Callable[[str], ast.AST | None]
) -> list[Compared]:
    """What ``statement`` compares. ``define``: the expression a name was last assigned.

    ``function``: the test's own function of a name.
    """
    reader = _Reader(define, function)
    if isinstance(statement, ast.Assert):
        return list(reader.condition(statement.test))
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        found = list(reader.asserting(statement.value))
        if found:
            return found
    weak = [
        compared
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
        and last_name(node.func) in ("allclose", "equal", "array_equal")
        for compared in reader.condition(node)
    ]
    return [replace(compared, strong=False) for compared in weak]


class _Reader:
    def __init__(self, define: Define, function: Callable[[str], ast.AST | None]) -> None:
        self._define = define
        self._function = function

    def asserting(self, call: ast.Call) -> Iterator[Compared]:
        """A call that fails when what it compares differs."""
        name = last_name(call.func)
        if name in _TESTCASE and isinstance(call.func, ast.Attribute):
            yield from self._testcase(name, call)
        elif name.startswith("assert"):
            yield from self._pair(name, call)

    def _testcase(self, name: str, call: ast.Call) -> Iterator[Compared]:
        if name == "assertTrue" and call.args:
            yield from self.condition(call.args[0])
        elif name in ("assertEqual", "assertListEqual") and len(call.args) > 1:
            yield from self.condition(_comparison(call.args[0], ast.Eq(), call.args[1]))
        elif name == "assertAlmostEqual" and len(call.args) > 1:
            delta = _keyword(call, "delta")
            yield Compared(call.args[0], call.args[1], "close", call, delta)
        elif len(call.args) > 1:
            op = ast.Lt() if "Less" in name else ast.Gt()
            yield from self.condition(_comparison(call.args[0], op, call.args[1]))

    def _pair(self, name: str, call: ast.Call) -> Iterator[Compared]:
        """``f(a, b, ...)`` of a known name: two sides and tolerances."""
        sides = _sides(call)
        if sides is None:
            return
        left, right = sides
        if name in ("assert_array_equal", "assert_equal", "equal", "array_equal"):
            yield Compared(left, right, "exact", call)
            return
        extra = call.args[2:]
        rtol = _keyword(call, "rtol") or (extra[0] if extra else None)
        atol = _keyword(call, "atol") or (extra[1] if len(extra) > 1 else None)
        for keyword in call.keywords:
            if keyword.arg is None:
                # **tolerances[dtype]: a dict of both.
                atol = atol or ast.Subscript(keyword.value, ast.Constant("atol"), ast.Load())
                rtol = rtol or ast.Subscript(keyword.value, ast.Constant("rtol"), ast.Load())
        if name in ("assert_almost_equal", "assert_array_almost_equal"):
            decimal = _keyword(call, "decimal") or (extra[0] if extra else ast.Constant(6))
            atol = ast.parse(f"1.5 * 10 ** -({ast.unparse(decimal)})", mode="eval").body
            rtol = ast.Constant(0.0)
        elif name != "assert_close":
            numpy = (dotted(call.func) or "").startswith(("np.", "numpy."))
            testing = name == "assert_allclose" and numpy
            rtol = rtol or ast.Constant(1e-7 if testing else 1e-5)
            atol = atol or ast.Constant(0.0 if testing else 1e-8)
        how: How = "exact" if _zero(atol) and _zero(rtol) else "close"
        yield Compared(left, right, how, call, atol, rtol)

    def condition(self, test: ast.expr, depth: int = 0) -> Iterator[Compared]:
        """What must be equal for ``test`` to be true."""
        if depth > _DEPTH:
            return
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            for part in test.values:
                yield from self.condition(part, depth + 1)
        elif isinstance(test, ast.Name):
            value = self._define(test.id)
            if value is not None:
                yield from self.condition(value, depth + 1)
        elif isinstance(test, ast.Compare) and len(test.ops) == 1:
            yield from self._compare(test, depth)
        elif isinstance(test, ast.Call):
            yield from self._call(test, depth)
        elif isinstance(test, ast.Subscript):
            yield from self.condition(test.value, depth + 1)

    def _call(self, call: ast.Call, depth: int) -> Iterator[Compared]:
        name = last_name(call.func)
        if name in ("allclose", "equal", "array_equal", "isclose", "eq"):
            yield from self._pair("equal" if name == "eq" else name, call)
        elif name in ("bool", "all", "item", "numpy", "cpu", "tolist"):
            on_module = dotted(call.func) in ("bool", "all", "torch.all", "np.all", "numpy.all")
            if on_module and call.args:
                inner: ast.expr = call.args[0]
            elif isinstance(call.func, ast.Attribute):
                inner = call.func.value
            else:
                return
            if isinstance(inner, ast.GeneratorExp):
                yield from self._every(inner, depth)
            else:
                yield from self.condition(inner, depth + 1)
        elif name in ("le", "lt") and len(call.args) == 2:
            yield from self._below(call.args[0], call.args[1], call)
        elif isinstance(call.func, ast.Name):
            body = self._function(name)
            given = (*call.args, *(k.value for k in call.keywords))
            if body is not None and len(given) > 1:
                yield Compared(given[0], given[1], _manner(body), call, among=given)

    def _every(self, claims: ast.GeneratorExp, depth: int) -> Iterator[Compared]:
        """``all(torch.equal(a, b) for a, b in zip(outs, refs))``."""
        (first, *more) = claims.generators
        every = None if more or first.ifs else rounds(first.target, first.iter)
        for names in every or [{}]:
            for found in self.condition(renamed(claims.elt, names), depth + 1):
                yield found if every else over(found, claims.generators)

    def _compare(self, test: ast.Compare, depth: int) -> Iterator[Compared]:
        left, op, right = test.left, test.ops[0], test.comparators[0]
        if isinstance(op, ast.Eq):
            if isinstance(right, ast.Constant) or isinstance(left, ast.Constant):
                # (a != b).sum() == 0, difference == 0
                inner = left if isinstance(right, ast.Constant) else right
                yield from self._counted(inner, test, depth)
            else:
                yield Compared(left, right, "exact", test)
        elif isinstance(op, (ast.Lt, ast.LtE)):
            yield from self._below(left, right, test)
        elif isinstance(op, (ast.Gt, ast.GtE)):
            cosine = self._cosine(left)
            if cosine is not None:
                missing = ast.BinOp(ast.Constant(1), ast.Sub(), right)
                yield replace(cosine, atol=missing, node=test)
            else:
                yield from self._below(right, left, test)

    def _counted(self, inner: ast.expr, test: ast.Compare, depth: int) -> Iterator[Compared]:
        for part in self._expanded(inner):
            if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.NotEq):
                yield Compared(part.left, part.comparators[0], "exact", test)
                return
        yield from self._below(inner, ast.Constant(0), test)

    def _below(self, value: ast.expr, limit: ast.expr, node: ast.AST) -> Iterator[Compared]:
        """``value`` is a difference of two things, ``limit`` what it must be below."""
        parts = list(self._expanded(value))
        for part in parts:
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub):
                cosine = self._cosine(part.right)
                if cosine is not None:
                    yield replace(cosine, atol=limit, node=node)
                    return
        names = {last_name(part.func) for part in parts if isinstance(part, ast.Call)}
        difference = next(
            (p for p in parts if isinstance(p, ast.BinOp) and isinstance(p.op, ast.Sub)), None
        )
        if difference is not None and names & {"abs", "norm", "max", "mean", "sum", "amax"}:
            divided = any(isinstance(p, ast.BinOp) and isinstance(p.op, ast.Div) for p in parts)
            averaged = names & {"mean", "sum", "norm"}
            how: How = "exact" if _zero(limit) else "close"
            yield Compared(
                difference.left,
                difference.right,
                how,
                node,
                None if divided or averaged else limit,
                limit if divided else ast.Constant(0) if not averaged else None,
            )
            return
        call = next((p for p in parts if isinstance(p, ast.Call) and len(p.args) == 2), None)
        if call is not None:
            name = last_name(call.func).lower()
            alike = any(word in name for word in ("cos", "sim", "calc_diff"))
            if alike or any(word in name for word in ("diff", "err", "dist", "mse")):
                yield Compared(
                    call.args[0],
                    call.args[1],
                    "cosine" if alike else "close",
                    node,
                    limit if alike else None,
                )

    def _cosine(self, value: ast.expr) -> Compared | None:
        for part in self._expanded(value):
            if isinstance(part, ast.Call) and len(part.args) >= 2:
                name = last_name(part.func).lower()
                built = isinstance(part.func, ast.Call) and last_name(part.func.func).lower()
                if "cos" in name or (built and "cosine" in built):
                    left, right = (_unflattened(a) for a in part.args[:2])
                    return Compared(left, right, "cosine", part)
        return None

    def _expanded(self, value: ast.expr) -> Iterator[ast.expr]:
        """The expression's parts, outer ones first, names replaced by what they were assigned."""
        todo: list[tuple[ast.AST, int]] = [(value, 0)]
        while todo:
            node, depth = todo.pop(0)
            if isinstance(node, ast.expr):
                yield node
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                continue  # its sides are what is compared
            if isinstance(node, ast.Name) and depth < _DEPTH:
                known = self._define(node.id)
                if known is not None:
                    todo.append((known, depth + 1))
            todo.extend((child, depth) for child in ast.iter_child_nodes(node))


def _comparison(left: ast.expr, op: ast.cmpop, right: ast.expr) -> ast.Compare:
    return ast.copy_location(ast.Compare(left, [op], [right]), left)


def _manner(function: ast.AST) -> How:
    """How a function of the test compares, by what it calls."""
    names = {last_name(n.func) for n in ast.walk(function) if isinstance(n, ast.Call)}
    if names & {"set", "sorted", "sort", "Counter"}:
        return "unordered"
    if any("cos" in name.lower() for name in names):
        return "cosine"
    close = names & {"allclose", "isclose", "assert_close", "abs", "norm"}
    return "exact" if not close and names & {"equal", "array_equal", "all"} else "close"


def _sides(call: ast.Call) -> tuple[ast.expr, ast.expr] | None:
    sides = [a for a in call.args if not isinstance(a, ast.Starred)][:2]
    method = isinstance(call.func, ast.Attribute) and dotted(call.func.value) not in (
        "torch",
        "np",
        "numpy",
        "torch.testing",
        "np.testing",
        "numpy.testing",
        "self",
    )
    if len(sides) == 1 and method and isinstance(call.func, ast.Attribute):
        sides = [call.func.value, *sides]
    for names in (("actual", "input", "x"), ("expected", "desired", "other", "y")):
        if len(sides) < 2:
            sides += [k.value for k in call.keywords if k.arg in names]
    return (sides[0], sides[1]) if len(sides) > 1 else None


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == name), None)


def _zero(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value == 0


def _unflattened(value: ast.expr) -> ast.expr:
    """A cosine is of all elements: how the test flattened them does not matter."""
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("flatten", "reshape", "view", "float", "double", "ravel")
        and all(isinstance(a, (ast.Constant, ast.UnaryOp)) for a in value.args)
    ):
        value = value.func.value
    return value


def over(compared: Compared, loops: list[ast.comprehension]) -> Compared:
    """A comparison of a loop's every round as one; in no order, each round is a row of its own."""
    as_rows = compared.how == "unordered"
    left, right = (joined(side, loops, as_rows) for side in (compared.left, compared.right))
    return replace(compared, left=left, right=right)
