"""One call held against one operator's schema, as torch would when the call is made."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.author.facts import Argument, Operator
from orchestrator.inventory.spelling import near, short

Kind = Literal["missing", "many", "unknown", "kind", "swapped"]
_NUMBERS = {"int", "SymInt", "float", "bool", "Scalar"}


@dataclass(frozen=True)
class Dtype:
    """A torch dtype as the runner spells it."""

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Passed:
    """One value that is passed: where, the name of its variable, the values that it may have.

    ``values`` is empty when they cannot be told.
    """

    node: ast.AST
    name: str | None = None
    values: Sequence[Any] = ()


@dataclass(frozen=True)
class Given:
    """What a call passes; ``complete``: nothing else, so that what is not here is missing."""

    node: ast.AST
    positional: Sequence[Passed]
    keywords: Mapping[str, Passed]
    complete: bool


@dataclass(frozen=True)
class Mismatch:
    """What a call gets wrong; ``node`` is the argument at fault, else the call."""

    kind: Kind
    node: ast.AST
    message: str
    fix: str


def mismatches(call: Given, operator: Operator) -> list[Mismatch]:
    """What ``call`` gets wrong about ``operator``; empty also where it cannot be told."""
    positional = [one for one in operator.arguments if not one.keyword_only]
    told = f"the operator is {signature(operator)}"
    if len(call.positional) > len(positional):
        given, most = len(call.positional), len(positional)
        message = f"expected at most {most} argument(s) but received {given}"
        return [Mismatch("many", call.positional[most].node, message, told)]
    found = _unknown(call, operator, told)
    given_names = {one.name for one in positional[: len(call.positional)]}
    for name, passed in call.keywords.items():
        if name in given_names:
            message = f"argument '{name}' is given by position and by name"
            found.append(Mismatch("unknown", passed.node, message, told))
    if call.complete:
        found += _missing(call, operator, given_names, told)
    pairs = list(zip(positional, call.positional, strict=False))
    by_name = {one.name: one for one in operator.arguments}
    pairs += [(by_name[name], one) for name, one in call.keywords.items() if name in by_name]
    for argument, passed in pairs:
        for value in passed.values:
            wanted = _wanted(argument, value)
            if wanted is not None:
                message = f"{_shown(value)} for argument '{argument.name}', which is {wanted}"
                found.append(Mismatch("kind", passed.node, message, told))
                break
    return found + _swapped(call, positional, told)


def _unknown(call: Given, operator: Operator, told: str) -> list[Mismatch]:
    names = [one.name for one in operator.arguments]
    found = []
    for name, passed in call.keywords.items():
        if name not in names:
            guess = near(name, names)
            fix = f"did you mean '{guess}'?" if guess else told
            message = f"unknown keyword argument '{short(name)}'"
            found.append(Mismatch("unknown", passed.node, message, fix))
    return found


def _missing(call: Given, operator: Operator, given: set[str], told: str) -> list[Mismatch]:
    names = [
        one.name
        for one in operator.arguments
        if one.default is None and one.name not in given and one.name not in call.keywords
    ]
    if not names:
        return []
    message = f"missing value for argument {', '.join(repr(name) for name in names)}"
    return [Mismatch("missing", call.node, message, told)]


def _wanted(argument: Argument, value: Any) -> str | None:
    """What the argument wants instead of ``value``; None when it may have it."""
    kind = argument.type.removesuffix("?")
    if isinstance(value, Dtype):
        takes_none = kind in ("Tensor", "str", "bool") or kind.endswith("]")
        return f"a {kind}" if takes_none else None
    if value is None:
        known = kind in _NUMBERS | {"Tensor", "str"} or kind.endswith("]")
        return f"a {kind} and not optional" if known and not argument.optional else None
    if isinstance(value, str):
        return f"a {kind}" if kind in _NUMBERS | {"Tensor"} or kind.endswith("]") else None
    if isinstance(value, float) and kind in ("int", "SymInt"):
        return "an int"
    if isinstance(value, int | float) and (kind in ("Tensor", "str") or kind.startswith("Tensor")):
        return f"a {kind}"
    if isinstance(value, tuple | list) and kind in _NUMBERS | {"Tensor", "str"}:
        return f"a {kind}"
    return None


def _shown(value: Any) -> str:
    return short(repr(value), 30)


def _swapped(call: Given, positional: Sequence[Argument], told: str) -> list[Mismatch]:
    """Arguments whose variables are called exactly as each other's arguments, in a circle."""
    place = {one.name: number for number, one in enumerate(positional)}
    goes: dict[int, int] = {}
    for number, passed in enumerate(call.positional):
        if passed.name is not None and place.get(passed.name, number) != number:
            goes[number] = place[passed.name]
    done: set[int] = set()
    found = []
    for start in goes:
        circle = [start]
        while goes.get(circle[-1]) is not None and goes[circle[-1]] not in circle:
            circle.append(goes[circle[-1]])
        if goes.get(circle[-1]) != start or start in done:
            continue
        done |= set(circle)
        at = min(circle)
        names = ", ".join(f"'{call.positional[n].name}'" for n in sorted(circle))
        wanted = ", ".join(f"'{positional[n].name}'" for n in sorted(circle))
        message = f"{names} are passed for arguments {wanted}"
        found.append(Mismatch("swapped", call.positional[at].node, message, told))
    return found


def signature(operator: Operator) -> str:
    """``silu_and_mul(out, input)`` and where it was read."""
    words, starred = [], False
    for one in operator.arguments:
        if one.keyword_only and not starred:
            words.append("*")
            starred = True
        words.append(one.name if one.default is None else f"{one.name}={one.default}")
    place = f" ({operator.sources[0]})" if operator.sources else ""
    return f"{operator.name}({', '.join(words)}){place}"
