"""Which op and scenario of a checkout is meant; where that is not certain, the question."""

from __future__ import annotations

import re
from collections.abc import Iterable

from orchestrator.author.halops.facts import Checkout, Op, Scenario
from orchestrator.author.halops.intent.lexer import folded, tokens
from orchestrator.author.halops.intent.meaning import SHAPES, meaning_of, roles
from orchestrator.author.halops.intent.model import Intent
from orchestrator.author.halops.intent.question import Question
from orchestrator.errors import UsageError
from orchestrator.inventory.spelling import unknown

# What some people call a kind of attention by: narrows where it can, forbids nothing.
_SOFT = frozenset({"gqa", "mha", "mqa", "mtp"})
# Dimensions that make a GEMM's shape; fields of their own are rare.
_IN_SHAPES = frozenset({"m", "n", "k", "max_m", "experts"})


def choose(
    checkout: Checkout, intent: Intent, op: str | None = None, scenario: str | None = None
) -> Scenario | Question:
    """The scenario that is meant, or what to ask.

    Raises ``UsageError`` where ``op`` or ``scenario`` (``--op``, ``--scenario``) is not there.
    """
    if op is not None and op not in checkout.ops:
        raise _missing("op", op, checkout.ops)
    ops = [checkout.ops[op]] if op is not None else list(checkout.ops.values())
    left = [one for each in ops for one in each.scenarios.values()]
    if scenario is not None:
        left = [one for one in left if one.name == scenario]
        if not left:
            raise _missing("scenario", scenario, [n for each in ops for n in each.scenarios])
        return left[0] if len(left) == 1 else _ask(left, left, intent)
    named = _named(left, ops, intent)
    certain = bool(named)
    left = named or left
    for tag in intent.not_tags:
        left = [one for one in left if tag not in _tags(one)] or left
    for tag in intent.tags:
        having = [one for one in left if tag in _tags(one)]
        certain = certain or bool(having)
        if having or tag not in _SOFT:
            left = having or ([] if not named else left)
    if not left:
        return _ask([], [one for each in ops for one in each.scenarios.values()], intent)
    narrowed = [one for one in left if _takes(one, intent)]
    certain = certain or op is not None or len(narrowed) < len(left)
    left = narrowed or left
    if len(left) == 1 and (certain or len(ops) == 1):
        return left[0]
    return _ask(left, left, intent)


def _named(scenarios: list[Scenario], ops: list[Op], intent: Intent) -> list[Scenario]:
    """Those whose own names were said, or whose op's was."""
    said = {folded(word.text) for word in intent.words if not word.negated}
    written = " ".join(token.text for token in tokens(intent.text))
    # A name that is a word of the field says no more than the word: prefill dense is no dense GEMM.
    exact = [
        one for one in scenarios if not _is_tag(one.name) and _is_said(one.name, said, written)
    ]
    if exact:
        return exact
    of_op = {each.name for each in ops if folded(each.name.lower()) in said}
    parts = [one for one in scenarios if said & set(one.name.lower().split("_"))]
    mine = [one for one in scenarios if one.op in of_op]
    both = [one for one in parts if one.op in of_op]
    return both or mine or parts


def _is_tag(name: str) -> bool:
    return [token.kind for token in tokens(name)] == ["tag"]


def _is_said(name: str, said: set[str], written: str) -> bool:
    """Whether the name itself was written, as a name or among words that look like it."""
    whole = re.search(rf"(?<!\w){re.escape(name.lower())}(?!\w)", written)
    return folded(name.lower()) in said or whole is not None


def _tags(scenario: Scenario) -> set[str]:
    """What its own and its op's name say, by meaning."""
    found = {scenario.op}
    for part in (*scenario.name.lower().split("_"), scenario.op.lower(), scenario.name.lower()):
        found.add(part)
        found |= {token.value for token in tokens(part) if token.kind == "tag"}
        if meaning_of(part) in ("chunk", "page"):
            found.add({"chunk": "chunk", "page": "paged"}[str(meaning_of(part))])
    return found


def _takes(scenario: Scenario, intent: Intent) -> bool:
    """Whether it has a field for everything that has a value, and dtypes of the kind that is."""
    have = roles(scenario)
    shaped = SHAPES in have
    if intent.shapes and not shaped:
        return False
    if intent.shapes and have[SHAPES][0].columns:
        lengths = {len(shape) for shape in intent.shapes}
        if len(have[SHAPES][0].columns) not in lengths:
            return False
    for meaning in intent.amounts:
        if meaning in have or (meaning in _IN_SHAPES and shaped):
            continue
        if meaning == "group" and "q_heads" in have:
            continue
        if meaning in ("kv_len", "q_len") and {"kv_len", "q_len"} & set(have):
            continue
        return False
    formats = [one for one in intent.dtypes if one.startswith(("w8a8", "w4a4"))]
    return not formats or shaped


def _missing(kind: str, name: str, known: Iterable[str]) -> UsageError:
    message, hint = unknown(kind, name, list(known))
    return UsageError(message, hint=hint)


def _ask(left: list[Scenario], shown: list[Scenario], intent: Intent) -> Question:
    ops = list(dict.fromkeys(one.op for one in shown))
    names = tuple(dict.fromkeys(one.name for one in shown))
    where = ", ".join(ops)
    if len(names) < len(shown):  # one name in several ops
        text = f"要测哪个 op 的 {names[0]}?" if intent.chinese else f"{names[0]} of which op?"
        return Question("op", text, tuple(ops))
    if not left:
        tags = ", ".join(intent.tags)
        text = (
            f"没有同时符合 {tags} 的场景, 要测哪一个 ({where})?"
            if intent.chinese
            else f"no scenario is all of {tags}; which one is it ({where})?"
        )
    else:
        text = f"要测哪个场景 ({where})?" if intent.chinese else f"which scenario is it ({where})?"
    return Question("scenario", text, names)
