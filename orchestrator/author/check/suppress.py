"""``# mxfleet: ignore[rule-id] reason``: what a runner's author has decided to live with."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.finding import At, Finding, Hit
from orchestrator.author.check.registry import RULES, Rule, register_own
from orchestrator.author.check.tree import CheckedTree
from orchestrator.inventory.spelling import near, short

_MOST = 1000  # comments of a file; beyond that somebody plays
_MARK = re.compile(
    r"#\s*mxfleet:\s*ignore\b(?:\[(?P<rules>[^\]\n]*)\])?[ \t:-]*(?P<reason>[^#\n]*)"
)


def _nothing(subject: object) -> tuple[Hit, ...]:
    """The comments are looked at when all else is found."""
    return ()


def _own(identifier: str, severity: str, what: str, why: str, fix: str) -> Rule:
    return register_own(
        Rule(
            identifier,
            "error" if severity == "error" else "warning",
            "benchmark",
            why,
            fix,
            _nothing,
            what,
            silent=True,
        )
    )


_MALFORMED = _own(
    "ignore-form",
    "error",
    "An ignore comment names no rule, an unknown one, or gives no reason.",
    "A comment that silences must say what and why, or nobody can tell whether it still holds.",
    "write # mxfleet: ignore[rule-id] and the reason behind it",
)
_UNUSED = _own(
    "unused-ignore",
    "warning",
    "An ignore comment silences nothing.",
    "What it once silenced is gone, and it would hide the next one of its kind.",
    "remove the comment",
)


@dataclass
class _Ignore:
    at: At
    rules: tuple[str, ...]
    reason: str
    lines: frozenset[int]  # where it silences
    used: set[str] = field(default_factory=set)


def apply(benchmark: Benchmark, findings: Sequence[Finding]) -> list[Finding]:
    """``findings`` without the silenced ones, with those about the comments themselves."""
    if benchmark.runner is None:
        return list(findings)
    source = benchmark.runner.source
    asked = {r.id for r in RULES.values() if r.needs is None or benchmark.tree.sourced}
    return _apply(source.text, source.shown, findings, asked, benchmark.name)


def in_text(tree: CheckedTree, findings: Sequence[Finding]) -> list[Finding]:
    """As ``apply``, for what was found in the front door."""
    return _apply(tree.script_text, tree.shown(tree.script), findings, set(RULES), None)


def _apply(
    text: str, shown: str, findings: Sequence[Finding], asked: set[str], operator: str | None
) -> list[Finding]:
    ignores = list(islice(_ignores(text, shown), _MOST))
    kept = [one for one in findings if not _silences(ignores, one, shown)]
    return kept + [rule.finding(hit, operator) for rule, hit in _complaints(ignores, asked)]


def _silences(ignores: Sequence[_Ignore], finding: Finding, shown: str) -> bool:
    if RULES[finding.rule].silent:
        return False
    places = set(finding.anchors)
    if finding.at.path == shown:
        places.add(finding.at.line)
    for ignore in ignores:
        if finding.rule in ignore.rules and ignore.reason and places & ignore.lines:
            ignore.used.add(finding.rule)
            return True
    return False


def _complaints(ignores: Sequence[_Ignore], asked: set[str]) -> Iterator[tuple[Rule, Hit]]:
    known = [name for name, rule in RULES.items() if not rule.silent]
    for ignore in ignores:
        if not ignore.rules:
            yield _MALFORMED, Hit(ignore.at, "the ignore comment names no rule")
            continue
        for name in ignore.rules:
            if name not in known:
                guess = near(name, known)
                message = f'no rule is called "{short(name)}"'
                fix = f'did you mean "{guess}"?' if guess else "docs/check.md lists them"
                yield _MALFORMED, Hit(ignore.at, message, fix)
            elif not ignore.reason:
                message = f"{name} is ignored without a reason, so it is not"
                yield _MALFORMED, Hit(ignore.at, message, "write the reason behind the bracket")
            elif name not in ignore.used and name in asked:
                yield _UNUSED, Hit(ignore.at, f"ignores {name}, which is not found here")


def _ignores(text: str, shown: str) -> Iterator[_Ignore]:
    if "mxfleet:" not in text:  # tokens are slow
        return
    rows = text.splitlines()
    following = _code_after(rows)
    for row, column, comment in comments(text):
        match = _MARK.match(comment)
        if match is None:
            continue
        names = tuple(name.strip() for name in (match["rules"] or "").split(",") if name.strip())
        alone = not rows[row - 1][:column].strip() if row <= len(rows) else False
        lines = {row}
        if alone:  # speaks for the next line that is no comment
            lines.add(following[row])
        yield _Ignore(At(shown, row, column + 1), names, match["reason"].strip(), frozenset(lines))


def _code_after(rows: Sequence[str]) -> list[int]:
    """For each number of lines from the top, the next line that is no comment alone."""
    found = [len(rows) + 1] * (len(rows) + 1)
    for number in range(len(rows) - 1, -1, -1):
        comment = rows[number].lstrip().startswith("#")
        found[number] = found[number + 1] if comment else number + 1
    return found


def comments(text: str) -> Iterator[tuple[int, int, str]]:
    """Line, column from 0 and text of every comment; of a text that parses."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.start[1], token.string
    except (tokenize.TokenError, SyntaxError):
        return
