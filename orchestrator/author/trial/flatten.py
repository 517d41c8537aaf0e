"""The body of a test as one straight line of statements around the operator's call.

Blocks that hold the call or a comparison are opened; functions of the test's module that do are put
in place of their calls; what is said before is kept as conditions. Everything else stays whole.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from orchestrator.author.trial import compare, noise
from orchestrator.author.trial.calls import Names, OperatorCalls
from orchestrator.author.trial.effects import changes
from orchestrator.author.trial.inline import inlined, renamed
from orchestrator.author.trial.literals import NotLiteral, evaluate
from orchestrator.author.trial.rounds import rounds
from orchestrator.author.trial.scopes import FunctionNode, binds, reads
from orchestrator.author.trial.source import Source
from orchestrator.author.trial.units import Unit, forwards

_DEPTH = 5
_STOP = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class Step:
    """One statement of the line. ``when``: conditions of the blocks that it was taken from.

    ``loops``: what the blocks around it loop over, outer ones first.
    """

    node: ast.stmt
    source: Source
    when: tuple[ast.expr, ...] = ()
    loops: tuple[ast.comprehension, ...] = ()


@dataclass(frozen=True)
class _Where:
    """Where a statement stands: its file, and the conditions and loops of the blocks around it."""

    source: Source
    when: tuple[ast.expr, ...] = ()
    loops: tuple[ast.comprehension, ...] = ()


@dataclass
class Flat:
    """``loops``: loops around the call, as target and iterable: the test's own parameters."""

    steps: list[Step] = field(default_factory=list)
    skips: list[ast.expr] = field(default_factory=list)
    loops: list[tuple[ast.expr, ast.expr]] = field(default_factory=list)
    device: ast.expr | None = None
    dtype: ast.expr | None = None
    names: Names | None = None
    # Loops around the call that the test compares only behind: each round is a part.
    rounds: list[tuple[ast.For | ast.AsyncFor, Source]] = field(default_factory=list)


def flatten(unit: Unit, body: Iterable[ast.stmt], calls: OperatorCalls) -> Flat:
    """The straight line of ``body``, the statements of ``unit``."""
    return _Flattener(unit, list(body), calls).run()


class _Flattener:
    def __init__(self, unit: Unit, body: list[ast.stmt], calls: OperatorCalls) -> None:
        self._unit = unit
        self._calls = calls
        self._body = [*unit.before, *body]
        self._flat = Flat()
        self._local: dict[str, FunctionNode] = {
            n.name: n for s in self._body for n in ast.walk(s) if isinstance(n, ast.FunctionDef)
        }
        # Locals of nested functions are in nobody's way.
        own = [s for s in self._body if not isinstance(s, ast.FunctionDef)]
        self._used = {n.id for s in own for n in _walk(s) if isinstance(n, ast.Name)}
        self._used |= set(unit.source.definitions)
        self._layers = {
            name: layer
            for statement in self._body
            for name, layer in forwards(statement, unit.source).items()
        }
        self._memo: dict[tuple[int, str], bool] = {}
        self._open: list[FunctionNode] = []  # functions whose bodies stand around

    def run(self) -> Flat:
        """Flatten everything."""
        self._block(copy.deepcopy(self._body), _Where(self._unit.source))
        self._flat.names = Names.of(self._unit.source, [s.node for s in self._flat.steps])
        return self._flat

    # -- what a piece of code holds -------------------------------------------------------------

    def _function(self, node: ast.expr, source: Source) -> tuple[FunctionNode, Source] | None:
        """The function of the test's own modules that an expression names."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            imported = source.imports.get(node.value.id)
            local = source.local(imported) if imported is not None else None
            module = local[0] if local is not None and local[1] is None else None
            return function_of(node.attr, module) if module is not None else None
        if not isinstance(node, ast.Name):
            return None
        if node.id in self._local:
            return self._local[node.id], source
        if node.id in self._layers:
            return self._layers[node.id], source
        if node.id in self._unit.siblings:
            return self._unit.siblings[node.id], self._unit.source
        return function_of(node.id, source)

    def _holds(self, node: ast.AST, what: str, source: Source) -> bool:
        """Whether code holds a call of the operator (``call``) or a comparison (``compare``)."""
        test: Callable[[ast.AST], bool]
        if what == "call":
            names = Names.of(source, [*self._body, *_statement(node)])
            if self._flat.steps:
                names = Names.of(
                    source, [*(s.node for s in self._flat.steps), *self._body, *_statement(node)]
                )
            names = Names(source, {k: _same(v) for k, v in names.aliases.items()}, names.imports)

            def test(part: ast.AST) -> bool:
                return self._calls.is_call(part, names)
        else:
            test = _compares
        return any(
            test(part) or self._calls_one_that_holds(part, what, source) for part in _walk(node)
        )

    def _calls_one_that_holds(self, part: ast.AST, what: str, source: Source) -> bool:
        if not isinstance(part, ast.Call):
            return False
        found = self._function(part.func, source)
        if found is None:
            return False
        key = (id(found[0]), what)
        if key not in self._memo:
            self._memo[key] = False  # of a recursion the outer call decides
            if len(self._memo) < 2000:
                self._memo[key] = any(self._holds(s, what, found[1]) for s in found[0].body)
        return self._memo[key]

    def _matters(self, node: ast.AST, source: Source) -> bool:
        return self._holds(node, "compare", source) or self._holds(node, "call", source)

    # -- statements -----------------------------------------------------------------------------

    def _block(self, body: list[ast.stmt], where: _Where) -> None:
        for node in body:
            self._statement(node, where)

    def _statement(self, node: ast.stmt, where: _Where) -> None:
        flat = self._flat
        flat.device = noise.default_device(node) or flat.device
        flat.dtype = noise.default_dtype(node) or flat.dtype
        if isinstance(node, ast.FunctionDef):
            self._local[node.name] = node
            flat.steps.append(Step(node, where.source, where.when, where.loops))
            return
        if isinstance(node, ast.Return):
            if node.value is None:
                return
            node = ast.copy_location(ast.Expr(node.value), node)
        if isinstance(node, ast.If) and compare.mentions(ast.Assert(node.test)):
            # if not torch.allclose(a, b): raise
            claim = node.test
            if isinstance(claim, ast.UnaryOp) and isinstance(claim.op, ast.Not):
                claim = claim.operand
            made = ast.fix_missing_locations(ast.copy_location(ast.Assert(claim), node))
            flat.steps.append(Step(made, where.source, where.when, where.loops))
            if not self._matters(ast.Module(node.body + node.orelse, []), where.source):
                return
        guard = noise.skip_guard(node)
        if guard is not None:
            flat.skips.append(guard)
            return
        if not self._matters(node, where.source):
            if isinstance(node, ast.Assert):
                # What the test takes for granted: of use where it speaks of parameters only.
                negated = ast.UnaryOp(ast.Not(), node.test)
                flat.skips.append(ast.copy_location(negated, node.test))
                flat.steps.append(Step(node, where.source, where.when, where.loops))
                return
            kept = noise.cleaned(node)
            if kept is not None:
                flat.steps.append(Step(kept, where.source, where.when, where.loops))
            return
        if isinstance(node, (ast.With, ast.AsyncWith)):
            self._with(node, where)
        elif isinstance(node, ast.If):
            self._if(node, where)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._for(node, where)
        elif isinstance(node, ast.While):
            self._block(node.body, where)
        elif isinstance(node, ast.Try):
            self._block([*node.body, *node.orelse, *node.finalbody], where)
        else:
            self._simple(node, where)

    def _with(self, node: ast.With | ast.AsyncWith, where: _Where) -> None:
        for item in node.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and call.args:
                name = ast.unparse(call.func)
                if name == "torch.device":
                    self._flat.device = call.args[0]
                elif name.endswith(("set_default_torch_dtype", "set_default_dtype")):
                    self._flat.dtype = call.args[0]
        self._block(node.body, where)

    def _if(self, node: ast.If, where: _Where) -> None:
        try:
            known = evaluate(node.test, lambda _: None)
        except NotLiteral:
            pass
        else:
            # What a caller left out is None here: ``if scale is not None``.
            self._block(node.body if known else node.orelse, where)
            return
        negated = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
        arms = [(node.test, negated, node.body), (negated, node.test, node.orelse)]
        calling = [arm for arm in arms if any(self._holds(s, "call", where.source) for s in arm[2])]
        if calling:
            # One way through the test is one trial: the first that calls the operator.
            _, otherwise, body = calling[0]
            self._flat.skips.append(otherwise)
            self._block(body, where)
            return
        for condition, _, body in arms:
            self._block(body, replace(where, when=(*where.when, condition)))

    def _for(self, node: ast.For | ast.AsyncFor, where: _Where) -> None:
        if self._holds(node, "call", where.source):
            read: set[str] = set()
            for statement in node.body:
                read |= set(reads(statement))
            if read & set(binds(node.target)):
                if not self._holds(node, "compare", where.source):
                    self._flat.rounds.append((node, where.source))
                self._flat.loops.append((node.target, node.iter))
                first = ast.Call(
                    ast.Name("next", ast.Load()),
                    [ast.Call(ast.Name("iter", ast.Load()), [node.iter], [])],
                    [],
                )
                made = ast.Assign([node.target], first)
                ast.fix_missing_locations(ast.copy_location(made, node))
                self._flat.steps.append(Step(made, where.source, where.when, where.loops))
            self._block(node.body, where)
            return
        every = rounds(node.target, node.iter)
        if every is not None:
            for names in every:
                body = [ast.fix_missing_locations(renamed(s, names)) for s in node.body]
                self._block(body, where)
            return
        self._left_in_loop(node, where)
        round_ = ast.comprehension(node.target, node.iter, [], 0)
        self._block(node.body, replace(where, loops=(*where.loops, round_)))

    def _left_in_loop(self, node: ast.For | ast.AsyncFor, where: _Where) -> None:
        """Keep a loop that fills something besides comparing, without what it compares."""
        kept = [s for s in node.body if not self._matters(s, where.source)]
        if any(changes(s) for s in kept):
            loop = copy.deepcopy(node)
            loop.body = copy.deepcopy(kept)
            whole = noise.cleaned(loop)
            if whole is not None:
                self._flat.steps.append(Step(whole, where.source, where.when, where.loops))

    def _simple(self, node: ast.stmt, where: _Where) -> None:
        """Take calls out of a simple statement, and put bodies in place of them."""
        whole = isinstance(node, (ast.Assign, ast.Expr, ast.AnnAssign))
        top = node.value if isinstance(node, (ast.Assign, ast.Expr, ast.AnnAssign)) else None
        if isinstance(top, ast.Call) and whole:
            expanded = self._expanded(node, top, where.source)
            if expanded is not None:
                self._open.append(expanded[2])
                self._block(expanded[0], replace(where, source=expanded[1]))
                self._open.pop()
                return
        hoist = _Hoist(self, where.source, top)
        made = hoist.visit(node)
        assert isinstance(made, ast.stmt)
        for statement in hoist.before:
            self._statement(statement, where)
        self._flat.steps.append(Step(made, where.source, where.when, where.loops))

    def _expanded(
        self, node: ast.stmt, call: ast.Call, source: Source
    ) -> tuple[list[ast.stmt], Source, FunctionNode] | None:
        """The body that stands for a call, its source, and the function; a recursion has none."""
        found = self._function(call.func, source)
        if found is None or len(self._open) >= _DEPTH or any(f is found[0] for f in self._open):
            return None
        if not self._calls_one_that_holds(call, "call", source) and not (
            self._calls_one_that_holds(call, "compare", source)
        ):
            return None
        target = None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
        elif isinstance(node, ast.AnnAssign):
            target = node.target
        elif not isinstance(node, ast.Expr):
            return None
        body = inlined(found[0], call, target, self._used)
        return None if body is None else (body, found[1], found[0])

    def worth_hoisting(self, call: ast.Call, source: Source) -> bool:
        """Whether a call inside an expression should stand in a statement of its own."""
        names = Names.of(source, [s.node for s in self._flat.steps])
        if self._calls.is_call(call, names):
            return True
        return self._calls_one_that_holds(call, "call", source) or self._calls_one_that_holds(
            call, "compare", source
        )

    def given_back(self, call: ast.Call, source: Source) -> str:
        """What the function that is called calls its result itself."""
        found = self._function(call.func, source)
        last = found[0].body[-1] if found is not None else None
        name = last.value if isinstance(last, ast.Return) else None
        return name.id if isinstance(name, ast.Name) else "result"

    def fresh(self, wish: str) -> str:
        """A name that nobody has."""
        made, count = wish, 1
        while made in self._used:
            count += 1
            made = f"{wish}_{count}"
        self._used.add(made)
        return made


class _Hoist(ast.NodeTransformer):
    """Takes calls that matter out of an expression, innermost first."""

    def __init__(self, flattener: _Flattener, source: Source, top: ast.expr | None) -> None:
        self._flattener = flattener
        self._source = source
        self._top = top
        self.before: list[ast.stmt] = []

    def visit(self, node: ast.AST) -> ast.AST:
        """Leave scopes of their own alone."""
        if isinstance(node, _STOP):
            return node
        result: ast.AST = super().visit(node)
        return result

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """``f(op(x))`` -> ``result = op(x)``, ``f(result)``."""
        worth = node is not self._top and self._flattener.worth_hoisting(node, self._source)
        self.generic_visit(node)
        if not worth:
            return node
        name = self._flattener.fresh(self._flattener.given_back(node, self._source))
        made = ast.Assign([ast.Name(name, ast.Store())], node)
        self.before.append(ast.fix_missing_locations(ast.copy_location(made, node)))
        return ast.copy_location(ast.Name(name, ast.Load()), node)


def function_of(name: str, source: Source, depth: int = 0) -> tuple[FunctionNode, Source] | None:
    """The function that ``name`` means at the top of ``source``, also by a local import."""
    for statement in source.definitions.get(name, ()):
        for node in ast.walk(statement):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
                return node, source
    imported = source.imports.get(name)
    local = source.local(imported) if imported is not None and depth < _DEPTH else None
    if local is None or local[1] is None:
        return None
    return function_of(local[1], local[0], depth + 1)


def _compares(part: ast.AST) -> bool:
    if isinstance(part, ast.Call):
        return compare.mentions(ast.Call(part.func, [], []))
    return isinstance(part, (ast.Assert, ast.Return)) and compare.mentions(part)


def _walk(node: ast.AST) -> Iterable[ast.AST]:
    """All nodes but those of nested functions, which do nothing until they are called."""
    todo: list[ast.AST] = [node]
    while todo:
        part = todo.pop()
        yield part
        todo.extend(
            child
            for child in ast.iter_child_nodes(part)
            if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        )


def _statement(node: ast.AST) -> list[ast.stmt]:
    return [node] if isinstance(node, ast.stmt) else []


def _same(values: Iterable[ast.expr]) -> list[ast.expr]:
    """Assignments of one name, those that say the same counted once."""
    return list({ast.dump(value): value for value in values}.values())
