"""Verdicts that say nothing: swallowed exceptions, comparisons that are left out or ignored."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import Hit
from orchestrator.author.check.registry import rule
from orchestrator.author.check.rules.data import text_of
from orchestrator.author.check.rules.verification import VERIFY
from orchestrator.author.check.runner import Runner
from orchestrator.author.check.source import Function
from orchestrator.inventory.spelling import short

_CHECKS = frozenset({"exact", "close", "cosine", "topk", "unordered"})
_RAISES = re.compile(r"assert|check|verify|compare|raise|expect", re.IGNORECASE)
_EQUALITIES = frozenset({"equal", "allclose"})
_RAISING = frozenset({"assert_close", "assert_allclose", "assert_equal", "assert_array_equal"})


@rule(
    "swallowed-exception",
    "error",
    why="An operator that raises then counts as verified, or as wrong without a word on why.",
    fix="let it raise: the harness reports ERROR with the traceback",
)
def swallowed_exception(benchmark: Benchmark) -> Iterator[Hit]:
    """``run_verification`` goes on, or passes, after an exception."""
    runner = benchmark.runner
    for function in reached(runner) if runner is not None else ():
        assert runner is not None
        for node in runner.source.walk(ast.Try, function):
            if not any(isinstance(inner, ast.Call) for s in node.body for inner in ast.walk(s)):
                continue
            for handler in node.handlers:
                what = _swallows(handler)
                if what is not None and not _guards_import(node):
                    yield Hit(runner.source.at(handler), what)
            for statement in node.finalbody:
                for inner in ast.walk(statement):
                    if isinstance(inner, ast.Return):
                        yield Hit(
                            runner.source.at(inner), "a return in finally drops the exception"
                        )
        for context in runner.source.walk(ast.With, function):
            for item in context.items:
                if isinstance(item.context_expr, ast.Call) and ast.unparse(
                    item.context_expr.func
                ).rpartition(".")[2] in ("suppress", "ignored"):
                    yield Hit(runner.source.at(item.context_expr), "suppresses exceptions")


def reached(runner: Runner | None) -> Iterator[Function]:
    """``run_verification`` and the methods that it calls."""
    method = runner.method(VERIFY) if runner is not None else None
    if runner is None or method is None:
        return
    found: list[Function] = [method]
    for function in found:
        yield function
        for call in runner.calls(function):
            callee = runner.callee(call)
            if callee is not None and callee not in found:
                found.append(callee)


def _guards_import(node: ast.Try) -> bool:
    return all(isinstance(s, ast.Import | ast.ImportFrom | ast.Pass) for s in node.body)


def _swallows(handler: ast.ExceptHandler) -> str | None:
    """What is wrong with a handler, or None."""
    inner = [node for statement in handler.body for node in ast.walk(statement)]
    if any(isinstance(node, ast.Raise | ast.Assert) for node in inner):
        return None
    returns = [node for node in inner if isinstance(node, ast.Return)]
    if any(_true(node.value) for node in returns):
        return "passes after an exception"
    for node in inner:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and node.value.value is True
        ):
            return "passes after an exception"
    if handler.type is None:
        return "a bare except hides what went wrong"
    if all(_idle(statement) for statement in handler.body):
        return "swallows an exception and goes on"
    if any(node.value is None or _none(node.value) for node in returns):
        return "returns no verdict after an exception"
    return None


def _true(node: ast.expr | None) -> bool:
    first = node.elts[0] if isinstance(node, ast.Tuple) and node.elts else node
    return isinstance(first, ast.Constant) and first.value is True


def _none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _idle(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Pass | ast.Continue):
        return True
    if not isinstance(statement, ast.Expr):
        return False
    value = statement.value
    said = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
    return isinstance(value, ast.Constant) or said.split(".")[0] in (
        "print",
        "logging",
        "logger",
        "warnings",
        "traceback",
        "log",
    )


# Verdicts.


@rule(
    "no-comparison",
    "error",
    why="Verification gates measuring: one that always passes lets a wrong kernel into the tables.",
    fix="compare with a reference: return self.check_diff(out, ref)",
)
def no_comparison(benchmark: Benchmark) -> Iterator[Hit]:
    """``run_verification`` always passes: a literal True, or a verdict that is or-ed with one."""
    runner = benchmark.runner
    method = runner.method(VERIFY) if runner is not None else None
    if runner is None or method is None:
        return
    for node in runner.source.walk(ast.BoolOp, method):
        if isinstance(node.op, ast.Or) and any(
            isinstance(v, ast.Constant) and v.value is True for v in node.values
        ):
            yield Hit(runner.source.at(node), "the verdict is or-ed with True")
            return
    if _empty_verdict(runner):
        yield Hit(runner.source.at(method), "the verdict is over no comparison at all")
        return
    returns = _own_returns(runner, method)
    always = [node for node in returns if _always_true(runner, node.value)]
    if not returns or len(always) != len(returns) or _may_fail(runner):
        return
    compared = any(True for _ in comparisons(runner))
    what = "whatever the comparisons say" if compared else "without comparing anything"
    yield Hit(runner.source.at(always[0]), f"passes {what}")


def _empty_verdict(runner: Runner) -> bool:
    """Whether ``verify.verdict()`` is asked, and nothing that is called could have compared."""
    asked = False
    for function in reached(runner):
        for call in runner.calls(function):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            asked |= name == "verdict"
            given = [*call.args, *(word.value for word in call.keywords)]
            hands_on = any(_own_object(runner, one) for one in given)
            if name in _CHECKS or name == "check_diff" or name in _EQUALITIES or hands_on:
                return False
    return asked and not _may_fail(runner)


def _own_object(runner: Runner, node: ast.expr) -> bool:
    """Whether ``self`` or ``self.verify`` itself is handed to somebody, who may compare with it."""
    if isinstance(node, ast.Name):
        return node.id == runner.own_name(node)
    return runner.attribute(node) == "verify"


@rule(
    "weak-verdict",
    "error",
    why="A verdict that is or-ed with something else passes where the comparison did not.",
    fix="let the comparison alone decide, with the threshold that is meant and its reason",
)
def weak_verdict(benchmark: Benchmark) -> Iterator[Hit]:
    """What ``run_verification`` returns passes where any of several conditions holds."""
    runner = benchmark.runner
    method = runner.method(VERIFY) if runner is not None else None
    if runner is None or method is None:
        return
    told: set[ast.AST] = set()
    for node in _weak_returns(runner, method, 0):
        literal = any(isinstance(v, ast.Constant) for v in getattr(node, "values", ()))
        if node not in told and not literal:  # with True: another rule
            told.add(node)
            message = f"either side passes: {short(ast.unparse(node), 60)}"
            yield Hit(runner.source.at(node), message)


def _weak_returns(runner: Runner, function: Function, depth: int) -> Iterator[ast.expr]:
    for returned in _own_returns(runner, function):
        yield from _weakens(runner, _verdict(returned.value), depth)


def _verdict(node: ast.expr | None) -> ast.expr | None:
    return node.elts[0] if isinstance(node, ast.Tuple) and node.elts else node


_DEEPEST = 8  # names behind names


def _weakens(runner: Runner, node: ast.expr | None, depth: int) -> Iterator[ast.expr]:
    """Where a condition passes by one of several alone; beneath ``not`` that is stricter."""
    if isinstance(node, ast.BoolOp | ast.BinOp) and isinstance(node.op, ast.Or | ast.BitOr):
        yield node
    elif isinstance(node, ast.BoolOp):
        for one in node.values:
            yield from _weakens(runner, one, depth)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        yield from _weakens(runner, node.left, depth)
        yield from _weakens(runner, node.right, depth)
    elif isinstance(node, ast.IfExp):
        yield from _weakens(runner, node.body, depth)
        yield from _weakens(runner, node.orelse, depth)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("bool", "all") and node.args:
        yield from _weakens(runner, node.args[0], depth)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "any":
        yield node
    elif isinstance(node, ast.Call) and depth < _DEEPEST:
        callee = runner.callee(node)
        if callee is not None:
            yield from _weak_returns(runner, callee, depth + 1)
    elif isinstance(node, ast.Name) and depth < _DEEPEST:
        scope = runner.source.scope(node)
        for other in runner.source.walk(ast.Name, scope):
            if other.id != node.id or isinstance(other.ctx, ast.Load):
                continue
            parent = runner.source.parent(other)
            if isinstance(parent, ast.AugAssign) and isinstance(parent.op, ast.BitOr):
                yield parent.value
            elif isinstance(parent, ast.Assign) and parent.targets == [other]:
                yield from _weakens(runner, parent.value, depth + 1)


def _own_returns(runner: Runner, method: Function) -> list[ast.Return]:
    return [
        r for r in runner.source.walk(ast.Return, method) if runner.source.function(r) is method
    ]


def _always_true(runner: Runner, node: ast.expr | None) -> bool:
    if node is None:
        return False
    if isinstance(node, ast.Tuple) and node.elts:
        return _always_true(runner, node.elts[0])
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "bool" and len(node.args) == 1:
        return _always_true(runner, node.args[0])
    value = runner.source.literal(node)
    if value is True:
        return True
    return isinstance(value, tuple) and value[:1] == (True,)


def _may_fail(runner: Runner) -> bool:
    """Whether verification can fail in another way than by what it returns."""
    for function in reached(runner):
        for kind in (ast.Assert, ast.Raise):
            if any(True for _ in runner.source.walk(kind, function)):
                return True
        for call in runner.calls(function):
            name = ast.unparse(call.func).rpartition(".")[2]
            # A helper of elsewhere that may well raise.
            foreign = runner.callee(call) is None and name not in ("check_diff", *_CHECKS)
            if name in _RAISING or (foreign and _RAISES.search(name)):
                return True
    return False


def comparisons(runner: Runner) -> Iterator[ast.Call]:
    """Calls in what verification reaches that compare an output with a reference."""
    for function in reached(runner):
        for call in runner.calls(function):
            if not isinstance(call.func, ast.Attribute):
                continue
            owner, name = ast.unparse(call.func.value), call.func.attr
            checks = owner.endswith(".verify") and name in _CHECKS
            if checks or name == "check_diff" or name in _EQUALITIES:
                yield call


@rule(
    "comparison-ignored",
    "error",
    why="A comparison whose result nobody looks at cannot fail the verification.",
    fix="return what it says, or `return self.verify.verdict()` for all of them",
)
def comparison_ignored(benchmark: Benchmark) -> Iterator[Hit]:
    """The result of a comparison is dropped."""
    runner = benchmark.runner
    if runner is None or runner.method(VERIFY) is None:
        return
    verdict = any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "verdict"
        for function in reached(runner)
        for call in runner.calls(function)
    )
    for call in comparisons(runner):
        own = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value).startswith(
            "self"
        )
        if not (verdict and own) and _dropped(runner, call):
            yield Hit(runner.source.at(call), f"what {text_of(call)} says is dropped")


def _dropped(runner: Runner, call: ast.Call) -> bool:
    """Whether nothing can come of a call's result."""
    statement = runner.source.parent(call)
    if isinstance(statement, ast.Expr):
        return True
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
    if isinstance(target, ast.Tuple) and isinstance(first, ast.Name):
        return not _loaded(runner, first)
    return isinstance(first, ast.Name) and not _loaded(runner, first)


def _loaded(runner: Runner, name: ast.Name) -> bool:
    scope = runner.source.scope(name)
    return any(
        isinstance(other.ctx, ast.Load) and other.id == name.id
        for other in runner.source.walk(ast.Name, scope)
    )
