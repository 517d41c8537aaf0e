"""Node sets: ``c500-[01-08]``, ``@group``, and the algebra over them.

ClusterShell expands and folds ranges. Operators and groups are evaluated here, because an operand
of ours may be ``host:container``, groups come from the inventory only (never from the machine's
own ClusterShell configuration), and a range is counted before it is expanded.

Operators as in ClusterShell, from left to right without precedence: ``,`` union, ``&``
intersection, ``!`` difference, ``^`` symmetric difference. A leading ``!`` starts from everything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from orchestrator.inventory.spelling import short

MAX_NODES = 20_000
ALL = frozenset({"all", "*"})  # groups that always exist

_OPERATORS = ",&!^"
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?:/([0-9]{1,9}))?)?")

T = TypeVar("T")


class NodeSetError(ValueError):
    """A node set cannot be read; the text is one sentence without the place."""


def split(pattern: str) -> list[tuple[str, str]]:
    """The operands of a pattern with the operator before each; the first one's is ``,``."""
    operands: list[tuple[str, str]] = []
    operator, start, depth = ",", 0, 0
    text = pattern.strip()
    if text.startswith("!"):
        operator, text = "!", text[1:]
    for index, char in enumerate(text + ","):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        if depth not in (0, 1):
            raise NodeSetError(f'the brackets of "{short(pattern)}" do not match')
        if index == len(text) and depth:
            raise NodeSetError(f'a bracket of "{short(pattern)}" is never closed')
        if depth or char not in _OPERATORS:
            continue
        operand = text[start:index].strip()
        if not operand:
            raise NodeSetError(f'a name is missing beside an operator of "{short(pattern)}"')
        if any(space in operand for space in " \t\r\n"):
            raise NodeSetError(
                f'"{short(operand)}" holds a space, names are separated with a comma'
            )
        operands.append((operator, operand))
        operator, start = char, index + 1
    return operands


def evaluate(pattern: str, operand: Callable[[str], set[T]], everything: set[T]) -> set[T]:
    """The set that a pattern means; ``operand`` gives the set of a single operand."""
    result: set[T] = set()
    for index, (operator, text) in enumerate(split(pattern)):
        members = operand(text)
        if operator == "!":
            result = (everything if index == 0 else result) - members
        elif operator == "&":
            result = result & members
        elif operator == "^":
            result = result ^ members
        else:
            result = result | members
    return result


def expand(name: str) -> list[str]:
    """All names that a single operand without operators stands for, in order.

    Raises NodeSetError for what is no range, or for more than MAX_NODES names.
    """
    if "[" not in name and "]" not in name:
        return [name]
    if count(name) > MAX_NODES:
        raise NodeSetError(f'"{short(name)}" stands for more than {MAX_NODES} names')
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        return [str(node) for node in NodeSet(name, resolver=RESOLVER_NOGROUP)]
    except (NodeSetException, ValueError) as error:
        raise NodeSetError(f'"{short(name)}" is not a range: {error}') from None


def count(name: str) -> int:
    """How many names an operand stands for, at most, without expanding it."""
    total = 1
    for inner in _BRACKETS.findall(name):
        sizes = 0
        for part in inner.split(","):
            match = _RANGE.fullmatch(part.strip())
            if match is None:
                raise NodeSetError(f'"[{short(inner)}]" is not a range, write it as [01-08,12]')
            first, last, step = match.group(1), match.group(2) or match.group(1), match.group(3)
            sizes += max(0, int(last) - int(first)) // max(1, int(step or 1)) + 1
        total *= sizes
        if total > MAX_NODES:
            break
    return total


def fold(names: Iterable[str]) -> list[str]:
    """Names folded into ranges: the fewest operands that expand to exactly the same names."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    wanted = sorted(set(names))
    folded = str(NodeSet.fromlist(wanted, resolver=RESOLVER_NOGROUP))
    parts = [text for _, text in split(folded)] if folded else []
    back = [name for part in parts for name in expand(part)]
    return parts if sorted(back) == wanted else wanted
