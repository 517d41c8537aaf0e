"""Verdicts that get lost between a comparison and what ``run_verification`` returns."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import Hit
from orchestrator.author.check.registry import rule
from orchestrator.author.check.rules.verdicts import comparisons, reached
from orchestrator.author.check.rules.verification import VERIFY
from orchestrator.author.check.runner import Runner
from orchestrator.author.check.source import Function
from orchestrator.inventory.spelling import short

# What of the harness answers with a tuple: (passed, difference).
_PAIRS = frozenset({"exact", "close", "cosine", "topk", "unordered", "check_diff", "verdict"})
_BRANCHES = (ast.If, ast.Try, ast.Match, ast.IfExp)


@rule(
    "verdict-lost",
    "error",
    why="What the comparison found is overwritten on the way: verification passes all the same.",
    fix="return what the comparison says: return self.check_diff(out, ref)",
)
def verdict_lost(benchmark: Benchmark) -> Iterator[Hit]:
    """A verdict is overwritten with a true one, or returned as something that is always true."""
    runner = benchmark.runner
    method = runner.method(VERIFY) if runner is not None else None
    if runner is None or method is None:
        return
    overwritten = [hit for function in reached(runner) for hit in _overwritten(runner, function)]
    for node, name in overwritten:
        yield Hit(runner.source.at(node), f"{name}, which a comparison gave, is overwritten")
    if overwritten:
        return
    ends = [(end, verdict(end.value)) for end in returns(runner, method)]
    # All of them, for ``return 0, diff`` may be the other one; literal True is another rule's.
    if ends and all(truthy(runner, said) for _, said in ends) and not raises(runner):
        for end, said in ends:
            if not _plainly_true(runner, end.value):
                what = short(ast.unparse(said), 60) if said is not None else ""
                yield Hit(runner.source.at(end), f"the verdict is always true: {what}")
                return


def returns(runner: Runner, function: Function) -> list[ast.Return]:
    """The function's own ``return`` statements, without those of functions inside it."""
    found = runner.source.walk(ast.Return, function)
    return [one for one in found if runner.source.function(one) is function]


def verdict(node: ast.expr | None) -> ast.expr | None:
    """Of ``passed, difference`` the first."""
    return node.elts[0] if isinstance(node, ast.Tuple) and node.elts else node


def truthy(runner: Runner, node: ast.expr | None) -> bool:
    """Whether a verdict is certainly true, however it is written down."""
    if node is None:
        return False
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return bool(node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _falsy(node.operand)
    if isinstance(node, ast.IfExp):
        return truthy(runner, node.body) and truthy(runner, node.orelse)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return all(truthy(runner, one) for one in node.values)
    if isinstance(node, ast.Call):
        return _true_call(runner, node)
    if isinstance(node, ast.Name):
        value = runner.value_of(node)
        # A pair as its own verdict; ``return result`` alone is unpacked by the harness.
        if isinstance(value, ast.Call):
            inside = isinstance(runner.source.parent(node), ast.Tuple)
            return inside and _pair(value)
    value = runner.source.literal(node)
    return isinstance(value, bool | int | float | str) and bool(value)


def _true_call(runner: Runner, node: ast.Call) -> bool:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name in ("bool", "int", "float") and len(node.args) == 1:
        return truthy(runner, node.args[0]) or _pair(node.args[0])
    if name == "max":
        return any(isinstance(one, ast.Constant) and one.value is True for one in node.args)
    return _pair(node) and isinstance(runner.source.parent(node), ast.Tuple)


def _pair(node: ast.expr) -> bool:
    """Whether a call answers with (passed, difference): true as a whole whatever is in it."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner = ast.unparse(node.func.value)
    return node.func.attr in _PAIRS and owner in ("self", "self.verify")


def _falsy(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return isinstance(node.operand, ast.Constant) and bool(node.operand.value)
    return isinstance(node, ast.Constant) and not node.value


def _plainly_true(runner: Runner, node: ast.expr | None) -> bool:
    """Whether it is a literal True, also by name or in ``bool()``: ``no-comparison`` has those."""
    said = verdict(node)
    if isinstance(said, ast.Call) and ast.unparse(said.func) == "bool" and said.args:
        said = said.args[0]
    value = runner.source.literal(said)
    return value is True or (isinstance(value, tuple) and value[:1] == (True,))


def raises(runner: Runner) -> bool:
    """Whether verification can fail by an exception of its own."""
    for function in reached(runner):
        for kind in (ast.Assert, ast.Raise):
            if any(True for _ in runner.source.walk(kind, function)):
                return True
        for call in runner.calls(function):
            if ast.unparse(call.func).rpartition(".")[2].startswith("assert"):
                return True
    return False


# Overwritten.


def _overwritten(runner: Runner, function: Function) -> Iterator[tuple[ast.stmt, str]]:
    """Assignments of something true to what a comparison gave, before anybody has looked at it."""
    source = runner.source
    asked = {source.statement(call) for call in comparisons(runner)}
    if not any(isinstance(statement, ast.Assign) for statement in asked):
        return
    given: dict[str, ast.Assign] = {}
    assigns = [a for a in source.walk(ast.Assign, function) if source.function(a) is function]
    for assign in sorted(assigns, key=_place):
        target = assign.targets[0]
        first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
        if not isinstance(first, ast.Name):
            continue
        old = given.get(first.id)
        if old is not None and _says_true(runner, assign) and _lost(runner, old, assign, first.id):
            yield assign, first.id
        elif assign in asked:
            given[first.id] = assign
        else:
            given.pop(first.id, None)


def _says_true(runner: Runner, assign: ast.Assign) -> bool:
    """Whether it gives a verdict that is true; for ``result = (True, diff)`` the first counts."""
    return truthy(runner, verdict(assign.value))


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _lost(runner: Runner, old: ast.Assign, new: ast.Assign, name: str) -> bool:
    """Whether ``new`` comes after ``old``, and nothing between them makes use of the verdict."""
    source = runner.source
    if _either_or(runner, old, new):
        return False
    own = set(ast.walk(new))
    for test in source.ancestors(new):
        if isinstance(test, ast.If):  # ``if not passed: passed = True``
            own |= set(ast.walk(test.test))
    for load in source.walk(ast.Name, source.scope(new)):
        if load.id != name or not isinstance(load.ctx, ast.Load) or load in own:
            continue
        if _place(old) < _place(load) < _place(new) and not _only_said(source.parent(load)):
            return False
    return True


def _only_said(parent: ast.AST | None) -> bool:
    return isinstance(parent, ast.Call) and ast.unparse(parent.func) == "print"


def _either_or(runner: Runner, old: ast.stmt, new: ast.stmt) -> bool:
    """Whether they stand in different branches, so that one does not follow the other."""
    above = list(runner.source.ancestors(old))
    child: ast.AST = new
    for node in runner.source.ancestors(new):
        if node in above:
            other = above[above.index(node) - 1] if above.index(node) else old
            return isinstance(node, _BRANCHES) and not any(
                isinstance(block, list) and child in block and other in block
                for _, block in ast.iter_fields(node)
            )
        child = node
    return False
