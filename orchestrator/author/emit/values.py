"""Which values a benchmark runs with: chosen among those of the unit test, worth measuring.

Sizes are the largest that the test uses and that kernels like (a multiple of 16); a count of
tokens or rows, where it is nothing but a length, is at least what the working description's
template has. What only steers, a block size or a flag, is as the test has it first. Values that
belong together stay together, and none is chosen that the test skips.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.author.emit import code, literal
from orchestrator.author.facts import Operator, Parameter, Trial

LEAST_ROWS = 4096
# Names of what may be as long as one likes.
_ROWS = re.compile(r"(num_|n_|total_)?(tokens|rows)|m", re.I)
# Names of what is a choice of the kernel's, not a size.
_STRUCTURE = re.compile(
    r".*(block|group|page|chunk|tile)_?size|bits?|pack_factor|next_n|.*_version"
)
_HEAD = re.compile(r"head_(size|dim)|.*_head_(size|dim)")
_USUAL_HEAD = 128
_MOST_COMBINATIONS = 4096
_MOST_ELEMENTS = 2**30
_FACTORIES = (
    *("empty", "zeros", "ones", "full", "rand", "randn", "randint", "randperm", "arange", "normal"),
    *("new_empty", "new_zeros", "new_ones", "new_full", "view", "reshape", "expand"),
)
_DTYPES = ("bfloat16", "float16", "float32")


@dataclass(frozen=True)
class Choice:
    """The value of one parameter of the test.

    ``value``: what ``literal.value_of`` makes of it. ``why``: what was concluded rather than read.
    """

    parameter: Parameter
    value: Any
    why: str | None = None


def choose(trial: Trial, operator: Operator) -> dict[str, Choice]:
    """A value for each parameter of the test that one can be told for."""
    known = {p.name: p for p in trial.parameters}
    groups = _groups(trial.parameters)
    dtypes = _dtype_order(trial, operator)
    extras = _extras(trial, operator)
    candidates = [list(_candidates(group, known, dtypes, extras)) for group in groups]
    fallback: dict[str, Any] | None = None
    best: dict[str, Any] | None = None
    combinations = itertools.islice(_by_preference(candidates), _MOST_COMBINATIONS)
    for combination in combinations:
        values = {name: value for one in combination for name, value in one.items()}
        fallback = fallback or values
        if not any(literal.holds(condition, values) for condition in trial.skips):
            best = values
            break
    values = best or fallback or {}
    choices = {name: Choice(known[name], value) for name, value in values.items()}
    return _raised(choices, trial)


def _groups(parameters: Sequence[Parameter]) -> list[list[str]]:
    """Names of parameters, those that vary together in one list."""
    found: dict[str, list[str]] = {}
    for one in parameters:
        alike = next((found[name] for name in one.together if name in found), [])
        alike.append(one.name)
        found[one.name] = alike
    return [group for name, group in found.items() if group[0] == name]


def _candidates(
    group: Sequence[str],
    known: Mapping[str, Parameter],
    dtypes: Sequence[str],
    extras: Collection[str],
) -> Iterator[dict[str, Any]]:
    """Values of the parameters of one group, the best first."""
    rows = []
    for index, row in enumerate(zip(*(known[name].values for name in group), strict=False)):
        values = {}
        for name, text in zip(group, row, strict=True):
            try:
                values[name] = literal.value_of(text)
            except literal.NotLiteral:
                break
        else:
            with_extras = sum(bool(values.get(name)) for name in extras)
            rows.append(((*_rank(values, known, dtypes), with_extras), index, values))
    for _, _, values in sorted(rows, key=lambda row: row[:2]):
        yield values


def _extras(trial: Trial, operator: Operator) -> set[str]:
    """Flags that only decide whether an optional argument is given: timed is the plain call."""
    optional = {
        trial.arguments[one.name]
        for one in operator.arguments
        if one.optional and not one.mutated and one.name in trial.arguments
    }
    found = set()
    for text in trial.prepare:
        if not optional & set(code.binds(text)):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.If, ast.IfExp)) and isinstance(node.test, ast.Name):
                found.add(node.test.id)
    return found


def _rank(
    values: Mapping[str, Any], known: Mapping[str, Parameter], dtypes: Sequence[str]
) -> tuple[float, ...]:
    """Smaller is better: dtypes first, then sizes that are multiples, then large ones."""
    dtype, odd, size = 0, 0, 1.0
    for name, value in values.items():
        if known[name].kind == "dtype" or str(value) in _DTYPES:
            short = dtype_name(value)
            dtype += dtypes.index(short) if short in dtypes else len(dtypes)
        for number in value if isinstance(value, tuple) else (value,):
            if not isinstance(number, int) or isinstance(number, bool):
                continue
            if _STRUCTURE.fullmatch(name):
                continue
            if _HEAD.fullmatch(name):
                size /= 1 + abs(number - _USUAL_HEAD)
            else:
                # Odd sizes are there to find faults, save lengths; small numbers count something.
                odd += number > 16 and number % 16 != 0 and not _ROWS.fullmatch(name)
                size *= max(abs(number), 1)
    if any(isinstance(v, str) and v == "auto" for v in values.values()):
        odd -= 1
    return (dtype, odd, -size)


def _by_preference(candidates: Sequence[Sequence[dict[str, Any]]]) -> Iterator[Any]:
    """Combinations, those of the best candidates first."""
    if any(not one for one in candidates):
        candidates = [one for one in candidates if one]
    most = sum(len(one) - 1 for one in candidates)
    for distance in range(most + 1):
        yield from _at_distance(candidates, distance)


def _at_distance(candidates: Sequence[Sequence[dict[str, Any]]], distance: int) -> Iterator[Any]:
    if not candidates:
        if distance == 0:
            yield ()
        return
    *others, last = candidates
    for index in range(min(distance, len(last) - 1) + 1):
        for rest in _at_distance(others, distance - index):
            yield (*rest, last[index])


def dtype_name(value: Any) -> str:
    """The name of a dtype without its module."""
    text = value.text if isinstance(value, literal.Code) else str(value)
    return text.removeprefix("torch.")


def _dtype_order(trial: Trial, operator: Operator) -> list[str]:
    """Names of dtypes, those to be preferred first; what the operator refuses is not among them."""
    order = list(_DTYPES)
    if any(one.how == "unordered" for one in trial.outputs) or "topk" in operator.name:
        # Coarse numbers are often equal, and which of equal ones comes first is anybody's choice.
        order = ["float32", "bfloat16", "float16"]
    allowed = [dtype for dtype in order if dtype in operator.dtypes]
    # Without one of them the source only speaks of indices.
    return [*allowed, *(d for d in operator.dtypes if d not in allowed)] if allowed else order


# Lengths.


def _raised(choices: Mapping[str, Choice], trial: Trial) -> dict[str, Choice]:
    """The choices, with lengths that are too short to be worth measuring made longer."""
    found = dict(choices)
    every = [*trial.prepare, *trial.reference, *trial.after]
    for name, choice in choices.items():
        short = isinstance(choice.value, int) and 1 < choice.value < LEAST_ROWS
        if not short or not _ROWS.fullmatch(name) or not only_a_length(name, every, trial):
            continue
        why = f"the unit test has at most {choice.value}"
        raised = {**found, name: Choice(choice.parameter, LEAST_ROWS, why)}
        values = {key: one.value for key, one in raised.items()}
        if any(literal.holds(skip, values) for skip in trial.skips):
            continue
        if largest(trial.prepare, values) <= _MOST_ELEMENTS:
            found = raised
    return found


def only_a_length(name: str, statements: Sequence[str], trial: Trial) -> bool:
    """Whether a parameter is used for nothing but lengths of tensors."""
    if any(name in code.reads(skip) for skip in trial.skips):
        return False
    if any(name in code.reads(text) for text in trial.arguments.values()):
        return False
    for text in statements:
        for node, parents in _walk(ast.parse(text)):
            if isinstance(node, ast.Name) and node.id == name and not _in_factory(parents):
                return False
    return True


def _walk(tree: ast.AST) -> Iterator[tuple[ast.AST, list[ast.AST]]]:
    todo: list[tuple[ast.AST, list[ast.AST]]] = [(tree, [])]
    while todo:
        node, parents = todo.pop()
        yield node, parents
        todo += [(child, [*parents, node]) for child in ast.iter_child_nodes(node)]


def _in_factory(parents: Sequence[ast.AST]) -> bool:
    """Whether a name stands as a dimension of a tensor, by itself or times a number."""
    for parent in reversed(parents):
        if isinstance(parent, ast.Call):
            return _called(parent) in _FACTORIES
        if not isinstance(parent, (ast.Tuple, ast.List, ast.BinOp)):
            return False
    return False


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def largest(statements: Sequence[str], values: Mapping[str, Any]) -> float:
    """Elements of the largest tensor that the statements make, as far as that can be told."""
    most = 0.0
    names = dict(values)
    for text in statements:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and _called(node) in _FACTORIES:
                sizes = []
                for argument in _dimensions(node):
                    try:
                        size = literal.value_of(ast.unparse(argument), names)
                    except literal.NotLiteral:
                        size = 1
                    sizes.append(size if isinstance(size, (int, float)) else 1)
                most = max(most, math.prod(sizes, start=1.0))
        _remember(text, names)
    return most


def _dimensions(call: ast.Call) -> Sequence[ast.expr]:
    """The sizes that a factory is given, one by one or in a tuple."""
    first = call.args[0] if call.args else None
    return first.elts if isinstance(first, (ast.Tuple, ast.List)) else call.args


def _remember(text: str, names: dict[str, Any]) -> None:
    """Take in what a plain assignment makes, where it can be told."""
    for node in code.parsed(text):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                names[node.targets[0].id] = literal.value_of(ast.unparse(node.value), names)
            except literal.NotLiteral:
                names.pop(node.targets[0].id, None)
