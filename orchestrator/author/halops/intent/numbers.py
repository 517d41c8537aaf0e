"""Numbers behind a word: lists 1/16/64, ranges 4k to 64k, and where a list ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.author.halops.intent.lexer import Token
from orchestrator.author.halops.intent.lexicon import COUNTED

# Ranges of these go up by one; all others double, as sweeps of lengths and batches do.
_BY_ONE = frozenset({"mtp"})
_MOST = 64  # values in one range: more is a slip of the pen, no sweep


@dataclass(frozen=True)
class Numbers:
    """Values from ``tokens[start:end]``; ``unclear`` where the range means nothing."""

    values: tuple[int, ...]
    end: int
    unclear: str | None = None
    told: str | None = None


def take(tokens: Sequence[Token], start: int, meaning: str) -> Numbers | None:
    """The numbers that begin at ``start``, None where there is none.

    A number that stands right before a word which counts (``16, 64 q heads``) is that word's.
    """
    at = start
    values: list[int] = []
    unclear = told = None
    while at < len(tokens):
        token = tokens[at]
        if token.kind == "list":
            values += token.numbers
            at += 1
        elif token.kind == "number":
            if values and is_for_next(tokens, at):
                break
            spread = _range(tokens, at, meaning)
            values += spread.values
            unclear = unclear or spread.unclear
            told = told or spread.told
            at = spread.end
        elif (
            token.kind in ("sep", "comma", "and")
            and values
            and at + 1 < len(tokens)
            and tokens[at + 1].kind == "number"
            and not (token.kind != "sep" and is_for_next(tokens, at + 1))
        ):
            at += 1
        else:
            break
    if at == start:
        return None
    return Numbers(tuple(dict.fromkeys(values)), at, unclear, told)


def follows(tokens: Sequence[Token], at: int) -> bool:
    """Whether the word before ``at`` has its number there: ``kv heads = 8``."""
    at = skip(tokens, at)
    return at < len(tokens) and tokens[at].kind in ("number", "list")


def skip(tokens: Sequence[Token], at: int) -> int:
    """Past words that only join a word with its number."""
    while at < len(tokens) and tokens[at].kind in ("is", "colon", "filler", "each"):
        at += 1
    return at


def is_for_next(tokens: Sequence[Token], at: int) -> bool:
    """Whether the number (or range) at ``at`` stands before a word that has no other number."""
    end = at + 1
    if end + 1 < len(tokens) and tokens[end].kind == "to" and tokens[end + 1].kind == "number":
        end += 2
    while end < len(tokens) and tokens[end].kind == "filler":
        end += 1
    if end >= len(tokens) or tokens[end].kind not in ("amount", "cache"):
        return False
    return not follows(tokens, end + 1) or (
        tokens[end].value in COUNTED and _counted_next(tokens, end + 1)
    )


def _counted_next(tokens: Sequence[Token], at: int) -> bool:
    """Whether the number behind a counting word is the next counting word's."""
    at = skip(tokens, at)
    return at < len(tokens) and tokens[at].kind == "number" and is_for_next(tokens, at)


def _range(tokens: Sequence[Token], at: int, meaning: str) -> Numbers:
    """One number, or a range with its step: doubling, where nothing else is said."""
    first = tokens[at].numbers[0]
    is_range = (
        at + 2 < len(tokens) and tokens[at + 1].kind == "to" and tokens[at + 2].kind == "number"
    )
    if not is_range:
        return Numbers((first,), at + 1)
    last, end = tokens[at + 2].numbers[0], at + 3
    shown = f"{tokens[at].text} to {tokens[at + 2].text}"
    # "4-64k" means thousands at both ends.
    if tokens[at].text.isdigit() and tokens[at + 2].text.endswith("k") and 0 < first < 1024:
        return Numbers((), end, f"{shown}: is the first one {first} or {first}k?")
    step = end
    while step < len(tokens) and tokens[step].kind in ("comma", "filler", "is"):
        step += 1
    if step < len(tokens) and tokens[step].kind == "step":
        value = skip(tokens, step + 1)
        if value < len(tokens) and tokens[value].kind == "number" and tokens[value].numbers[0] > 0:
            size = tokens[value].numbers[0]
            return _checked(tuple(range(first, last + 1, size)), value + 1, shown)
    if meaning in _BY_ONE:
        return _checked(tuple(range(first, last + 1)), end, shown)
    if first < 1 or last < first:
        return Numbers((), end, f"{shown}: a doubling range starts at 1 or above and goes up")
    values = [first]
    while values[-1] * 2 <= last:
        values.append(values[-1] * 2)
    if values[-1] == last:
        return _checked(tuple(values), end, shown)
    told = f"{shown} does not double to its end, {last} is added as the last value"
    return Numbers((*values, last), end, told=told)


def _checked(values: tuple[int, ...], end: int, shown: str) -> Numbers:
    if not values or len(values) > _MOST:
        return Numbers((), end, f"{shown}: that is {len(values)} values, give them one by one")
    return Numbers(values, end)
