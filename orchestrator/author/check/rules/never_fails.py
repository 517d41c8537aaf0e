"""Comparisons that only ever pass: of nothing, of zeros, of shapes, with boundless tolerances."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import Hit
from orchestrator.author.check.registry import rule
from orchestrator.author.check.rules.verdict_lost import raises, returns, truthy, verdict
from orchestrator.author.check.rules.verdicts import comparisons, reached
from orchestrator.author.check.rules.verification import VERIFY
from orchestrator.author.check.runner import Runner
from orchestrator.author.check.source import dotted
from orchestrator.inventory.spelling import short

_SHAPES = frozenset({"shape", "dtype", "ndim", "device", "size", "numel", "dim", "stride", "len"})
_FINITE = frozenset({"isfinite", "isnan", "isinf", "isreal"})
_TESTS = frozenset({"isinstance", "hasattr", "callable", "is_tensor"})
_DEEPEST = 8  # names behind names
# Beyond what any dtype's rounding is: an fp8 step is 32 at most, half of rtol 1 is any sign.
_MOST = {"atol": 100.0, "rtol": 1.0, "limit": 100.0}
_TOLERANT = frozenset(
    {"allclose", "isclose", "assert_close", "assert_allclose", "close", "unordered"}
)
_POSITIONS = {"allclose": ("rtol", "atol"), "isclose": ("rtol", "atol")}


@rule(
    "never-fails",
    "error",
    why="A condition that holds for any output lets any kernel into the tables.",
    fix="let a comparison with a reference decide: return self.check_diff(out, ref)",
)
def never_fails(benchmark: Benchmark) -> Iterator[Hit]:
    """All that decides is a condition that holds for a wrong output as well."""
    runner = benchmark.runner
    method = runner.method(VERIFY) if runner is not None else None
    if runner is None or method is None or raises(runner):
        return
    ends = [verdict(end.value) for end in returns(runner, method)]
    reasons = [_vacuous(runner, end, 0) for end in ends]
    if ends and all(reasons):
        for end, reason in zip(ends, reasons, strict=True):
            if reason and end is not None and not truthy(runner, end):
                said = short(ast.unparse(end), 60)
                yield Hit(runner.source.at(end), f"{reason}: {said}")
                return


def _vacuous(runner: Runner, node: ast.expr | None, depth: int) -> str | None:
    """Why a condition says nothing of an output; None where it may, or cannot be told."""
    if node is None or depth > _DEEPEST:
        return None
    if truthy(runner, node):
        return "is always true"
    if isinstance(node, ast.BoolOp):
        if isinstance(node.op, ast.Or):
            return None  # ``weak-verdict``
        return _all(runner, node.values, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        return _all(runner, [node.left, node.right], depth)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _not(runner, node.operand)
    if isinstance(node, ast.IfExp):
        if _false(node.body) and truthy(runner, node.orelse):
            return _not(runner, node.test)
        if truthy(runner, node.body) and _false(node.orelse):
            return _vacuous(runner, node.test, depth + 1)
        return None
    if isinstance(node, ast.Compare):
        return _comparison(runner, node)
    if isinstance(node, ast.Call):
        return _call(runner, node, depth)
    if isinstance(node, ast.Name):
        return _all(runner, _bound(runner, node), depth + 1)
    return None


def _all(runner: Runner, nodes: list[ast.expr | None] | list[ast.expr], depth: int) -> str | None:
    reasons = [_vacuous(runner, node, depth) for node in nodes]
    telling = [reason for reason in reasons if reason != "is always true"]
    return (telling or reasons)[0] if reasons and all(reasons) else None


def _bound(runner: Runner, name: ast.Name) -> list[ast.expr | None]:
    """All that a name is given in its function; None for what cannot be told."""
    found: list[ast.expr | None] = []
    for other in runner.source.walk(ast.Name, runner.source.scope(name)):
        if other.id != name.id or isinstance(other.ctx, ast.Load):
            continue
        parent = runner.source.parent(other)
        plain = isinstance(parent, ast.Assign) and parent.targets == [other]
        found.append(parent.value if plain and isinstance(parent, ast.Assign) else None)
    return found


def _false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _not(runner: Runner, node: ast.expr) -> str | None:
    """Why the opposite of a condition says nothing."""
    inner = node
    if isinstance(inner, ast.Call) and _last(inner) == "any":
        owner = inner.func.value if isinstance(inner.func, ast.Attribute) else None
        named = owner is None or dotted(owner) == "torch"
        inner = inner.args[0] if named and inner.args else owner or inner
    if isinstance(inner, ast.Call) and _last(inner) in _FINITE:
        return "only asks for finite numbers"
    if isinstance(inner, ast.Compare) and len(inner.ops) == 1:
        above = isinstance(inner.ops[0], ast.Gt | ast.GtE)
        limit = runner.source.literal(inner.comparators[0]) if above else None
        if isinstance(inner.ops[0], ast.Lt | ast.LtE):
            limit = runner.source.literal(inner.left)
        # An integer may bound a count, which is never NaN.
        if isinstance(limit, float) and not _asks_for_nan(runner):
            return "passes where the difference is NaN"
        if isinstance(inner.ops[0], ast.Lt) and _number(runner, inner.comparators[0]) == 0:
            return "no difference is below zero"
        if isinstance(inner.ops[0], ast.Is) and _none(inner.comparators[0]):
            return "says nothing of what is in it"
    return None


def _asks_for_nan(runner: Runner) -> bool:
    return any(_last(c) in _FINITE for f in reached(runner) for c in runner.calls(f))


def _comparison(runner: Runner, node: ast.Compare) -> str | None:
    if len(node.ops) != 1:
        return None
    left, operator, right = node.left, node.ops[0], node.comparators[0]
    if isinstance(operator, ast.Lt | ast.LtE):
        left, right = right, left
        operator = ast.Gt() if isinstance(operator, ast.Lt) else ast.GtE()
    if isinstance(operator, ast.Gt | ast.GtE):
        limit = _number(runner, right)
        if limit is not None and (limit < 0 or (limit == 0 and isinstance(operator, ast.GtE))):
            # A cosine may well be held against a number below zero; nobody does it for a verdict.
            return "no difference is below zero"
        return "nothing is above infinity" if _infinite(left) else None
    if isinstance(operator, ast.IsNot | ast.NotEq) and _none(right):
        return "says nothing of what is in it"
    if isinstance(operator, ast.Eq | ast.Is):
        if ast.dump(left) == ast.dump(right):
            return "compares it with itself"
        if _of_shape(left) and _of_shape(right):
            return "only compares shapes or types"
    return None


def _number(runner: Runner, node: ast.expr) -> float | None:
    value = runner.source.literal(node)
    return float(value) if isinstance(value, int | float) else None


def _infinite(node: ast.expr) -> bool:
    text = ast.unparse(node).lower()
    return text in ("math.inf", "torch.inf", "float('inf')", "np.inf", "numpy.inf")


def _none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _of_shape(node: ast.expr) -> bool:
    """Whether an expression is of a tensor's shape, dtype or place, or a literal beside one."""
    if isinstance(node, ast.Subscript):
        return _of_shape(node.value)
    if isinstance(node, ast.Call):
        if _last(node) in ("tuple", "list", "Size") and node.args:
            return _of_shape(node.args[0])
        return _last(node) in _SHAPES
    return isinstance(node, ast.Attribute) and node.attr in _SHAPES


def _last(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2] if _short(call.func) else ""


def _short(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Attribute)


def _call(runner: Runner, node: ast.Call, depth: int) -> str | None:
    name = _last(node)
    if isinstance(node.func, ast.Name) and name == "bool" and len(node.args) == 1:
        return _vacuous(runner, node.args[0], depth + 1)
    if name in _TESTS:
        return "says nothing of what is in it"
    if name in ("all", "item"):
        inner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if inner is None or dotted(inner) == "torch":
            inner = node.args[0] if node.args else None
        if isinstance(inner, ast.Name):
            inner = runner.value_of(inner)
        if isinstance(inner, ast.Call) and _last(inner) in _FINITE:
            return "only asks for finite numbers"
        if isinstance(inner, ast.Compare) and ast.dump(inner.left) == ast.dump(
            inner.comparators[0]
        ):
            return "only asks for a NaN"
        return _vacuous(runner, inner, depth + 1) if isinstance(inner, ast.Call) else None
    callee = runner.callee(node)
    if callee is not None:
        return _all(runner, [verdict(end.value) for end in returns(runner, callee)], depth + 1)
    return None


# What is compared, and how.


@rule(
    "nothing-compared",
    "error",
    why="Zeros, and tensors without an element, agree whatever the operator computed.",
    fix="compare the whole output with the whole reference",
)
def nothing_compared(benchmark: Benchmark) -> Iterator[Hit]:
    """What is compared holds no number of the output: times zero, or no element of it."""
    runner = benchmark.runner
    if runner is None or runner.method(VERIFY) is None:
        return
    for call in comparisons(runner):
        given = [*call.args[:2], *(w.value for w in call.keywords if w.arg in ("out", "ref"))]
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("equal", "allclose"):
            owner = call.func.value
            given += [owner] if dotted(owner) != "torch" else []
        for one in given:
            if _holds_nothing(runner, one, 0):
                text = short(ast.unparse(one), 60)
                yield Hit(runner.source.at(call), f"nothing of it is compared: {text}")
                break


def _holds_nothing(runner: Runner, node: ast.expr, depth: int) -> bool:
    if isinstance(node, ast.Name) and depth < _DEEPEST:
        value = runner.value_of(node)
        return value is not None and _holds_nothing(runner, value, depth + 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return 0 in (_number(runner, node.left), _number(runner, node.right))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return ast.dump(node.left) == ast.dump(node.right)
    if isinstance(node, ast.Subscript):
        axes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return any(_empty(runner, axis) for axis in axes)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "mul" and node.args:
            return _number(runner, node.args[-1]) == 0
        if node.func.attr in ("float", "double", "cpu", "clone", "to", "contiguous", "flatten"):
            return _holds_nothing(runner, node.func.value, depth + 1)
    return False


def _empty(runner: Runner, axis: ast.expr) -> bool:
    """Whether a slice surely has no element: ``[:0]``, ``[3:3]``."""
    if not isinstance(axis, ast.Slice) or axis.upper is None or axis.step is not None:
        return False
    start = 0.0 if axis.lower is None else _number(runner, axis.lower)
    end = _number(runner, axis.upper)
    return start is not None and end is not None and 0 <= end <= start


@rule(
    "boundless-tolerance",
    "error",
    why="A tolerance above the numbers themselves passes for any output.",
    fix="compare with self.verify.close, whose limits follow the dtype, or give the real tolerance",
)
def boundless_tolerance(benchmark: Benchmark) -> Iterator[Hit]:
    """A comparison's tolerance is beyond any rounding, or NaN is made a number before it."""
    runner = benchmark.runner
    for function in reached(runner):
        assert runner is not None
        for call in runner.calls(function):
            name = _last(call)
            if name not in _TOLERANT:
                continue
            for word, value in _tolerances(runner, call, name):
                limit = _number(runner, value)
                if limit is not None and limit >= _MOST[word]:
                    yield Hit(runner.source.at(call), f"{word} {limit:g} passes for any output")
                    break
            else:
                if _hides_nan(runner, call):
                    message = "a NaN of the output is made a number before the comparison"
                    yield Hit(runner.source.at(call), message)


def _tolerances(runner: Runner, call: ast.Call, name: str) -> Iterator[tuple[str, ast.expr]]:
    own = isinstance(call.func, ast.Attribute) and dotted(call.func.value) not in ("torch", "np")
    first = 1 if own else 2
    yield from zip(_POSITIONS.get(name, ()), call.args[first:], strict=False)
    yield from ((w.arg, w.value) for w in call.keywords if w.arg in _MOST)


def _hides_nan(runner: Runner, call: ast.Call) -> bool:
    """Whether both sides went through ``nan_to_num``."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    sides = [*([owner] if owner is not None and dotted(owner) != "torch" else []), *call.args[:2]]
    return bool(sides) and all(_numbered(runner, side, 0) for side in sides[:2])


def _numbered(runner: Runner, node: ast.expr, depth: int) -> bool:
    if isinstance(node, ast.Name) and depth < _DEEPEST:
        value = runner.value_of(node)
        return value is not None and _numbered(runner, value, depth + 1)
    return isinstance(node, ast.Call) and _last(node) in ("nan_to_num", "nan_to_num_")
