"""The reference: what it is computed from, when, and whether one can follow its steps."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import Hit
from orchestrator.author.check.flow.frames import SELF_DTYPE, Event, Seen
from orchestrator.author.check.flow.trace import traces
from orchestrator.author.check.flow.values import Name, Token, tensors
from orchestrator.author.check.registry import rule
from orchestrator.author.check.source import Source, dotted

_REFERENCE = re.compile(r"ref|gold|expect|naive|native|truth|baseline|torch_", re.IGNORECASE)
_ARITHMETIC = frozenset({"compare:-", "compare:Eq", "compare:NotEq"})


def _comparisons(benchmark: Benchmark) -> Iterator[tuple[Event, Seen, Seen]]:
    """Comparisons of two tensors in ``run_verification``, each place once."""
    if benchmark.runner is None:
        return
    seen: set[ast.AST] = set()
    for event in traces(benchmark.runner).verification.of("verify"):
        out, ref = event.compared
        if out is not None and ref is not None and event.node not in seen:
            seen.add(event.node)
            yield event, out, ref


def _name(seen: Seen) -> str:
    return seen.tensor.storage.name or "the output"


@rule(
    "output-with-itself",
    "error",
    why="A tensor always equals itself: the check passes whatever the operator computed.",
    fix="compare with a reference that is computed from the inputs",
)
def output_with_itself(benchmark: Benchmark) -> Iterator[Hit]:
    """An output is compared with itself, or with a view of its own memory."""
    for event, out, ref in _comparisons(benchmark):
        if _same(out, ref) and not _asks_for_nan(event.node):
            assert benchmark.runner is not None
            message = f"{_name(out)} is compared with itself"
            yield Hit(benchmark.runner.source.at(event.node), message)


def _asks_for_nan(node: ast.AST) -> bool:
    """``x != x``, or ``x == x``: whether there is a NaN in it."""
    if not isinstance(node, ast.Compare):
        return False
    return ast.dump(node.left) == ast.dump(node.comparators[0])


def _same(out: Seen, ref: Seen) -> bool:
    if out.tensor.storage is not ref.tensor.storage:
        return False
    # Two pieces of one tensor may be different ones.
    one, other = out.tensor.part, ref.tensor.part
    return one == other or None in (one, other)


@rule(
    "output-with-its-clone",
    "error",
    why="What is taken from the output after the call agrees with it, whatever it is.",
    fix="compute the reference from the inputs, and clone what is changed in place before the call",
)
def output_with_its_clone(benchmark: Benchmark) -> Iterator[Hit]:
    """An output is compared with a copy of itself, or with what was computed from it alone."""
    for event, out, ref in _comparisons(benchmark):
        for one, other in ((out, ref), (ref, out)):
            what = _taken_from(one, other, event.name in _ARITHMETIC)
            if what is not None and not _same(out, ref):
                assert benchmark.runner is not None
                at = benchmark.runner.source.at(event.node)
                yield Hit(at, f"{_name(one)} is compared with {what}")
                break


def _present(seen: Seen) -> Token | None:
    """The output's content at the comparison; None where no operator has written it."""
    storage = seen.tensor.storage
    if seen.version or storage.kind == "result":
        return Token(storage, seen.version)
    # A copy of the output, a float one say, stands for it.
    return seen.copy_of if seen.copy_of and _written(seen.copy_of) else None


def _written(token: Token) -> bool:
    return token.version > 0 or token.storage.kind == "result"


def _taken_from(out: Seen, ref: Seen, arithmetic: bool) -> str | None:
    present = _present(out)
    if present is None or present.storage is ref.tensor.storage:
        # ``out.float()`` against ``out``.
        own = present is not None and out.tensor.storage is not ref.tensor.storage
        return "a copy of itself" if own and out.copy_of == _present(ref) else None
    if ref.copy_of == present:
        return "a copy of itself"
    by = ref.tensor.storage.by or ""
    in_place = present.storage.has_data()  # see ``reference_after_call``
    if not arithmetic and not in_place and ref.content == {present} and _REFERENCE.search(by):
        return f"what {by}() computes from it alone"
    return None


@rule(
    "reference-after-call",
    "error",
    why="The operator has overwritten its input: the reference starts from the wrong numbers.",
    fix="compute the reference, or clone the input, before the call",
)
def reference_after_call(benchmark: Benchmark) -> Iterator[Hit]:
    """The reference of an operator that works in place is computed from what it has overwritten."""
    told: set[ast.AST] = set()
    for event, *both in _comparisons(benchmark):
        for out, ref in (both, reversed(both)):
            if event.name in _ARITHMETIC or not _after(out, ref):
                continue
            assert benchmark.runner is not None
            place = ref.tensor.storage.came_by or event.node
            if place not in told:
                told.add(place)
                message = f"the reference is computed from {_name(out)} after the call changed it"
                yield Hit(benchmark.runner.source.at(place), message)


def _after(out: Seen, ref: Seen) -> bool:
    """Whether ``ref`` is computed from what an operator has left in ``out``.

    What is no reference function's may be a property of the output: ``out.clamp(0, 1)``.
    """
    present = _present(out)
    if present is None or present.version == 0 or not present.storage.has_data():
        return False
    own = out.tensor.storage is ref.tensor.storage or ref.copy_of == present
    computed = len(ref.content) > 1 or _REFERENCE.search(ref.tensor.storage.by or "") is not None
    return not own and present in ref.content and computed


@rule(
    "reference-is-operator",
    "error",
    why="An operator that is compared with itself agrees, whatever it computes.",
    fix="compute the reference with torch, step by step",
)
def reference_is_operator(benchmark: Benchmark) -> Iterator[Hit]:
    """What is expected comes from another call of the operator under test."""
    runner = benchmark.runner
    if runner is None:
        return
    calls = [
        event
        for event in traces(runner).verification.of("verify")
        if event.operator and not event.name.startswith(("def:", "torch.nn.", "torch.matmul"))
    ]
    told: set[ast.AST] = set()
    for event, out, ref in _comparisons(benchmark):
        for made in _other_calls(out, ref, calls):
            if made.node not in told and event.name not in _ARITHMETIC:
                told.add(made.node)
                yield Hit(runner.source.at(made.node), f"the reference calls {made.name} itself")


def _other_calls(out: Seen, ref: Seen, calls: list[Event]) -> Iterator[Event]:
    """Calls that made ``ref``, of the operator that made ``out`` by another call."""
    mine = _made_by(_origins(out), calls)
    theirs = _made_by(_origins(ref), calls)
    for one, place in theirs:
        alike = [(e, p) for e, p in mine if e.name == one.name and p == place]
        # Not what both calls were given: weights, say.
        if alike and all(e is not one for e, _ in mine):
            yield one


def _origins(seen: Seen) -> set[Token]:
    own = {Token(seen.tensor.storage, seen.version)}
    found = {*own, *seen.content, *({seen.copy_of} if seen.copy_of else ())}
    return {token for token in found if _written(token)}


def _made_by(origins: set[Token], calls: list[Event]) -> list[tuple[Event, int | str]]:
    """Calls that one of these tensors came from, and at which place it was given."""
    storages = {token.storage for token in origins}
    found: list[tuple[Event, int | str]] = []
    for event in calls:
        returned = tensors(event.result) if event.result is not None else []
        if {tensor.storage for tensor in returned} & storages:
            found.append((event, "result"))
        for number, value in enumerate(event.args):
            if {tensor.storage for tensor in tensors(value)} & storages:
                found.append((event, number))
    return found


# Steps.

_UNPACKS = re.compile(r"unpack", re.IGNORECASE)
_MULTIPLIES = frozenset(
    {"matmul", "mm", "bmm", "addmm", "linear", "einsum", "mv", "dot", "tensordot"}
)


@rule(
    "one-line-reference",
    "error",
    why="Of a reference that unpacks, dequantises and multiplies at once nobody can see which step "
    "is wrong.",
    fix="take one step a line: unpack, dequantise, multiply",
)
def one_line_reference(benchmark: Benchmark) -> Iterator[Hit]:
    """One expression unpacks bits, dequantises and multiplies matrices."""
    runner = benchmark.runner
    if runner is None:
        return
    for product in _products(runner.source):
        if _dequantises(product):
            message = "unpacks, dequantises and multiplies in one expression"
            yield Hit(runner.source.at(product), message)


def _products(source: Source) -> Iterator[ast.expr]:
    """The matrix products, of nested ones the outermost."""
    found: list[ast.expr] = [n for n in source.walk(ast.BinOp) if isinstance(n.op, ast.MatMult)]
    for call in source.walk(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in _MULTIPLIES:
            found.append(call)
    for node in found:
        if not any(outer in found for outer in source.ancestors(node)):
            yield node


def _dequantises(product: ast.expr) -> bool:
    """Whether what is multiplied is unpacked and scaled right there."""
    for node in ast.walk(product):
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Mult | ast.Sub)
            and not _index(product, node)
            and any(_unpacks(inner) for inner in ast.walk(node))
        ):
            return True
    return False


def _index(within: ast.AST, node: ast.AST) -> bool:
    """Whether ``node`` is part of an index."""
    return any(
        node in ast.walk(sub.slice) for sub in ast.walk(within) if isinstance(sub, ast.Subscript)
    )


def _unpacks(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        # A mask of bits, not one of booleans.
        bits = [n.value for n in (node.left, node.right) if isinstance(n, ast.Constant)]
        masked = isinstance(node.op, ast.BitAnd) and any(type(n) is int and n > 2 for n in bits)
        return masked or isinstance(node.op, ast.RShift)
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).rpartition(".")[2]
        return name in ("bitwise_and", "bitwise_right_shift") or bool(_UNPACKS.search(name))
    return False


# Layouts.


@rule(
    "value-cache-layout",
    "error",
    why="value_cache is [num_blocks, num_kv_heads, head_size, block_size]: the offset comes last.",
    fix="write value_cache[block, head, :, offset], or value_cache[block, :, :, offset]",
)
def value_cache_layout(benchmark: Benchmark) -> Iterator[Hit]:
    """The reference of paged attention takes a value at the wrong axis of ``value_cache``."""
    runner = benchmark.runner
    if runner is None or not benchmark.name.startswith("paged_attention"):
        return
    for node in runner.source.walk(ast.Subscript):
        if not isinstance(node.ctx, ast.Load) or not (dotted(node.value) or "").endswith(
            "value_cache"
        ):
            continue
        axes = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
        offsets = [
            i for i, axis in enumerate(axes) if isinstance(axis, ast.Name) and "offset" in axis.id
        ]
        if offsets and offsets[0] != 3 and not any(_ellipsis(axis) for axis in axes):
            message = f"the offset is axis {offsets[0]} of value_cache here, where it is axis 3"
            yield Hit(runner.source.at(node), message)


def _ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


@rule(
    "rotary-cache-dtype",
    "error",
    why="The kernel reads cos_sin_cache as the dtype of query: another one is read as rubbish.",
    fix="make it of the query's dtype: cos_sin_cache.to(self.dtype)",
)
def rotary_cache_dtype(benchmark: Benchmark) -> Iterator[Hit]:
    """``cos_sin_cache`` of rotary_embedding has another dtype than the query."""
    runner = benchmark.runner
    if runner is None or not benchmark.name.endswith("rotary_embedding"):
        return
    for event in traces(runner).setup.of("launch"):
        if not event.operator:
            continue
        given = tensors([*event.args, *event.kwargs.values()])
        by_name = {t.storage.name: t.storage for t in given}
        query, cache = by_name.get("query"), by_name.get("cos_sin_cache")
        if query is None or cache is None or query.dtype != SELF_DTYPE:
            continue
        if isinstance(cache.dtype, Name) and cache.dtype.path.startswith("torch.float"):
            theirs = {f"torch.{v}" for v in benchmark.config.values("dtype")}
            if theirs and theirs != {cache.dtype.path}:
                message = f"cos_sin_cache is {cache.dtype.path}, the query of the config's dtype"
                yield Hit(runner.source.at(cache.node), message)
